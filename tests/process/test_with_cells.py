"""Tests of one broker that know nothing of it but its address hold for a set of three cells as well.

`make test-cells` runs all of them; these are some of every interface, others in each run.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from tests.conftest import CELLS_VARIABLE, is_soak
from tests.support.broker_process import ROOT

#: A minute where nothing else runs.
PATIENCE_S = 900
pytestmark = pytest.mark.timeout(PATIENCE_S + 30)
#: By interface. Each is a start of pytest, so there are few of them. One file of each group is drawn; in the soak tier
#: all run.
CHOSEN = {
    "HTTP": [
        ("tests/http/test_delete_records.py", "tests/http/test_conditions.py"),
        ("tests/http/test_queue_admin.py", "tests/http/test_work_stream.py"),
        ("tests/http/test_partitions.py", "tests/http/test_routers.py"),
        ("tests/http/test_watch.py", "tests/http/test_websocket.py"),
        ("tests/http/proxy/test_groups.py", "tests/http/proxy/test_streams.py"),
    ],
    "clients": [
        ("tests/kafka/test_client_versions.py",),
        ("tests/client/test_client_against_broker.py", "tests/client/test_queues_against_broker.py"),
    ],
}


def drawn(groups: list[tuple[str, ...]]) -> list[str]:
    return [file for group in groups for file in (group if is_soak(os.environ) else [random.choice(group)])]


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
    assert " passed" in holds(*drawn(CHOSEN[interface]))
