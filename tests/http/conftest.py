"""Fixtures of the HTTP tests: the application on a real engine, and a client for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.api.app import build_app
from broker.server.http1 import AgainCycle
from broker.settings import Settings
from broker.wiring import Broker
from storage import Engine, Options
from tests.http.hot_server import HotServer

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


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(broker) as client:
        yield client


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
