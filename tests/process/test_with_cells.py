"""Tests of one broker that know nothing of it but its address hold for a set of three cells as well.

`make test-cells` runs all of them; these are some of every interface.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import CELLS_VARIABLE
from tests.support.broker_process import ROOT

#: A minute where nothing else runs.
PATIENCE_S = 900
pytestmark = pytest.mark.timeout(PATIENCE_S + 30)
CHOSEN = {
    "HTTP": ["test_delete_records.py", "test_conditions.py", "test_queue_admin.py", "test_partitions.py"],
    "routers": ["test_routers.py"],
    "streams": ["test_watch.py", "test_websocket.py", "test_work_stream.py"],
    "REST Proxy": ["proxy/test_groups.py", "proxy/test_streams.py"],
}


def holds(*files: str) -> str:
    """What pytest says of these files with three cells; none of their tests fails."""
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tier", "both", *files],
        cwd=ROOT,
        env={**os.environ, CELLS_VARIABLE: "3"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


@pytest.mark.parametrize("interface", CHOSEN)
def test_tests_of_an_interface_hold_for_three_cells(interface: str) -> None:
    assert " passed" in holds(*(f"tests/http/{file}" for file in CHOSEN[interface]))


def test_walks_of_kafka_clients_hold_for_three_cells() -> None:
    assert " passed" in holds("tests/kafka/test_client_versions.py")


def test_the_client_works_with_three_cells() -> None:
    assert " passed" in holds(
        "tests/client/test_client_against_broker.py", "tests/client/test_queues_against_broker.py"
    )
