"""A subscription that waits for routers delays only messages about its own topics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from storage.routers.forwarder import Forwarder
from tests.http.calls import append
from tests.http.hot_server import HotServer
from tests.http.test_websocket import Socket, socket
from tests.http.test_work_stream import PATIENCE_S
from tests.http.watch_calls import soon

Release = Callable[[], None]


@pytest.fixture
async def server() -> AsyncIterator[HotServer]:
    async with HotServer() as server:
        yield server


@pytest.fixture
async def http(server: HotServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.server.url, timeout=PATIENCE_S) as client:
        yield client


@pytest.fixture
async def ws(server: HotServer) -> AsyncIterator[Socket]:
    async with socket(server) as ws:
        yield ws


@pytest.fixture
async def release(server: HotServer, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> Release:
    """There is a router from a to b, and it stops with two records to copy, until this is called."""
    # Waiting for routers ends only when they have copied: no time limit decides what these tests see.
    monkeypatch.setattr("storage.routers.waiting.MAX_WAIT_S", PATIENCE_S)
    await http.put("/v0/routers/r", json={"source": "a", "dest": "b"})
    with monkeypatch.context() as standing:
        standing.setattr(Forwarder, "kick", lambda self: None)
        await append(http, "a", {"data": 1}, {"data": 2})
        [router] = server.engine.catalog.routes.by_name.values()

    def go_on() -> None:
        server.engine.routers._kick(router)  # pyright: ignore[reportPrivateUsage]

    return go_on


async def waits(server: HotServer) -> None:
    """Wait until a subscription waits for the router."""
    [router] = server.engine.catalog.routes.by_name.values()
    await soon(lambda: len(router.waiters) > 0)


async def test_later_commands_do_not_wait(server: HotServer, ws: Socket, release: Release) -> None:
    await ws.say("subscribe", request_id=1, topic="b", from_seq=0)
    assert (await ws.ask("ping", request_id=2))["request_id"] == 2
    assert (await ws.ask("publish", request_id=3, topic="c", records=[{"data": 1}]))["request_id"] == 3
    assert (await ws.ask("subscribe", request_id=4, topic="c"))["request_id"] == 4
    assert (await ws.next())["type"] == "caught_up"
    assert (await ws.ask("unsubscribe", request_id=5, topic="c"))["request_id"] == 5
    release()
    answer = await ws.next()
    assert (answer["request_id"], answer["topics"]["b"]["head_seq"]) == (1, 2)
    assert [record["data"] for record in (await ws.next())["records"]] == [1, 2]


async def test_commands_on_topics_of_a_waiting_subscription_keep_their_order(
    server: HotServer, ws: Socket, release: Release
) -> None:
    await ws.say("subscribe", request_id=1, topic="b", from_seq=0)
    await ws.say("unsubscribe", request_id=2, topics=["b", "c"])
    await ws.say("subscribe", request_id=3, topics={"a": {}, "b": {"from_seq": 1}})
    await ws.say("unsubscribe", request_id=4, topic="a")
    assert (await ws.ask("ping", request_id=5))["request_id"] == 5
    release()
    answers = [message async for message in four_answers(ws) if "request_id" in message]
    assert [answer["request_id"] for answer in answers] == [1, 2, 3, 4]
    assert answers[1]["topics"] == ["b"]
    assert answers[3]["topics"] == ["a"]
    [subscribed] = server.broker.live.watchers
    assert list(subscribed.subscriptions) == ["b"]


async def four_answers(ws: Socket) -> AsyncIterator[dict[str, object]]:
    """The messages up to the fourth answer."""
    answers = 0
    while answers < 4:
        message = await ws.next()
        answers += "request_id" in message
        yield message


async def test_a_waiting_subscription_gets_records_published_afterwards(
    server: HotServer, ws: Socket, release: Release
) -> None:
    await ws.say("subscribe", request_id=1, topic="b")
    await waits(server)
    ack = await ws.ask("publish", request_id=2, topic="b", records=[{"data": "mine"}])
    assert (ack["type"], ack["first_seq"]) == ("ack", 1)
    release()
    answer = await ws.next()
    assert (answer["request_id"], answer["topics"]["b"]) == (1, {"from_seq": 0, "head_seq": 3, "earliest_seq": 1})
    assert [record["data"] for record in (await ws.next())["records"]] == ["mine", 1, 2]


async def test_a_refused_waiting_subscription_lets_the_next_subscription_start(
    http: httpx.AsyncClient, server: HotServer, ws: Socket, release: Release
) -> None:
    await ws.say("subscribe", request_id=1, topics=["b", "no"])
    await ws.say("subscribe", request_id=2, topic="b", from_seq=1)
    await waits(server)
    release()
    refusal, answer = await ws.next(), await ws.next()
    assert (refusal["request_id"], refusal["code"]) == (1, "topic_not_found")
    assert (answer["request_id"], answer["type"]) == (2, "subscribed")
    assert [record["data"] for record in (await ws.next())["records"]] == [2]


async def test_waiting_subscriptions_end_with_their_connection(server: HotServer, release: Release) -> None:
    async with socket(server) as ws:
        for number in range(5):
            await ws.say("subscribe", request_id=number, topic="b")
        await waits(server)
    [router] = server.engine.catalog.routes.by_name.values()
    await soon(lambda: not router.waiters and not server.broker.live.watchers)
    assert list(server.broker.live.feeds()) == []
