"""Fixtures of the HTTP tests: the application on a real engine, and a client for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeAlias, cast

import httpx
import pytest

from broker.api.app import build_app
from broker.server.http1 import AgainCycle
from broker.settings import Settings
from broker.wiring import Broker
from storage import Engine, Options
from tests.conftest import cells_asked_for, leave_out
from tests.http.cells_server import CellsServer
from tests.http.hot_server import HotServer
from tests.support.cells_in_process import CellsInProcess, cells
from tests.support.cells_in_process import client_of as client_of_cells

#: Makes a server, which is in `tests.http.cells_server` a set of cells.
Serve: TypeAlias = Callable[[], HotServer]
SMALL = Options(wal_shards=1, wal_file_bytes=4 << 20, wal_reserve_bytes=1 << 16)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    async with Engine.open(tmp_path / "data", SMALL) as engine:
        yield engine


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Override it in a module to test with other limits."""
    return Settings(data_dir=tmp_path / "data")


@pytest.fixture
def broker(engine: Engine, settings: Settings) -> Broker:
    return Broker(engine, settings)


if cells_asked_for() > 1:

    @pytest.fixture
    async def through_gateway(settings: Settings, tmp_path: Path) -> AsyncIterator[CellsInProcess]:
        """A set of cells, which tests reach through its gateway."""
        async with cells(tmp_path, cells_asked_for(), settings) as made:
            yield made

    @pytest.fixture
    async def client(through_gateway: CellsInProcess) -> AsyncIterator[httpx.AsyncClient]:
        async with client_of_cells(through_gateway, headers={"host": "localhost"}) as client:
            yield client

    @pytest.fixture
    def serve(through_gateway: CellsInProcess) -> Serve:
        return lambda: cast("Any", CellsServer(through_gateway))

else:

    @pytest.fixture
    def serve() -> Serve:
        """Makes the server of the tests of a module."""
        return HotServer

    @pytest.fixture
    async def client(broker: Broker) -> AsyncIterator[httpx.AsyncClient]:
        async with client_of(broker) as client:
            yield client


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several cells, only tests that know nothing but the address of the set have something to say."""
    if cells_asked_for() == 1:
        return
    here = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    leave_out(config, items, [item for item in here if not _only_asks(item)], "these look into a single engine")


def _only_asks(item: pytest.Item) -> bool:
    asked: list[str] = getattr(item, "fixturenames", [])
    return "through_gateway" in asked and not {"engine", "broker", "clock"} & set(asked)


def client_of(broker: Broker) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(build_app(broker)), base_url="http://localhost")


@pytest.fixture
async def server() -> AsyncIterator[HotServer]:
    """A server with a topic `t`. Override it in a module that needs another topic."""
    async with HotServer() as server:
        await server.topic("t")
        yield server


@pytest.fixture
def agains(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bytes of the requests that skipped the parser because their head was known."""
    seen: list[bytes] = []
    make = AgainCycle.__init__

    def counted(self: AgainCycle, protocol: Any, request: Any, data: bytes) -> None:
        seen.append(data)
        make(self, protocol, request, data)

    monkeypatch.setattr(AgainCycle, "__init__", counted)
    return seen
