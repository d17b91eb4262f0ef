"""What the tests of the Kafka port share."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kafka.server import KafkaServer


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[KafkaServer]:
    """A broker without keys."""
    async with KafkaServer(tmp_path) as server:
        yield server


@pytest.fixture
def kcat() -> str:
    """The program. Where it is not installed, tests that ask for it are deselected, and it is said."""
    found = shutil.which("kcat")
    assert found is not None
    return found


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asking = [item for item in items if "kcat" in getattr(item, "fixturenames", ())]
    if asking and shutil.which("kcat") is None:
        items[:] = [item for item in items if item not in asking]
        config.hook.pytest_deselected(items=asking)
        with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(f"\nkcat is not installed: {len(asking)} tests deselected", file=sys.stderr)
