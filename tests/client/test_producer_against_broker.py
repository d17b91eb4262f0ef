"""The producer against a real broker: order in partitions, a broker that is killed, bounded memory."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.client.real_broker import PATIENCE_S, RealBroker
from topics_client import (
    AsyncClient,
    AsyncProducer,
    AsyncSent,
    Client,
    InvalidRequest,
    NewRecord,
    Producer,
    Record,
    Sent,
    TopicFull,
)


@pytest.fixture
def own(tmp_path: Path) -> Generator[RealBroker]:
    """A broker for one test alone, which may kill it."""
    broker = RealBroker(tmp_path)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


def stored(client: Client, topic: str, partition: int | None = None) -> list[Record]:
    records: list[Record] = []
    while True:
        page = client.read(topic, records[-1].seq if records else 0, include_tags=True, partition=partition)
        records += page.records
        if page.caught_up:
            return records


def test_the_first_record_creates_its_topic(client: Client) -> None:
    with Producer(client) as producer:
        first = producer.send("new", {"a": 1}, tag="x")
        second = producer.send("new", {"a": 2})
        assert (first.result(30).seq, second.result(30).seq) == (1, 2)
    assert [record.data for record in stored(client, "new")] == [{"a": 1}, {"a": 2}]


def test_records_with_a_tag_are_in_order_in_one_partition(client: Client) -> None:
    client.put_topic("clicks", partitions=3)
    tags = [f"user-{number}" for number in range(7)]
    with Producer(client, batch_records=5, linger_ms=1) as producer:
        handles = [producer.send("clicks", number, tag=tags[number % 7]) for number in range(200)]
        untagged = producer.send("clicks", "any")
        named = producer.send("clicks", "named", partition=2)
    where = [handle.result(0) for handle in handles]
    assert named.result(0).partition == 2
    assert untagged.result(0).seq >= 1
    found = {each: stored(client, "clicks", each) for each in range(3)}
    assert sum(len(records) for records in found.values()) == 202
    for tag in tags:
        [partition] = {
            each.partition for each, number in zip(where, range(200), strict=True) if tags[number % 7] == tag
        }
        mine = [record.data for record in found[partition or 0] if record.tag == tag]
        assert mine == [number for number in range(200) if tags[number % 7] == tag]
    # Each handle names the place of its record.
    for number, each in enumerate(where):
        assert found[each.partition or 0][each.seq - 1].data == number


def test_a_kill_during_sending_loses_and_repeats_no_record(own: RealBroker) -> None:
    with Client(own.url) as client:
        client.put_topic("t", durability="fsync")
        with Producer(client, batch_records=50, linger_ms=1) as producer:
            handles: list[Sent] = []
            for number in range(6000):
                handles.append(producer.send("t", number))
                if number in (2000, 4000):
                    # In the middle: some records are acknowledged, a request is in progress, others wait.
                    handles[number // 2].result(60)
                    own.kill()
                    own.start()
                if number % 500 == 0:
                    time.sleep(0.005)
        assert [handle.result(0).seq for handle in handles] == [*range(1, 6001)]
        assert [record.data for record in stored(client, "t")] == [*range(6000)]


def test_a_full_buffer_blocks_callers_while_the_broker_is_away(own: RealBroker) -> None:
    with Client(own.url) as client, Producer(client, buffer_bytes=64 << 10, batch_bytes=8 << 10) as producer:
        client.put_topic("t")
        producer.send("t", "first").result(30)
        own.kill()
        taken: list[int] = []

        def work() -> None:
            for number in range(1000):
                producer.send("t", "x" * 1000)
                taken.append(number)

        thread = threading.Thread(target=work)
        thread.start()
        until = time.monotonic() + PATIENCE_S
        while len(taken) < 40 and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.2)
        # No more than the buffer has room for, until the broker is back.
        assert 40 <= len(taken) <= 64
        own.start()
        thread.join()
        producer.flush(60)
        assert len(stored(client, "t")) == 1001


def test_a_refused_batch_fails_its_records_with_the_typed_error(client: Client) -> None:
    client.put_topic("full", cap_records=4, discard="reject")
    with Producer(client, linger_ms=3_600_000) as producer:
        good = [producer.send("full", number) for number in range(3)]
        producer.flush(30)
        bad = [producer.send("full", number) for number in range(2)]
        assert [handle.result(30).seq for handle in good] == [1, 2, 3]
        with pytest.raises(TopicFull):
            producer.flush(30)
        assert [type(handle.exception(30)) for handle in bad] == [TopicFull] * 2
        producer.send("full", 1, partition=7)
        beside = producer.send("other", 1)
        with pytest.raises(InvalidRequest):
            producer.flush(30)
        assert beside.result(0).seq == 1


def test_only_records_that_the_broker_refuses_fail(client: Client) -> None:
    long = "x" * 2000
    client.put_topic("small", cap_bytes=1000)
    with Producer(client, linger_ms=3_600_000) as producer:
        tags = [producer.send("t", number, tag=long if number in (0, 7, 19) else "short") for number in range(20)]
        types = [producer.send("u", NewRecord(data=n, tag=5 if n == 3 else "a")) for n in range(6)]  # type: ignore[arg-type]
        sizes = [producer.send("small", long if number == 2 else number) for number in range(5)]
        with pytest.raises(InvalidRequest):
            producer.flush(60)
    for sent, refused, topic in ((tags, {0, 7, 19}, "t"), (types, {3}, "u"), (sizes, {2}, "small")):
        assert {n for n, each in enumerate(sent) if isinstance(each.exception(0), InvalidRequest)} == refused
        good = [number for number in range(len(sent)) if number not in refused]
        assert [sent[number].result(0).seq for number in good] == [*range(1, len(good) + 1)]
        assert [record.data for record in stored(client, topic)] == good


def test_the_asyncio_producer_loses_and_repeats_no_record_over_a_kill(own: RealBroker) -> None:
    async def send() -> list[AsyncSent]:
        handles: list[AsyncSent] = []
        async with (
            AsyncClient(own.url) as client,
            AsyncProducer(client, batch_records=50, linger_ms=1) as producer,
        ):
            for number in range(4000):
                handles.append(await producer.send("t", number, tag="x" * 2000 if number == 500 else None))
                if number == 2000:
                    await handles[1000]
                    await asyncio.to_thread(own.kill)
                    await asyncio.to_thread(own.start)
            assert isinstance(await handles[500].exception(), InvalidRequest)
        return handles

    with Client(own.url) as client:
        client.put_topic("t", durability="fsync", partitions=1)
        handles = asyncio.run(send())
        assert all(handle.done() for handle in handles)
        assert [record.data for record in stored(client, "t")] == [n for n in range(4000) if n != 500]
