"""Storage and the broker have layers, and no import goes up. The rule notices one that does."""

from __future__ import annotations

import pytest

from tests.tidy.rules_layers import LAYERS, layer_problems
from tests.tidy.tree import Source, python_files

FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "


def test_no_import_goes_up() -> None:
    assert [problem for source in python_files() for problem in layer_problems(source)] == []


@pytest.mark.parametrize("folder", sorted(LAYERS))
def test_every_layer_has_files(folder: str) -> None:
    there = {source.path.split("/")[1].removesuffix(".py") for source in python_files() if source.folder == folder}
    assert {name for line in LAYERS[folder] for name in line.split()} == there


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("storage/state/log.py", "from storage.queues.queues import Queues"),
        ("storage/state/log.py", "def later():\n    from storage.log import append"),
        ("storage/snapshot/contents.py", "import storage.topics.admin"),
        (
            "storage/state/log.py",
            FOR_TYPES + "from storage.log import append",
        ),
        ("storage/reads/reader.py", "from storage.engine import Engine"),
        ("storage/queues/queues.py", FOR_TYPES + "from storage.engine import Engine"),
        ("storage/log/append.py", FOR_TYPES + "from storage.engine import Engine"),
        ("storage/errors.py", "from storage.platform import layout"),
        ("storage/novel/thing.py", "import os"),
        ("broker/kafka/call.py", FOR_TYPES + "from broker.wiring import Broker"),
        ("broker/live/feed.py", "from broker.api.operation import Operation"),
        ("broker/novel.py", "import os"),
        ("storage/metrics.py", "import os"),
    ],
)
def test_an_import_to_a_higher_layer_is_reported(path: str, text: str) -> None:
    assert len(layer_problems(Source(path, text))) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "storage/queues/queues.py",
            "from storage.state.log import Log\nfrom storage.queues.lease_queue import LeaseQueue",
        ),
        ("storage/engine.py", "from storage.platform import refuse_set"),
        ("broker/wiring.py", "from storage.engine import Engine"),
        ("broker/api/dispatch.py", "from broker.wiring import Broker"),
        ("broker/lifecycle.py", "from broker import VERSION"),
    ],
)
def test_an_import_to_a_lower_layer_is_accepted(path: str, text: str) -> None:
    assert layer_problems(Source(path, text)) == []
