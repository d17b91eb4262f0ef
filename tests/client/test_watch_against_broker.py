"""The client's watch against a real broker, which is killed meanwhile."""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing, closing
from os import environ

import pytest

from tests.client.real_broker import RealBroker
from tests.conftest import is_soak
from topics_client import AsyncClient, Client, InvalidRequest, RetryPolicy, TopicNotFound

KILLS = 20 if is_soak(environ) else 3


def test_a_topic_is_watched_from_the_given_seq(client: Client) -> None:
    client.append("t", [{"n": 1}, {"n": 2}])
    with closing(client.watch({"t": 1})) as watch:
        event = next(watch)
        assert (event.kind, event.topic, [record.data for record in event.records]) == ("record", "t", [{"n": 2}])
        assert next(watch).kind == "caught-up"
        client.append("t", [{"n": 3}])
        assert [record.seq for record in next(watch).records] == [3]
        client.delete_topic("t")
        assert next(watch).kind == "topic-deleted"
        with pytest.raises(TopicNotFound):
            next(watch)


def test_a_partition_is_watched_like_a_topic(client: Client) -> None:
    client.put_topic("p", partitions=3)
    client.append("p", [0], partition=0)
    client.append("p", [1, 2], partition=2)
    with closing(client.watch({"p": 1}, partition=2)) as watch:
        event = next(watch)
        assert (event.topic, [record.data for record in event.records]) == ("p", [2])
        client.append("p", [9], partition=0)
        client.append("p", [3], partition=2)
        assert next(watch).kind == "caught-up"
        event = next(watch)
        assert [(record.seq, record.data) for record in event.records] == [(3, 3)]
    with closing(client.watch({"p": 0}, partition=2, last_event_id=event.id)) as watch:
        client.append("p", [4], partition=2)
        assert next(each for each in watch if each.records).records[0].data == 4
    with pytest.raises(InvalidRequest):
        next(client.watch("p", partition=3))


def test_a_watch_resumes_after_the_given_event_id(client: Client) -> None:
    client.append("t", [1, 2, 3])
    with closing(client.watch({"t": 0}, limit=2)) as watch:
        id = next(watch).id
    with closing(client.watch({"t": 0}, last_event_id=id)) as watch:
        assert [record.seq for record in next(watch).records] == [3]


def test_a_tombstone_precedes_the_records_after_the_gap(client: Client) -> None:
    client.put_topic("t", cap_records=1)
    client.append("t", [1, 2, 3])
    with closing(client.watch({"t": 0})) as watch:
        gap = next(watch).tombstone
        assert gap is not None
        assert (gap.gap_from, gap.gap_to, gap.reason, gap.missed_estimate) == (1, 2, "from_seq_too_old", 2)
        assert [record.seq for record in next(watch).records] == [3]


def test_an_absent_topic_cannot_be_watched(client: Client) -> None:
    with pytest.raises(TopicNotFound):
        next(client.watch("no"))
    with pytest.raises(InvalidRequest):
        next(client.watch([]))


@pytest.mark.timeout(120 + 30 * KILLS)
def test_every_record_comes_once_and_in_order_over_kills(broker: RealBroker, client: Client) -> None:
    """Class fsync: every acked record must come, and seqs have no gaps and no duplicates."""
    client.put_topic("t", durable=True)
    acked: list[int] = []
    stop = threading.Event()

    def write() -> None:
        with Client(broker.url, retry=RetryPolicy(total_s=60)) as writer:
            while not stop.is_set():
                acked.append(writer.append("t", [len(acked)]).last_seq)

    async def watch() -> list[int]:
        seen: list[int] = []
        async with AsyncClient(broker.url) as reader, aclosing(reader.watch({"t": 0})) as events:
            async for event in events:
                assert event.kind in ("record", "caught-up"), event
                seen += [record.seq for record in event.records]
                if any(record.data == "end" for record in event.records):
                    return seen
        raise AssertionError("a watch does not end")

    async def kill() -> None:
        for _ in range(KILLS):
            begin = len(acked)
            while len(acked) < begin + 50:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
        begin = len(acked)
        while len(acked) < begin + 50:
            await asyncio.sleep(0.01)
        stop.set()
        await asyncio.to_thread(writing.join)
        async with AsyncClient(broker.url) as last:
            acked.append((await last.append("t", ["end"])).last_seq)

    async def both() -> list[int]:
        async with asyncio.timeout(60 + 30 * KILLS):
            seen, _ = await asyncio.gather(watch(), kill())
            return seen

    writing = threading.Thread(target=write)
    writing.start()
    try:
        seen = asyncio.run(both())
    finally:
        stop.set()
        writing.join()
    assert seen == list(range(1, len(seen) + 1))
    assert set(acked) <= set(seen)
