"""Streams of topics in several cells."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import connect

from tests.support.cells_in_process import CellsInProcess, cells, client_of

PATIENCE_S = 20


async def three_topics(made: CellsInProcess, client: httpx.AsyncClient, records: int) -> list[str]:
    names = [made.topic(cell) for cell in range(3)]
    for name in names:
        await client.put(f"/v0/topics/{name}", json={})
        for number in range(records):
            await client.post(f"/v0/topics/{name}", json={"records": [{"data": number}]})
    return names


async def stream(client: httpx.AsyncClient, wid: str, last_id: str = "") -> AsyncGenerator[dict[str, Any]]:
    """Events as dicts: name, id, data."""
    headers = {"last-event-id": last_id} if last_id else {}
    async with client.stream("GET", f"/v0/watch/{wid}", headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        event: dict[str, Any] = {}
        async for line in response.aiter_lines():
            if not line and event:
                yield event
                event = {}
            name, _, value = line.partition(": ")
            if name == "data":
                event["data"] = json.loads(value)
            elif name in ("event", "id"):
                event[name] = value


async def test_a_session_of_topics_in_all_cells_is_one_stream_and_resumes_after_an_id(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, client_of(made) as client, asyncio.timeout(PATIENCE_S):
        names = await three_topics(made, client, 2)
        body = {"topics": {name: {"from_seq": 0} for name in names}}
        session = (await client.post("/v0/watch", json=body)).json()
        assert list(session["topics"]) == names
        seen: dict[str, list[int]] = {name: [] for name in names}
        last_id = ""
        async for event in stream(client, session["wid"]):
            if event["event"] == "record":
                seen[event["data"]["topic"]] += [record["$seq"] for record in event["data"]["records"]]
            last_id = event.get("id", last_id)
            if all(seqs == [1, 2] for seqs in seen.values()) and event["event"] == "caught-up":
                break
        for name in names:
            await client.post(f"/v0/topics/{name}", json={"records": [{"data": "new"}]})
        again = (await client.post("/v0/watch", json=body)).json()
        later: dict[str, list[int]] = {name: [] for name in names}
        async for event in stream(client, again["wid"], last_id):
            if event["event"] == "record":
                later[event["data"]["topic"]] += [record["$seq"] for record in event["data"]["records"]]
            if all(later.values()):
                break
        assert later == {name: [3] for name in names}


async def test_a_session_of_one_cell_and_one_that_is_unknown(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, client_of(made) as client, asyncio.timeout(PATIENCE_S):
        names = await three_topics(made, client, 1)
        session = (await client.post("/v0/watch", json={"topics": {names[1]: {"from_seq": 0}}})).json()
        async for event in stream(client, session["wid"]):
            assert event["data"]["topic"] == names[1]
            break
        for wid in ("nonsense", "wid_9.abc", "wid_0.abc", session["wid"] + "~x"):
            assert (await client.get(f"/v0/watch/{wid}")).status_code == 404
        refused = await client.post("/v0/watch", json={"topics": {names[0]: None, "t-unknown": None}})
        assert refused.json()["error"]["code"] == "topic_not_found"
        assert (await client.post("/v0/watch", json={"topics": {}})).status_code == 400


async def test_a_websocket_subscribes_and_publishes_in_all_cells(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, client_of(made) as client, asyncio.timeout(PATIENCE_S):
        names = await three_topics(made, client, 1)
        async with connect(f"ws://127.0.0.1:{made.port}/v0/ws") as socket:
            command = {"op": "subscribe", "request_id": 7, "topics": {name: {"from_seq": 0} for name in names}}
            await socket.send(json.dumps(command))
            first = json.loads(await socket.recv())
            assert first["op"] == "subscribed", first
            assert (first["op"], first["request_id"], sorted(first["topics"])) == ("subscribed", 7, sorted(names))
            for name in names:
                await socket.send(
                    json.dumps({"op": "publish", "request_id": name, "topic": name, "records": [{"data": 5}]})
                )
            acked: set[str] = set()
            seen: dict[str, int] = dict.fromkeys(names, 0)
            while len(acked) < 3 or min(seen.values()) < 2:
                message = json.loads(await socket.recv())
                if message["op"] == "ack":
                    acked.add(message["request_id"])
                elif message["op"] == "record":
                    seen[message["topic"]] += len(message["records"])
            await socket.send(json.dumps({"op": "unsubscribe", "topics": names}))
            ended = json.loads(await socket.recv())
            assert (ended["op"], sorted(ended["topics"])) == ("unsubscribed", sorted(names))
            await socket.send("nonsense")
            assert json.loads(await socket.recv())["code"] == "invalid_json"
            await socket.send(json.dumps({"op": "ping"}))
            assert json.loads(await socket.recv())["op"] == "pong"


async def test_the_stream_of_a_cell_that_stops_ends_with_the_whole(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, client_of(made) as client, asyncio.timeout(PATIENCE_S):
        names = await three_topics(made, client, 1)
        session = (await client.post("/v0/watch", json={"topics": dict.fromkeys(names)})).json()
        found = [event async for event in _stopping(made, client, session["wid"])]
        assert found[-1]["event"] == "error"
        assert found[-1]["data"]["code"] == "server_shutting_down"


async def _stopping(made: CellsInProcess, client: httpx.AsyncClient, wid: str) -> AsyncGenerator[dict[str, Any]]:
    async for event in stream(client, wid):
        yield event
        made.brokers[1].live.shut_down()
