"""Watching and writing over a WebSocket, over real connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from websockets import ConnectionClosed, InvalidStatus
from websockets.asyncio.client import ClientConnection, connect

from broker.api import events
from broker.api.routes import commands
from broker.service import appends
from tests.http.calls import append, fill, read
from tests.http.conftest import Serve
from tests.http.hot_server import HotServer
from tests.http.test_work_stream import PATIENCE_S
from tests.http.watch_calls import soon


@pytest.fixture
async def server(serve: Serve) -> AsyncIterator[HotServer]:
    async with serve() as server:
        yield server


@pytest.fixture
async def http(server: HotServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.server.url, timeout=PATIENCE_S) as client:
        yield client


class Socket:
    """The messages of one connection."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def say(self, type: str, **fields: Any) -> None:
        await self.connection.send(json.dumps({"type": type, **fields}))

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE_S):
            return json.loads(await self.connection.recv())

    async def ask(self, type: str, **fields: Any) -> dict[str, Any]:
        await self.say(type, **fields)
        return await self.next()

    async def closed(self) -> int:
        """The close code; no further message may come."""
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(ConnectionClosed) as closing:
                await self.connection.recv()
        assert closing.value.rcvd is not None
        return closing.value.rcvd.code


@asynccontextmanager
async def socket(server: HotServer, **more: Any) -> AsyncIterator[Socket]:
    async with connect(server.server.url.replace("http", "ws", 1) + "/v0/ws", max_size=None, **more) as connection:
        yield Socket(connection)


async def test_a_topic_is_watched(server: HotServer, http: httpx.AsyncClient) -> None:
    await fill(http, "t", 2)
    async with socket(server) as ws:
        assert await ws.ask("subscribe", request_id=7, topic="t", from_seq=1) == {
            "type": "subscribed",
            "request_id": 7,
            "topics": {"t": {"from_seq": 1, "head_seq": 2, "earliest_seq": 1}},
        }
        record = await ws.next()
        assert (record["type"], record["from_seq"], record["to_seq"], record["head_seq"]) == ("record", 1, 2, 2)
        assert [each["data"] for each in record["records"]] == [2]
        assert await ws.next() == {"type": "caught_up", "topic": "t", "head_seq": 2}
        for number in range(10):
            await append(http, "t", {"data": number})
            assert [each["data"] for each in (await ws.next())["records"]] == [number]


async def test_one_subscription_delivers_records_of_several_topics(server: HotServer, http: httpx.AsyncClient) -> None:
    for topic in ("a", "b", "c"):
        await fill(http, topic, 1)
    async with socket(server) as ws:
        found = await ws.ask("subscribe", topics={"a": {"from_seq": 0}, "b": {"tail": 1}, "no": {}}, lenient=True)
        assert {name: each["from_seq"] for name, each in found["topics"].items()} == {"a": 0, "b": 0}
        assert {(await ws.next())["topic"] for _ in range(4)} == {"a", "b"}
        assert (await ws.ask("subscribe", topics=["c"]))["topics"]["c"]["from_seq"] == 1


async def test_an_unsubscribed_topic_sends_no_more_records(server: HotServer, http: httpx.AsyncClient) -> None:
    await fill(http, "t", 1)
    await fill(http, "u", 1)
    async with socket(server) as ws:
        await ws.ask("subscribe", topics={"t": {}, "u": {}})
        for _ in range(2):
            assert (await ws.next())["type"] == "caught_up"
        answer = await ws.ask("unsubscribe", request_id="x", topics=["t", "never"])
        assert answer == {"type": "unsubscribed", "request_id": "x", "topics": ["t"]}
        await append(http, "t", {"data": 2})
        await append(http, "u", {"data": 2})
        assert (await ws.next())["topic"] == "u"


async def test_a_second_subscription_replaces_the_first(server: HotServer, http: httpx.AsyncClient) -> None:
    await fill(http, "t", 3)
    async with socket(server) as ws:
        await ws.ask("subscribe", topic="t")
        assert (await ws.next())["type"] == "caught_up"
        assert (await ws.ask("subscribe", topic="t", from_seq=1))["topics"]["t"]["from_seq"] == 1
        assert [each["data"] for each in (await ws.next())["records"]] == [2, 3]
        assert (await ws.next())["type"] == "caught_up"
        await append(http, "t", {"data": 4})
        assert [each["data"] for each in (await ws.next())["records"]] == [4]
        assert (await ws.ask("ping"))["type"] == "pong"  # and no second copy before it


