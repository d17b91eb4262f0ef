"""Reads of consumers that wait; several readers; clients that leave."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from time import monotonic

import httpx
import pytest

from broker.wiring import Broker
from storage import Engine
from tests.http.calls import append, fill, refused
from tests.http.consumer_calls import URL, data, get, post, put
from tests.http.hot_server import HotServer, Wire
from tests.http.test_long_poll import LONG_MS, until

BOTH = pytest.mark.parametrize("consistency", ["at_least_once", "strictly_at_once"])
READ = "/v0/topics/{topic}/consumers/{consumer}/read"


async def parked(broker: Broker, client: httpx.AsyncClient, **fields: object) -> asyncio.Task[httpx.Response]:
    """A read that has begun to wait."""
    before = broker.parking.parked
    waiting = asyncio.create_task(client.post(f"{URL}/read", json={"wait_ms": LONG_MS, **fields}))
    await until(lambda: broker.parking.parked > before or waiting.done())
    return waiting


@BOTH
async def test_a_waiting_read_gets_an_appended_record(
    broker: Broker, client: httpx.AsyncClient, consistency: str
) -> None:
    await fill(client, "t", 1)
    await put(client, start="head", consistency=consistency)
    waiting = await parked(broker, client)
    await append(client, "t", {"data": "new"})
    answer = (await waiting).json()
    assert ([record["data"] for record in answer["records"]], answer["cursor_seq"]) == (["new"], 2)
    assert broker.parking.parked == 0


async def test_a_waiting_read_does_not_wake_for_records_of_the_same_node(
    broker: Broker, client: httpx.AsyncClient
) -> None:
    await client.put("/v0/topics/t")
    await put(client)
    waiting = await parked(broker, client, node="me")
    await append(client, "t", {"data": 1, "node": "me"})
    await append(client, "t", {"data": 2, "node": "you"})
    assert [record["data"] for record in (await waiting).json()["records"]] == [2]


async def test_a_read_without_checkpoint_waits(broker: Broker, client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t")
    await put(client)
    waiting = await parked(broker, client, checkpoint=False)
    await append(client, "t", {"data": 1})
    answer = (await waiting).json()
    assert ([record["data"] for record in answer["records"]], answer["cursor_seq"]) == ([1], 0)


async def test_a_wait_without_records_ends_with_an_empty_answer(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 2)
    await put(client, start="head")
    began = monotonic()
    answer = await post(client, "read", wait_ms=20)
    assert (answer["records"], answer["cursor_seq"], answer["caught_up"]) == ([], 2, True)
    assert monotonic() - began >= 0.02


async def test_seeking_back_ends_a_wait(broker: Broker, client: httpx.AsyncClient) -> None:
    await fill(client, "t", 2)
    await put(client, start="head")
    waiting = await parked(broker, client)
    await post(client, "seek", to="earliest")
    assert [record["data"] for record in (await waiting).json()["records"]] == [1, 2]


async def test_a_waiting_read_does_not_block_other_calls(broker: Broker, client: httpx.AsyncClient) -> None:
    await fill(client, "t", 2)
    await put(client, start="head")
    await put(client, "/v0/topics/t/consumers/other")
    waiting = await parked(broker, client)
    async with asyncio.timeout(5):
        assert await data(client, "/v0/topics/t/consumers/other") == [1, 2]
        assert await data(client) == []
        assert (await post(client, "commit", seq=2))["cursor_seq"] == 2
        assert (await post(client, "seek", seq=1))["cursor_seq"] == 1
        assert [record["data"] for record in (await waiting).json()["records"]] == [2]


@pytest.mark.parametrize("what", ["topic", "consumer"])
async def test_deleting_ends_a_wait(broker: Broker, client: httpx.AsyncClient, what: str) -> None:
    await client.put("/v0/topics/t")
    await put(client)
    waiting = await parked(broker, client)
    await client.delete("/v0/topics/t" if what == "topic" else URL)
    refused(await waiting, 404, f"{what}_not_found")


async def test_a_shutdown_answers_waiting_reads_at_once(
    engine: Engine, broker: Broker, client: httpx.AsyncClient
) -> None:
    await fill(client, "t", 1)
    await put(client, start="head")
    waiting = await parked(broker, client)
    engine.begin_shutdown()
    answer = await waiting
    assert (answer.status_code, answer.json()["records"]) == (200, [])
    assert (await post(client, "read", wait_ms=LONG_MS))["records"] == []


async def test_over_the_bound_a_read_is_refused_rather_than_parked(broker: Broker, client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t")
    await put(client)
    broker.parking.max = 1
    waiting = await parked(broker, client)
    answer = await client.post(f"{URL}/read", json={"wait_ms": LONG_MS})
    assert refused(answer, 429, "throttled")["detail"] == {"limit": "max_parked", "max": 1}
    await append(client, "t", {"data": 1})
    await waiting


@BOTH
async def test_fifty_readers_share_without_doubles(broker: Broker, client: httpx.AsyncClient, consistency: str) -> None:
    await client.put("/v0/topics/t")
    await put(client, consistency=consistency)
    total = 300
    given: list[int] = []

    async def reader(number: int) -> None:
        while len(given) < total:
            answer = await post(client, "read", wait_ms=300, limit=1 + number % 3)
            records = answer["records"]
            given.extend(record["data"] for record in records)
            if records:
                assert answer["next_from_seq"] == records[-1]["$seq"]

    readers = [asyncio.create_task(reader(number)) for number in range(50)]
    await until(lambda: broker.parking.parked == 50)
    for number in range(0, total, 5):
        await append(client, "t", *({"data": number + n} for n in range(5)))
    async with asyncio.timeout(60):
        await asyncio.gather(*readers)
    assert [n for n, times in Counter(given).items() if times > 1] == []
    assert sorted(given) == list(range(total))


@BOTH
async def test_a_record_wakes_only_the_first_waiting_read(
    broker: Broker, client: httpx.AsyncClient, consistency: str
) -> None:
    await client.put("/v0/topics/t")
    await put(client, consistency=consistency)
    waiting = [await parked(broker, client) for _ in range(5)]
    for expected in range(5):
        await append(client, "t", {"data": expected})
        async with asyncio.timeout(5):
            answer = await waiting[expected]  # the one that came first
        assert [record["data"] for record in answer.json()["records"]] == [expected]


# -- clients that leave ------------------------------------------------------------------------------------------------


async def test_a_cancelled_waiting_read_takes_no_record(broker: Broker, client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t")
    await put(client)
    waiting = await parked(broker, client)
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    await until(lambda: broker.parking.parked == 0)
    await append(client, "t", {"data": 1})
    assert (await get(client))["cursor_seq"] == 0
    assert await data(client) == [1]


@pytest.fixture
async def server() -> AsyncIterator[HotServer]:
    async with HotServer() as server:
        yield server


@pytest.fixture
async def http(server: HotServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.server.url, timeout=20) as client:
        yield client


async def asking(server: HotServer, **fields: object) -> Wire:
    """A connection on which a read has been sent."""
    wire = await server.connect()
    body = json.dumps(fields).encode()
    head = f"POST {URL}/read HTTP/1.1\r\nhost: localhost\r\n".encode()
    wire.send(head, b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body), body)
    return wire


async def gone(server: HotServer, count: int = 1) -> None:
    await until(lambda: server.counted("topics_http_clients_gone") == {(READ,): count})


@BOTH
async def test_a_waiting_read_of_a_broken_connection_takes_no_record(
    server: HotServer, http: httpx.AsyncClient, consistency: str
) -> None:
    await http.put("/v0/topics/t")
    await put(http, consistency=consistency)
    wire = await asking(server, wait_ms=LONG_MS)
    await until(lambda: server.broker.parking.parked == 1)
    await wire.close()
    await gone(server)
    assert server.broker.parking.parked == 0
    await append(http, "t", {"data": 1})
    assert (await get(http))["cursor_seq"] == 0
    assert await data(http) == [1]


def ended(server: HotServer) -> float:
    """Reads that were answered, and reads whose client had gone."""
    answered = server.counted("topics_http_requests").get((READ, "POST", "2xx"), 0)
    return answered + server.counted("topics_http_clients_gone").get((READ,), 0)


async def one_more_ended(server: HotServer, before: float) -> None:
    await until(lambda: ended(server) == before + 1)


@BOTH
async def test_a_disconnect_at_the_moment_of_an_append_loses_no_record(
    server: HotServer, http: httpx.AsyncClient, consistency: str
) -> None:
    """In either order: the next reader gets the records that the disconnected reader would have got."""
    await http.put("/v0/topics/t")
    await put(http, consistency=consistency)
    for number in range(20):
        wire = await asking(server, wait_ms=LONG_MS)
        await until(lambda: server.broker.parking.parked == 1)
        before, gone_before = ended(server), server.counted("topics_http_clients_gone").get((READ,), 0)
        writing = asyncio.create_task(append(http, "t", {"data": number}))
        for _ in range(number):
            await asyncio.sleep(0)
        wire.transport.abort()
        await writing
        await one_more_ended(server, before)
        known = server.counted("topics_http_clients_gone").get((READ,), 0) > gone_before
        assert await data(http) == ([number] if known else [])
