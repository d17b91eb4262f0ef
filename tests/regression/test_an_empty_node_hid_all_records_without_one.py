"""`"node": ""` left out every record without a node. It has to mean that no node was given."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from broker.settings import Settings
from broker.wiring import Broker
from storage import Engine, ReadQuery
from storage.records.values import NewRecord
from tests.http.calls import append, read
from tests.http.conftest import SMALL, client_of
from tests.http.hot_server import HotServer
from tests.unit.storage.machine import raw

RECORDS: list[dict[str, Any]] = [{"data": 1}, {"data": 2, "node": "me"}, {"data": 3, "node": "other"}]
#: What a reader sends, and what it gets.
NODES: list[tuple[Any, list[int]]] = [("", [1, 2, 3]), ([""], [1, 2, 3]), (["", "me"], [1, 3]), ("me", [1, 3])]


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    async with Engine.open(tmp_path / "data", SMALL) as engine:
        yield engine


@pytest.fixture
async def client(engine: Engine, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(Broker(engine, Settings(data_dir=tmp_path))) as client:
        await append(client, "t", *RECORDS)
        yield client


def given(answer: dict[str, Any]) -> list[int]:
    return [record["data"] for record in answer["records"]]


@pytest.mark.parametrize(("node", "expected"), NODES)
async def test_a_read_with_an_empty_node_returns_all_records(
    client: httpx.AsyncClient, node: Any, expected: list[int]
) -> None:
    assert given(await read(client, "t", node=node)) == expected
    query = {"node": node}
    assert given((await client.get("/v0/topics/t/records", params=query)).json()) == expected
    await client.put("/v0/topics/t/consumers/c", json={})
    assert given((await client.post("/v0/topics/t/consumers/c/read", json={"node": node})).json()) == expected


@pytest.mark.parametrize(("node", "expected"), NODES)
async def test_the_embedded_engine_treats_an_empty_node_as_none(engine: Engine, node: Any, expected: list[int]) -> None:
    await engine.append("t", [NewRecord(raw(each["data"]), node=each.get("node")) for each in RECORDS])
    exclude = frozenset(each.encode() for each in ([node] if isinstance(node, str) else node))
    assert [each.seq for each in (await engine.read("t", ReadQuery(exclude_nodes=exclude))).records] == expected


@pytest.mark.parametrize(("node", "expected"), NODES)
async def test_watches_and_reads_past_asgi(node: Any, expected: list[int]) -> None:
    async with HotServer() as server, httpx.AsyncClient(base_url=server.server.url) as client:
        await append(client, "t", *RECORDS)
        assert given(await read(client, "t", node=node)) == expected
        body = {"topics": {"t": {"from_seq": 0}}, "node": node}
        url = (await client.post("/v0/watch", json=body)).json()["stream_url"]
        async with client.stream("GET", url) as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    assert given(json.loads(line[6:])) == expected
                    break
        async with connect(f"{server.server.url.replace('http', 'ws')}/v0/ws") as socket:
            await socket.send(json.dumps({"type": "subscribe", "topic": "t", "from_seq": 0, "node": node}))
            while (message := json.loads(await socket.recv()))["type"] != "record":
                assert message["type"] == "subscribed"
            assert given(message) == expected
