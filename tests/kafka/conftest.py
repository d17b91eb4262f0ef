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


#: Programs of the system, each with a fixture of its name. Tests that ask for one which is not there are left out.
PROGRAMS = ("kcat", "npm", "go", "cargo")


def _found(program: str) -> str:
    found = shutil.which(program)
    assert found is not None
    return found


@pytest.fixture
def kcat() -> str:
    """The program."""
    return _found("kcat")


@pytest.fixture
def npm() -> str:
    """The program, which node comes with."""
    return _found("npm")


@pytest.fixture
def go() -> str:
    """The program."""
    return _found("go")


@pytest.fixture
def cargo() -> str:
    """The program."""
    return _found("cargo")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for program in PROGRAMS:
        asking = [item for item in items if program in getattr(item, "fixturenames", ())]
        if asking and shutil.which(program) is None:
            items[:] = [item for item in items if item not in asking]
            config.hook.pytest_deselected(items=asking)
            with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
                print(f"\n{program} is not installed: {len(asking)} tests deselected", file=sys.stderr)
