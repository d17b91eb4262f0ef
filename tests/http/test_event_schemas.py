"""Events of streams and messages of WebSockets match their schemas in the OpenAPI document."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator, ValidationError

from broker.api.app import OPERATIONS
from broker.api.openapi import document
from tests.http.calls import append, fill
from tests.http.hot_server import HotServer
from tests.http.queue_calls import queue
from tests.http.test_watch_damage import damage_log, written
from tests.http.test_websocket import Socket, socket
from tests.http.test_work_stream import PATIENCE_S, working
from tests.http.watch_calls import Event, session, stream, watching
from tests.unit.storage.machine import options

DOCUMENT = document(OPERATIONS)


def check(name: str, value: Any) -> None:
    """Raises ValidationError unless the value matches the schema of that name."""
    validator = Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]})
    validator.validate(value)


def parsed(event: Event) -> dict[str, Any]:
    """In the form that the schemas describe."""
    return {"event": event.name, "data": event.data} | ({} if event.id is None else {"id": event.id})


@pytest.fixture
async def server() -> AsyncIterator[HotServer]:
    async with HotServer(limits=options(tail_cache_bytes=0)) as server:
        yield server


@pytest.fixture
async def http(server: HotServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.server.url, timeout=PATIENCE_S) as client:
        yield client


async def test_events_of_a_watch_match_the_schema(server: HotServer, http: httpx.AsyncClient) -> None:
    await written(server, http)
    damage_log(server, 8)
    await fill(http, "capped", 5)
    await http.put("/v0/topics/capped", json={"cap_records": 2})
    await http.put("/v0/topics/wide", json={"partitions": 2})
    events: list[dict[str, Any]] = []
    async with watching(http, "t", "capped", include_tags=True) as watch:
        while {each["event"] for each in events} < {"record", "tombstone", "caught-up", "error"}:
            events.append(parsed(await watch.next()))
        await http.delete("/v0/topics/capped")
        while events[-1]["event"] != "topic-deleted":
            events.append(parsed(await watch.next()))
    path = await session(http, topics={"wide": {"partition": 1, "from_seq": 0}})
    async with stream(http, path) as watch:
        await http.post(
            "/v0/topics/wide?partition=1", json={"records": [{"data": None, "node": "n", "meta": {"a": 1}}]}
        )
        while events[-1]["event"] != "record":
            events.append(parsed(await watch.next()))
    assert events[-1]["data"]["partition"] == 1
    for event in events:
        check("WatchEvent", event)
        with pytest.raises(ValidationError):
            check("WatchEvent", event | {"data": event["data"] | {"surprise": 1}})


async def test_events_of_a_stream_of_jobs_match_the_schema(http: httpx.AsyncClient) -> None:
    await queue(http)
    await append(http, "q", {"data": 1, "tag": "a", "node": "n", "meta": {"k": 1}})
    async with working(http) as work:
        job = Event(*await work.event())
        await http.delete("/v0/topics/q")
        deleted = Event(*await work.event())
    assert [job.name, deleted.name] == ["job", "topic-deleted"]
    for event in (job, deleted):
        check("WorkEvent", parsed(event))


async def told(ws: Socket, op: str | None = None, **fields: Any) -> dict[str, Any]:
    """The next message, or the answer to a command. Both match their schemas."""
    if op is not None:
        command = {"op": op, **fields}
        check("SocketCommand", command)
        await ws.say(op, **command)
    message = await ws.next()
    message.pop("type", None)  # the older name, see the reference
    check("SocketMessage", message)
    return message


async def test_messages_of_a_websocket_match_the_schema(server: HotServer, http: httpx.AsyncClient) -> None:
    await fill(http, "capped", 5)
    await http.put("/v0/topics/capped", json={"cap_records": 2})
    async with socket(server) as ws:
        found = [
            await told(ws, "ping", request_id={"any": 1}),
            await told(ws, "publish", topic="t", records=[{"data": 1}], return_seqs=True, request_id=2),
            await told(ws, "publish", topic="t", records=[{"data": 1}], expected_seq=9),
            await told(ws, "unsubscribe", topics=["t"]),
            await told(ws, "subscribe", topics={"t": {"from_seq": 0}, "capped": None}, request_id="s"),
        ]
        await http.put("/v0/topics/capped", json={"cap_records": 1})
        found += [await told(ws), await told(ws)]
        found.append(await told(ws, "subscribe", topic="capped", from_seq=0))
        while not {each["op"] for each in found} >= {"record", "tombstone", "caught_up"}:
            found.append(await told(ws))
        await http.delete("/v0/topics/capped")
        while found[-1]["op"] != "topic_deleted":
            found.append(await told(ws))
    assert {each["op"] for each in found} == {
        "pong", "ack", "error", "unsubscribed", "subscribed", "record", "tombstone", "caught_up", "topic_deleted",
    }  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [
        {"op": "publish", "records": [{"data": 1}]},
        {"op": "publish", "topic": "t"},
        {"op": "shout"},
        {"topic": "t"},
    ],
)
async def test_a_refused_command_does_not_match_its_schema(server: HotServer, command: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        check("SocketCommand", command)
    async with socket(server) as ws:
        await ws.connection.send(str(command).replace("'", '"'))
        assert (await ws.next())["code"] in ("invalid_request", "unsupported_message")
