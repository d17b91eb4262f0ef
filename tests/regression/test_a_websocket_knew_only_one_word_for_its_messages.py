"""Clients that name the kind of a message in `op` were answered `unsupported_message`. Some errors lacked the
request_id of their command, acks lacked seqs, and times were not nested in `performance` as over HTTP.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.http.hot_server import HotServer
from tests.http.test_websocket import Socket, socket


@pytest.fixture
async def ws() -> AsyncIterator[Socket]:
    async with HotServer() as server, socket(server) as connection:
        await server.topic("t")
        yield connection


async def ask(ws: Socket, **message: Any) -> dict[str, Any]:
    await ws.connection.send(json.dumps(message))
    return await ws.next()


@pytest.mark.parametrize(("word", "other"), [("op", "type"), ("type", "op")])
async def test_every_message_is_answered_with_the_type_field_of_the_client(ws: Socket, word: str, other: str) -> None:
    found = [await ask(ws, **{word: "ping"})]
    found.append(await ask(ws, **{word: "subscribe", "topic": "t", "from_seq": 0}))
    found.append(await ws.next())
    await ws.connection.send(json.dumps({word: "publish", "topic": "t", "records": [{"data": 1}]}))
    found += [await ws.next(), await ws.next()]
    found.append(await ask(ws, **{word: "publish", "topic": "t", "records": []}))
    found.append(await ask(ws, **{word: "unsubscribe", "topic": "t"}))
    kinds = [each[word] for each in found]
    assert kinds[:3] == ["pong", "subscribed", "caught_up"]
    assert sorted(kinds[3:5]) == ["ack", "record"]
    assert kinds[5:] == ["error", "unsubscribed"]
    assert not any(other in each for each in found)


async def test_two_clients_of_a_topic_get_different_type_fields() -> None:
    async with HotServer() as server, socket(server) as one, socket(server) as two:
        await server.topic("t")
        for ws, word in ((one, "op"), (two, "type")):
            await ask(ws, **{word: "subscribe", "topic": "t"})
            await ws.next()
        async with socket(server) as third:
            await ask(third, op="publish", topic="t", records=[{"data": 1}])
        assert ((await one.next())["op"], (await two.next())["type"]) == ("record", "record")


async def test_op_wins_over_type_and_errors_before_the_first_command_have_both(ws: Socket) -> None:
    await ws.connection.send("{")
    answer = await ws.next()
    assert (answer["op"], answer["type"]) == ("error", "error")
    assert "type" not in await ask(ws, op="ping", type="subscribe")
    await ws.connection.send("{")
    answer = await ws.next()
    assert (answer["op"], "type" in answer) == ("error", False)


@pytest.mark.parametrize(
    "message",
    [
        {"op": "shout"}, {"op": 7}, {}, {"type": None}, {"op": "publish"}, {"op": "publish", "topic": 7},
        {"op": "subscribe", "topic": ["t"]}, {"op": "subscribe", "topic": "none"}, {"op": "unsubscribe", "topics": 7},
        {"op": "publish", "topic": "t", "records": [], "return_seqs": 1},
    ],
)  # fmt: skip
async def test_every_error_has_the_request_id_of_its_command(ws: Socket, message: dict[str, Any]) -> None:
    answer = await ask(ws, **message, request_id={"n": 1})
    assert (answer.get("op", answer.get("type")), answer["request_id"]) == ("error", {"n": 1})


async def test_an_ack_is_the_answer_of_an_append(ws: Socket) -> None:
    write: dict[str, Any] = {"op": "publish", "topic": "t", "records": [{"data": 1}, {"data": 2}]}
    ack = await ask(ws, **write, return_seqs=True, idempotency_key="k", request_id=1)
    times = ack.pop("performance")
    assert set(times) == {"server_total_ms", "wal_append_ms", "fsync_ms"}
    assert ack == {
        "op": "ack", "request_id": 1, "topic": "t", "first_seq": 1, "last_seq": 2, "seqs": [1, 2], "head_seq": 2,
        "count": 2, "created": False, "deduped": False,
    }  # fmt: skip
    again = await ask(ws, **write | {"records": [{"data": 3}]}, return_seqs=True, idempotency_key="k")
    assert (again["seqs"], again["deduped"], again["payload_differs"]) == ([1, 2], True, True)
    assert "seqs" not in await ask(ws, **write)


async def test_a_shutdown_error_uses_the_type_field_of_the_client() -> None:
    async with HotServer() as server, socket(server) as ws:
        await ask(ws, type="ping")
        server.broker.live.shut_down()
        assert (await ws.next())["type"] == "error"
