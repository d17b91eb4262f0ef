"""The Python client finds the cells of a set, and continues when one of them is killed."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from broker.cells import home_cell
from tests.support.broker_process import BrokerProcess
from topics_client import AsyncClient, Client
from topics_client.commands.connection import connect
from topics_client.commands.reach import Reach

CELLS = 2
KEY = "k" * 32
NAMES = [next(name for n in range(99) if home_cell(name := f"orders-{n}", CELLS) == cell) for cell in range(CELLS)]


def _through_the_gateway(client: Client) -> int:
    """Appends and reads that the gateway has answered so far."""
    pattern = (
        r'topics_http_requests_total\{cell="gateway",route="/v0/topics/\{topic\}(?:/diff)?",method="POST".*\} (\d+)'
    )
    return sum(int(count) for count in re.findall(pattern, client.metrics()))


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a crowded machine a slow cell must not be left to the gateway."""
    monkeypatch.setattr("topics_client.cell_routes.ASK_S", 30.0)


def test_the_client_finds_the_cells_and_survives_a_killed_cell(tmp_path: Path) -> None:
    keys = f"{KEY},{'w' * 32}:write"
    with BrokerProcess(tmp_path, cells=CELLS, wal_shards=1, cell_ports=0, api_keys=keys) as broker:
        broker.start()
        url = f"http://127.0.0.1:{broker.port}"
        with Client(url, token=KEY) as client, Client(url, token="w" * 32) as writer:
            for name in NAMES:
                client.put_topic(name, durability="fsync")
                client.append(name, ["first"])
                writer.append(name, ["first"])
                client.append(name, ["second"])
            before = _through_the_gateway(client)
            for number in range(20):
                for name in NAMES:
                    client.append(name, [number])
                    writer.append(name, [number])
                    assert client.read(name, 0).records
            # Of 120 requests, only those that the clients needed before they had found the cells.
            assert _through_the_gateway(client) - before <= 4
            broker.kill_cell(1)
            for number in range(20):
                for name in NAMES:
                    client.append(name, [number])
            for name in NAMES:
                assert client.state(name).head_seq == 3 + 40 + 20
        asyncio.run(_by_asyncio(url))
        assert broker.stop() == 0


async def _by_asyncio(url: str) -> None:
    async with AsyncClient(url, token=KEY) as client:
        for name in NAMES:
            await client.append(name, ["once"])
        with Client(url, token=KEY) as looking:
            await asyncio.gather(*(client.append(name, [number]) for number in range(20) for name in NAMES))
            for name in NAMES:
                await client.append(name, ["again"])
            before = _through_the_gateway(looking)
            for number in range(10):
                for name in NAMES:
                    await client.append(name, [number])
            assert _through_the_gateway(looking) == before


def test_a_client_with_direct_false_uses_the_gateway(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, cells=CELLS, wal_shards=1, cell_ports=0) as broker:
        broker.start()
        with Client(f"http://127.0.0.1:{broker.port}", direct=False) as client:
            for number in range(5):
                client.append(NAMES[0], [number])
            assert _through_the_gateway(client) == 5


def test_the_command_line_finds_the_cells(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, cells=CELLS, wal_shards=1, cell_ports=0) as broker:
        broker.start()
        url = f"http://127.0.0.1:{broker.port}"
        with Client(url) as looking, connect(Reach(url=url), False) as client:
            for number in range(20):
                client.append(NAMES[1], [number])
            # The first one, whose answer names the cell.
            assert _through_the_gateway(looking) == 1
            assert looking.state(NAMES[1]).head_seq == 20
