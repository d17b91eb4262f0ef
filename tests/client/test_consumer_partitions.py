"""A consumer of all partitions of a topic, against a real broker: pushed records, kills, no streams, new partitions."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.client.real_broker import PATIENCE_S, RealBroker
from topics_client import (
    AsyncClient,
    AsyncConsumer,
    Attempt,
    Client,
    Consumer,
    DeadlineExceeded,
    NewRecord,
    Record,
    Tombstone,
    TopicNotFound,
    iteration,
    within,
)


@pytest.fixture
def own(tmp_path: Path) -> Generator[RealBroker]:
    broker = RealBroker(tmp_path)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


def found(consumer: Consumer, count: int) -> list[tuple[int, Any]]:
    return [(item.partition, item.data) for item in islice(consumer, count) if isinstance(item, Record)]


class Counted:
    """Counts the calls of a client by route."""

    def __init__(self) -> None:
        self.routes: Counter[str] = Counter()

    @contextmanager
    def __call__(self, attempt: Attempt) -> Generator[None]:
        self.routes[f"{attempt.method} {attempt.route}"] += 1
        yield


READ = "POST /v0/topics/{topic}/diff"


def test_stored_records_are_read_and_new_records_are_pushed(broker: RealBroker, client: Client) -> None:
    client.put_topic("t", partitions=3)
    for partition in range(3):
        client.append("t", [f"{partition} a", f"{partition} b"], partition=partition)
    counted = Counted()
    with Client(broker.url, instrument=counted) as own, Consumer(own, "t", "c") as consumer:
        assert sorted(found(consumer, 6)) == [(p, f"{p} {x}") for p in range(3) for x in "ab"]
        client.append("t", ["2 c"], partition=2)
        assert found(consumer, 1) == [(2, "2 c")]
        reads = counted.routes[READ]
        for number in range(20):
            client.append("t", [number], partition=number % 3)
            assert found(consumer, 1) == [(number % 3, number)]
        # They came over the stream.
        assert counted.routes[READ] == reads
        consumer.commit()
        assert consumer.committed == {0: 9, 1: 9, 2: 9}
    for partition, cursor in enumerate((9, 9, 9)):
        assert client.consumers.get("t", "c", partition=partition).cursor_seq == cursor
    client.append("t", ["later"], partition=1)
    with Consumer(client, "t", "c") as consumer:
        assert found(consumer, 1) == [(1, "later")]


def test_a_kill_of_the_broker_loses_and_repeats_no_record(own: RealBroker) -> None:
    with Client(own.url) as client:
        client.put_topic("t", partitions=2, durability="fsync")
        client.append("t", [0], partition=0)
        with Consumer(client, "t", "c", commit="record") as consumer:
            assert found(consumer, 1) == [(0, 0)]
            for number in range(1, 9):
                client.append("t", [number], partition=number % 2)
                if number % 4 == 2:
                    own.kill()
                    own.start()
                assert found(consumer, 1) == [(number % 2, number)]
            consumer.commit()
        assert [client.consumers.get("t", "c", partition=each).cursor_seq for each in (0, 1)] == [5, 4]


def test_long_polls_are_used_if_streams_are_blocked(broker: RealBroker, client: Client) -> None:
    class NoStreams(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            if request.url.path.startswith("/v0/watch"):
                return httpx.Response(405, json={"error": {"code": "method_not_allowed", "message": "not here"}})
            return super().handle_request(request)

    client.put_topic("t", partitions=2)
    client.append("t", ["a"], partition=0)
    with Client(broker.url, http=NoStreams()) as own, Consumer(own, "t", "c") as consumer:
        assert found(consumer, 1) == [(0, "a")]
        for number in range(4):
            client.append("t", [number], partition=number % 2)
            assert found(consumer, 1) == [(number % 2, number)]


def test_long_polls_are_used_for_options_that_streams_lack(client: Client) -> None:
    client.put_topic("t", partitions=2)
    with Consumer(client, "t", "c", tag="x") as consumer:
        for number in range(4):
            client.append("t", [-1], partition=number % 2)
            client.append("t", [NewRecord(data=number, tag="x")], partition=number % 2)
            assert found(consumer, 1) == [(number % 2, number)]


def test_a_deadline_ends_the_wait_of_a_reader_that_had_a_stream(client: Client) -> None:
    client.put_topic("t", partitions=2)
    with Consumer(client, "t", "c") as consumer:
        client.append("t", [1], partition=1)
        assert found(consumer, 1) == [(1, 1)]
        client.append("t", [2], partition=0)
        assert found(consumer, 1) == [(0, 2)]
        began = time.monotonic()
        with within(0.5), pytest.raises(DeadlineExceeded):
            next(consumer)
        # A heartbeat of the stream comes after 15 s.
        assert time.monotonic() - began < 10
        client.append("t", [3], partition=1)
        assert found(consumer, 1) == [(1, 3)]


def test_added_partitions_are_read(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iteration, "PARTITIONS_S", 0.0)
    client.put_topic("t", partitions=1)
    with Consumer(client, "t", "c", start="head") as consumer:
        client.append("t", ["old"])
        assert found(consumer, 1) == [(0, "old")]
        client.put_topic("t", partitions=3)
        client.append("t", ["new"], partition=2)
        client.append("t", ["again"], partition=0)
        assert sorted(found(consumer, 2)) == [(0, "again"), (2, "new")]


def test_a_recreated_topic_is_reported_for_each_partition(client: Client) -> None:
    client.put_topic("t", partitions=3)
    client.append("t", ["old"], partition=2)
    with Consumer(client, "t", "c") as consumer:
        assert found(consumer, 1) == [(2, "old")]
        client.append("t", ["old"], partition=1)
        assert found(consumer, 1) == [(1, "old")]
        client.delete_topic("t")
        client.put_topic("t", partitions=2)
        client.append("t", ["new"], partition=1)
        told = [next(consumer), next(consumer), next(consumer)]
        gone = [item for item in told if isinstance(item, Tombstone)]
        assert {(item.partition, item.reason) for item in gone} == {(0, "recreated"), (1, "recreated")}
        assert [(item.partition, item.data) for item in told if isinstance(item, Record)] == [(1, "new")]
        consumer.commit()
        client.delete_topic("t")
        with pytest.raises(TopicNotFound):
            next(consumer)


def test_the_asyncio_consumer_reads_all_partitions_and_survives_a_cancelled_read(
    broker: RealBroker, client: Client
) -> None:
    client.put_topic("t", partitions=2)

    async def read() -> list[tuple[int, Any]]:
        got: list[tuple[int, Any]] = []
        async with AsyncClient(broker.url) as own, AsyncConsumer(own, "t", "c") as consumer:
            for number in range(6):
                if number % 2:
                    # Cancelled while it waits: the stream ends, and nothing else does.
                    with pytest.raises(asyncio.TimeoutError):
                        await asyncio.wait_for(anext(consumer), 0.2)
                await own.append("t", [number], partition=number % 2)
                item = await asyncio.wait_for(anext(consumer), PATIENCE_S)
                assert isinstance(item, Record)
                got.append((item.partition, item.data))
            await consumer.commit()
            assert consumer.committed == {0: 3, 1: 3}
        return got

    assert asyncio.run(read()) == [(number % 2, number) for number in range(6)]
