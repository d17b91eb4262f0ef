"""A broker with a Kafka port, and Kafka's own programs. If they cannot run, the tests are left out, and the run says
so."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.groups.server import Server
from tests.kafka.java.programs import BEFORE, FETCH_S, NEWEST, Programs, fetched, refusal

NEEDING = {"programs", "version"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asking = [item for item in items if NEEDING & {*getattr(item, "fixturenames", ())}]
    reason = refusal() if asking else None
    if reason is not None:
        items[:] = [item for item in items if item not in asking]
        config.hook.pytest_deselected(items=asking)
        with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(f"\nno programs of Kafka to be had here ({reason}): {len(asking)} tests deselected", file=sys.stderr)
    for item in asking:
        item.add_marker(pytest.mark.timeout(FETCH_S + 300))


@pytest.fixture(scope="session", params=[NEWEST, pytest.param(BEFORE, marks=pytest.mark.soak)])
def version(request: pytest.FixtureRequest) -> str:
    """A version of Kafka whose programs are there."""
    fetched(request.param)
    return request.param


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "data", kafka_min_session_ms=1000, kafka_rebalance_delay_ms=0) as server:
        yield server


@pytest.fixture
def programs(server: Server, version: str, tmp_path: Path) -> Programs:
    folder = tmp_path / "programs"
    folder.mkdir()
    return Programs(version, server.address, folder)
