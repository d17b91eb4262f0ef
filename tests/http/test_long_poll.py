"""Waiting reads wake for their records and for nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

import httpx
import pytest

from broker.wiring import Broker
from storage import Engine
from tests.http.calls import append, fill, read, refused

LONG_MS = 30_000


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until the condition holds. The time limit of the test ends it otherwise."""
    while True:
        if condition():
            return
        await asyncio.sleep(0.001)


async def parked(broker: Broker, client: httpx.AsyncClient, **fields: object) -> asyncio.Task[httpx.Response]:
    """A read that has begun to wait."""
    before = broker.parking.parked
    body = {"wait_ms": LONG_MS, **fields}
    waiting = asyncio.create_task(client.post("/v0/topics/t/diff", json=body))
    await until(lambda: broker.parking.parked > before or waiting.done())
    return waiting


async def test_a_waiting_read_gets_an_appended_record(broker: Broker, client: httpx.AsyncClient) -> None:
    await fill(client, "t", 1)
    waiting = await parked(broker, client, from_seq=1)
    await append(client, "t", {"data": "new"})
    answer = (await waiting).json()
    assert [record["data"] for record in answer["records"]] == ["new"]
    assert answer["caught_up"] is True
    assert broker.parking.parked == 0


async def test_a_waiting_read_does_not_wake_for_filtered_records(broker: Broker, client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t")
    waiting = await parked(broker, client, tag="wanted", node="me")
    await append(client, "t", {"data": 1, "tag": "other"}, {"data": 2, "tag": "wanted", "node": "me"})
    await append(client, "t", {"data": 3, "tag": "wanted"})
    answer = (await waiting).json()
    assert [record["data"] for record in answer["records"]] == [3]
    assert answer["next_from_seq"] == 3


async def test_a_read_with_matching_records_does_not_wait(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 1)
    begin = monotonic()
    assert len((await read(client, "t", wait_ms=LONG_MS))["records"]) == 1
    assert monotonic() - begin < LONG_MS / 1000 / 2


async def test_a_read_with_a_tombstone_does_not_wait(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t")
    assert (await read(client, "t", from_seq=5, wait_ms=LONG_MS))["tombstone"]["reason"] == "recreated"


async def test_a_wait_without_records_ends_with_an_empty_answer(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 2)
    answer = await read(client, "t", from_seq=2, wait_ms=1)
    assert answer["records"] == []
    assert answer["next_from_seq"] == 2
    assert answer["caught_up"] is True


async def test_every_waiting_reader_wakes(broker: Broker, client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t")
    waiting = [await parked(broker, client) for _ in range(10)]
    await append(client, "t", {"data": 1})
    for answer in await asyncio.gather(*waiting):
        assert len(answer.json()["records"]) == 1


async def test_no_write_is_missed_between_reading_and_waiting(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t")
    total = 50
    seen: list[int] = []

    async def follow() -> None:
        position = 0
        while len(seen) < total:
            answer = await read(client, "t", from_seq=position, wait_ms=LONG_MS)
            position = answer["next_from_seq"]
            seen.extend(record["data"] for record in answer["records"])

    following = asyncio.create_task(follow())
    for number in range(total):
        await append(client, "t", {"data": number})
    await following
    assert seen == list(range(total))


async def test_deleting_the_topic_wakes_the_waiting_with_not_found(broker: Broker, client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t")
    waiting = await parked(broker, client)
    await client.delete("/v0/topics/t")
    refused(await waiting, 404, "topic_not_found")


async def test_shutting_down_answers_the_waiting_at_once(
    engine: Engine, broker: Broker, client: httpx.AsyncClient
) -> None:
    await fill(client, "t", 1)
    waiting = await parked(broker, client, from_seq=1)
    engine.begin_shutdown()
    answer = await waiting
    assert answer.status_code == 200
    assert answer.json()["records"] == []
    assert answer.json()["next_from_seq"] == 1


async def test_a_read_during_shutdown_does_not_wait(engine: Engine, client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t")
    engine.begin_shutdown()
    assert (await read(client, "t", wait_ms=LONG_MS))["records"] == []


async def test_over_the_bound_a_read_is_refused_rather_than_parked(broker: Broker, client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t")
    broker.parking.max = 2
    waiting = [await parked(broker, client) for _ in range(2)]
    answer = await client.post("/v0/topics/t/diff", json={"wait_ms": LONG_MS})
    error = refused(answer, 429, "throttled")
    assert error["detail"] == {"limit": "max_parked", "max": 2}
    assert int(answer.headers["retry-after"]) >= 1
    await append(client, "t", {"data": 1})
    await asyncio.gather(*waiting)
    assert (await read(client, "t", from_seq=1, wait_ms=1))["records"] == []


async def test_reads_without_a_wait_are_served_at_the_limit(broker: Broker, client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t")
    broker.parking.max = 1
    waiting = await parked(broker, client)
    assert (await read(client, "t"))["records"] == []
    await append(client, "t", {"data": 1})
    await waiting


async def test_a_waiting_read_of_a_disconnected_client_frees_its_slot(
    broker: Broker, client: httpx.AsyncClient
) -> None:
    await client.put("/v0/topics/t")
    waiting = await parked(broker, client)
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    await until(lambda: broker.parking.parked == 0)


@pytest.mark.parametrize("form", ["body", "query"])
async def test_reads_by_body_and_by_query_can_wait(broker: Broker, client: httpx.AsyncClient, form: str) -> None:
    await client.put("/v0/topics/t")
    if form == "body":
        waiting = await parked(broker, client)
    else:
        waiting = asyncio.create_task(client.get(f"/v0/topics/t/records?wait_ms={LONG_MS}"))
        await until(lambda: broker.parking.parked == 1)
    await append(client, "t", {"data": 1})
    assert len((await waiting).json()["records"]) == 1