async def test_a_publish_is_acked_with_its_seqs(server: HotServer, http: httpx.AsyncClient) -> None:
    async with socket(server) as ws:
        body = {"records": [{"data": {"a": 1}, "tag": "x", "meta": None}, {"data": 2}], "node": "p"}
        ack = await ws.ask("publish", request_id=[1], topic="t", **body)
        assert {name: ack[name] for name in ("type", "request_id", "topic", "first_seq", "last_seq", "created")} == {
            "type": "ack", "request_id": [1], "topic": "t", "first_seq": 1, "last_seq": 2, "created": True
        }  # fmt: skip
        again = await ws.ask("publish", topic="t", records=[{"data": 3}], idempotency_key="k")
        assert (again["first_seq"], again["deduped"]) == (3, False)
        again = await ws.ask("publish", topic="t", records=[{"data": 3}], idempotency_key="k")
        assert (again["first_seq"], again["deduped"]) == (3, True)
    records = (await read(http, "t", include_tags=True))["records"]
    assert [record["data"] for record in records] == [{"a": 1}, 2, 3]
    assert (records[0]["$tag"], records[0]["$node"]) == ("x", "p")


@pytest.mark.one_cell("looks into the engine")
async def test_acks_keep_their_order_within_a_topic(
    server: HotServer, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, hold = appends.append, asyncio.Event()

    async def append_late(engine: Any, write: appends.Append, pressure: Any) -> Any:
        done = await real(engine, write, pressure)
        if write.node == "late":
            await hold.wait()
        return done

    monkeypatch.setattr(commands.appends, "append", append_late)
    async with socket(server) as ws:
        await ws.say("publish", request_id=1, topic="t", records=[{"data": 1}], node="late")
        await ws.say("publish", request_id=2, topic="t", records=[{"data": 2}])
        await ws.say("publish", request_id=3, topic="t", records=[])
        await ws.say("publish", request_id=4, topic="u", records=[{"data": 4}])
        assert (await ws.next())["request_id"] == 4
        assert (await ws.ask("ping", request_id=5))["request_id"] == 5
        hold.set()
        assert [(each["request_id"], each["type"]) for each in [await ws.next() for _ in range(3)]] == [
            (1, "ack"),
            (2, "ack"),
            (3, "error"),
        ]


@pytest.mark.one_cell("looks into the engine")
async def test_the_number_of_pending_writes_is_limited(
    server: HotServer, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, hold, running = appends.append, asyncio.Event(), 0

    async def append_late(engine: Any, write: appends.Append, pressure: Any) -> Any:
        nonlocal running
        running += 1
        await hold.wait()
        return await real(engine, write, pressure)

    monkeypatch.setattr(commands.appends, "append", append_late)
    async with socket(server) as ws:
        for number in range(commands.MAX_UNDER_WAY + 20):
            await ws.say("publish", request_id=number, topic="t", records=[{"data": number}])
        await soon(lambda: running == commands.MAX_UNDER_WAY)
        await asyncio.sleep(0.05)
        assert running == commands.MAX_UNDER_WAY
        hold.set()
        acks = [await ws.next() for _ in range(commands.MAX_UNDER_WAY + 20)]
        # Commands run side by side, in any order.
        assert sorted(ack["first_seq"] for ack in acks) == list(range(1, commands.MAX_UNDER_WAY + 21))


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{", "invalid_json"),
        ("", "invalid_json"),
        ('{"type":"ping",}', "invalid_json"),
        ("[]", "unsupported_message"),
        ("{}", "unsupported_message"),
        ('{"type":7}', "unsupported_message"),
        ('{"type":"shout"}', "unsupported_message"),
        (b'{"type":"ping"}', "unsupported_message"),
        ('{"type":"subscribe"}', "invalid_request"),
        ('{"type":"subscribe","topic":"t","from_seq":-1}', "invalid_request"),
        ('{"type":"subscribe","topic":"no"}', "topic_not_found"),
        ('{"type":"publish","records":[{"data":1}]}', "invalid_request"),
        ('{"type":"publish","topic":"t","records":[]}', "invalid_request"),
        ('{"type":"publish","topic":"no","records":[{"data":1}],"create":false}', "topic_not_found"),
    ],
)
async def test_a_refused_message_is_answered_with_an_error_and_the_connection_stays_open(
    server: HotServer, http: httpx.AsyncClient, message: str | bytes, code: str
) -> None:
    await fill(http, "t", 1)
    async with socket(server) as ws:
        await ws.connection.send(message)
        answer = await ws.next()
        assert (answer["type"], answer["code"]) == ("error", code)
        assert answer["message"]
        assert (await ws.ask("ping", request_id=None))["type"] == "pong"


async def test_a_deleted_topic_is_announced_at_once(server: HotServer, http: httpx.AsyncClient) -> None:
    await fill(http, "t", 2)
    async with socket(server) as ws:
        await ws.ask("subscribe", topic="t")
        await ws.next()
        await http.delete("/v0/topics/t")
        assert await ws.next() == {"type": "topic_deleted", "topic": "t", "head_seq": 2, "reason": "deleted"}


async def test_a_gap_is_sent_as_a_tombstone(server: HotServer, http: httpx.AsyncClient) -> None:
    await http.put("/v0/topics/t", json={"cap_records": 1})
    await fill(http, "t", 5)
    async with socket(server) as ws:
        await ws.ask("subscribe", topic="t", from_seq=2)
        gap = await ws.next()
        assert (gap["type"], gap["gap_from"], gap["gap_to"]) == ("tombstone", 3, 4)


@pytest.mark.one_cell("looks into the engine")
async def test_a_websocket_is_closed_with_server_shutting_down_at_shutdown(
    server: HotServer, http: httpx.AsyncClient
) -> None:
    async with socket(server) as ws:
        assert (await ws.ask("ping"))["type"] == "pong"
        server.broker.live.shut_down()
        assert (await ws.next())["code"] == "server_shutting_down"
        assert await ws.closed() == 1001


async def test_a_message_over_the_limit_closes_the_websocket(http: httpx.AsyncClient) -> None:
    async with HotServer(max_body_bytes=2000) as server, socket(server) as ws:
        await ws.connection.send(json.dumps({"type": "ping", "more": "x" * 3000}))
        assert await ws.closed() == 1009


@pytest.mark.one_cell("looks into the engine")
async def test_a_websocket_counts_toward_the_stream_limit(server: HotServer, http: httpx.AsyncClient) -> None:
    server.broker.streams.max = 1
    async with socket(server) as ws:
        await ws.ask("ping")
        assert server.broker.streams.parked == 1
        with pytest.raises(InvalidStatus) as refusal:
            async with socket(server):
                pass
        assert refusal.value.response.status_code == 429
        assert json.loads(refusal.value.response.body or b"")["error"]["detail"]["limit"] == "max_sse_connections"
    await soon(lambda: server.broker.streams.parked == 0)
    assert list(server.broker.live.feeds()) == []


async def test_elsewhere_there_is_no_websocket(server: HotServer, http: httpx.AsyncClient) -> None:
    for path, status in (("/v0/health", 200), ("/v0/elsewhere", 404)):
        with pytest.raises(InvalidStatus) as refusal:
            async with connect(server.server.url.replace("http", "ws", 1) + path):
                pass
        assert refusal.value.response.status_code == status


@pytest.mark.one_cell("looks into the engine")
async def test_a_websocket_client_that_does_not_read_is_closed_as_slow(
    server: HotServer, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "PATIENCE_S", 0.3)
    await http.put("/v0/topics/t")
    async with socket(server, max_queue=1) as ws:
        await ws.ask("subscribe", topic="t")
        live = server.broker.live
        while not live.figures.slow_closed:
            await append(http, "t", *({"data": "x" * 50_000} for _ in range(20)))
        await soon(lambda: not live.watchers)
        seqs: list[int] = []
        while (message := await ws.next())["type"] != "error":
            seqs += [record["$seq"] for record in message.get("records", [])]
        assert message["code"] == "slow_reader"
        assert seqs == list(range(1, len(seqs) + 1))
        assert await ws.closed() == 1008


@pytest.mark.parametrize("http_server", ["zttp", "httptools"])
async def test_a_websocket_works_with_every_http_server(http_server: str) -> None:
    async with HotServer(http=http_server) as server, socket(server) as ws:
        assert (await ws.ask("publish", topic="t", records=[{"data": 1}]))["last_seq"] == 1
        await ws.ask("subscribe", topic="t", from_seq=0)
        assert (await ws.next())["records"][0]["data"] == 1


async def test_a_subscription_starts_after_pending_router_copies(server: HotServer, http: httpx.AsyncClient) -> None:
    assert (await http.put("/v0/routers/r", json={"source": "a", "dest": "b"})).status_code == 201
    for number in range(1, 6):
        await append(http, "a", {"data": number})
        async with socket(server) as ws:
            answer = await ws.ask("subscribe", topic="b")
        assert answer["topics"]["b"]["head_seq"] == number
