"""Share groups with librdkafka's consumer: it takes jobs of queues, and reports the result of each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from threading import Barrier
from time import monotonic
from typing import Any

import msgspec
import pytest
from confluent_kafka import AcknowledgeType, Consumer, KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient

from storage import NewRecord, ReadQuery, TopicConfig, TopicType
from tests.kafka.clients import Confluent, Sent
from tests.kafka.server import KafkaServer

PATIENCE_S = 15.0
NOW = 1_700_000_000_000
#: As jobs: with JSON and bytes, with keys that can be tags and others.
PRODUCED: list[Sent] = [
    (b"key", b' {"a": 1}', [("text", b"x"), ("raw", b"\xff"), ("none", None)], NOW),
    (None, b'{"a":2}', [], NOW + 1),
    (b"\xff\x00", b'{"a":3}', [("h", b"\x00")], NOW + 2),
    (b"gone", None, [], NOW + 3),
    (b"", b"\x00binary", [("h", b"")], NOW + 4),
]
ORIGIN = ("from", "deliveries", "src_seq", "reason")
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def queue(**settings: Any) -> TopicConfig:
    return TopicConfig(type=TopicType.QUEUE, **settings)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[KafkaServer]:
    async with KafkaServer(tmp_path) as server:
        await server.engine.put_topic("q", queue())
        yield server


async def add(server: KafkaServer, count: int, name: str = "q") -> None:
    await server.engine.append(name, [NewRecord(data=msgspec.Raw(b'{"n":%d}' % n), tag=f"k{n}") for n in range(count)])


def produce(address: str, values: Iterable[bytes], name: str = "q") -> None:
    producer = Producer({"bootstrap.servers": address})
    for value in values:
        producer.produce(name, value=value, key=b"\xff" + value, headers=[("h", b"\0")])
    assert producer.flush(PATIENCE_S) == 0


class Worker:
    """A share consumer that acknowledges each job itself."""

    def __init__(self, address: str, group: str = "g", *names: str, **more: Any) -> None:
        settings = {"bootstrap.servers": address, "group.id": group, "share.acknowledgement.mode": "explicit"}
        self.consumer = ShareConsumer(settings | more)
        self.consumer.subscribe([*(names or ("q",))])

    def poll(self) -> list[Any]:
        """Jobs as they arrive: some, or the time is over."""
        end = monotonic() + PATIENCE_S
        while monotonic() < end:
            found = [*self.consumer.poll(0.5)]
            if found:
                return found
        raise AssertionError("nothing has come")

    def work(self, count: int, verdict: Callable[[Any], AcknowledgeType] = lambda _: ACCEPT) -> list[Any]:
        """Take and acknowledge this many records."""
        found: list[Any] = []
        while len(found) < count:
            for message in self.poll():
                assert message.error() is None, message.error()
                self.consumer.acknowledge(message, verdict(message))
                found.append(message)
            self.settled()
        return found

    def settled(self) -> None:
        for place, error in self.consumer.commit_sync(PATIENCE_S).items():
            assert error is None, (place, error)

    def close(self) -> None:
        self.consumer.close()


def working(address: str, count: int, verdict: Callable[[Any], AcknowledgeType] = lambda _: ACCEPT) -> list[Any]:
    worker = Worker(address)
    found = worker.work(count, verdict)
    worker.close()
    return found


async def test_accepted_records_of_all_writers_are_acked(server: KafkaServer) -> None:
    await add(server, 2)
    await asyncio.to_thread(produce, server.address, [b"\0binary", b'{"n":2}'])
    found = await asyncio.to_thread(working, server.address, 4)
    shown = sorted((m.offset(), m.key(), m.value(), m.headers(), m.delivery_count()) for m in found)
    assert shown == [
        (0, b"k0", b'{"n":0}', None, 1),
        (1, b"k1", b'{"n":1}', None, 1),
        (2, b"\xff\0binary", b"\0binary", [("h", b"\0")], 1),
        (3, b'\xff{"n":2}', b'{"n":2}', [("h", b"\0")], 1),
    ]
    figures = server.engine.queues.figures("q")
    assert (figures.ready, figures.in_flight) == (0, 0)
    assert server.engine.queues.stats.acked == 4


async def test_the_next_poll_accepts_unacknowledged_records(server: KafkaServer) -> None:
    await add(server, 3)

    def run() -> int:
        consumer = ShareConsumer({"bootstrap.servers": server.address, "group.id": "g"})
        consumer.subscribe(["q"])
        found, end = 0, monotonic() + PATIENCE_S
        while found < 3 and monotonic() < end:
            found += len([*consumer.poll(0.5)])
        consumer.poll(0.1)
        consumer.close()
        return found

    assert await asyncio.to_thread(run) == 3
    assert server.engine.queues.figures("q").ready == server.engine.queues.figures("q").in_flight == 0


async def test_released_records_are_delivered_again(server: KafkaServer) -> None:
    await add(server, 3)

    def run() -> list[tuple[int, int]]:
        worker = Worker(server.address)
        found = worker.work(4, lambda m: RELEASE if m.offset() == 1 and m.delivery_count() == 1 else ACCEPT)
        worker.close()
        return [(m.offset(), m.delivery_count()) for m in found]

    assert sorted(await asyncio.to_thread(run)) == [(0, 1), (1, 1), (1, 2), (2, 1)]
    assert server.engine.queues.figures("q").ready == 0


@pytest.mark.parametrize("dead_letter", ["dead", None])
async def test_rejected_records_become_dead_letters_or_are_deleted(
    server: KafkaServer, dead_letter: str | None
) -> None:
    await server.engine.put_topic("q", queue(dead_letter=dead_letter, max_deliveries=5))
    await add(server, 3)
    await asyncio.to_thread(working, server.address, 3, lambda m: REJECT if m.offset() == 1 else ACCEPT)
    async with asyncio.timeout(PATIENCE_S):
        while server.engine.queues.figures("q").dead_pending:
            await asyncio.sleep(0.01)
    figures = server.engine.queues.figures("q")
    assert (figures.ready, figures.in_flight, server.engine.queues.stats.rejected) == (0, 0, 1)
    assert figures.dead_lettered == (dead_letter is not None)
    if dead_letter is not None:
        found = (await server.engine.read("dead", ReadQuery(from_seq=0))).records
        assert [record.tag for record in found] == [b"k1"]
        assert b"rejected by its share group" in found[0].body


async def test_dead_letters_and_redriven_jobs_keep_their_bytes(server: KafkaServer) -> None:
    await server.engine.put_topic("q", queue(dead_letter="dead"))
    assert len(await Confluent.produce(server.address, "q", PRODUCED, "none")) == len(PRODUCED)
    await asyncio.to_thread(working, server.address, len(PRODUCED), lambda _: REJECT)
    dead = [each for _, each in await Confluent.read(server.address, "dead", len(PRODUCED))]
    by_seq = {int(dict(headers)["$dead_letter_src_seq"] or b""): each for each in dead for headers in [each[2]]}
    for seq, sent in enumerate(PRODUCED, 1):
        key, value, headers, stamp = by_seq[seq]
        own = len(sent[2])
        assert (key, value, headers[:own], stamp) == sent
        assert [name for name, _ in headers[own:]] == [f"$dead_letter_{name}" for name in ORIGIN]
    assert (await server.engine.queues.redrive("q")).moved == len(PRODUCED)
    again = await asyncio.to_thread(working, server.address, len(PRODUCED))
    found = [(m.key(), m.value(), m.headers() or [], m.timestamp()[1]) for m in again]
    assert sorted(found, key=repr) == sorted(PRODUCED, key=repr)


async def test_two_consumers_share_without_doubles(server: KafkaServer) -> None:
    count = 300
    await add(server, count)
    done: list[set[int]] = [set(), set()]
    few: dict[str, Any] = {"max.poll.records": 10}
    #: Neither takes more than its first jobs before the other has some too. One alone would soon take all of them.
    both_have_some = Barrier(2)

    def run(mine: int) -> None:
        worker = Worker(server.address, "g", "q", **few)
        waited = False
        while sum(map(len, done)) < count:
            message: Any
            for message in worker.consumer.poll(0.2):
                assert message.error() is None
                assert message.offset() not in done[0] | done[1]
                worker.consumer.acknowledge(message, ACCEPT)
                done[mine].add(message.offset())
            if done[mine] and not waited:
                both_have_some.wait(PATIENCE_S)
                waited = True
            worker.settled()
        worker.close()

    await asyncio.gather(asyncio.to_thread(run, 0), asyncio.to_thread(run, 1))
    assert done[0] | done[1] == {*range(count)}
    assert not done[0] & done[1]
    assert done[0]
    assert done[1]
    assert server.engine.queues.stats.redelivered == 0


async def test_waiting_consumer_gets_new_records(server: KafkaServer) -> None:
    worker = Worker(server.address)
    coming = asyncio.create_task(asyncio.to_thread(worker.work, 1))
    await asyncio.sleep(0.5)
    await add(server, 1)
    assert [m.offset() for m in await coming] == [0]
    await asyncio.to_thread(worker.close)


async def test_closing_consumer_releases_unacknowledged_records(server: KafkaServer) -> None:
    await server.engine.put_topic("q", queue(dead_letter="dead", max_deliveries=1))
    await add(server, 2)

    def run() -> None:
        worker = Worker(server.address)
        assert len(worker.poll()) >= 1
        worker.close()

    await asyncio.to_thread(run)
    async with asyncio.timeout(PATIENCE_S):
        while server.engine.queues.figures("q").ready < 2:
            await asyncio.sleep(0.01)
    assert server.broker.kafka_shares.sessions == 0
    claimed = await server.engine.queues.claim("q", "n", max=5)
    assert [job.record.seq for job in claimed.jobs] == [1, 2]  # and does not become a dead letter because of that


def refused(address: str, group: str, name: str) -> str:
    """The error that a consumer without records gets."""
    worker = Worker(address, group, name)
    end = monotonic() + PATIENCE_S
    try:
        while monotonic() < end:
            for message in worker.consumer.poll(0.5):
                assert message.error() is not None
                return str(message.error())
    except KafkaException as error:
        return str(error)
    finally:
        worker.close()
    raise AssertionError("it was told nothing")


async def test_a_queue_belongs_to_its_share_group_until_the_group_is_deleted(server: KafkaServer) -> None:
    await add(server, 1)
    await asyncio.to_thread(working, server.address, 1)
    told = await asyncio.to_thread(refused, server.address, "other", "q")
    assert "q belongs to the share group g" in told
    admin: Any = AdminClient({"bootstrap.servers": server.address})
    deleting: Any = await asyncio.to_thread(admin.delete_consumer_groups, ["g"])
    await asyncio.to_thread(deleting["g"].result, PATIENCE_S)
    await add(server, 1)
    worker = Worker(server.address, "other")
    assert len(await asyncio.to_thread(worker.work, 1)) == 1
    await asyncio.to_thread(worker.close)


async def test_a_log_is_no_queue(server: KafkaServer) -> None:
    await add(server, 1, "log")
    told = await asyncio.to_thread(refused, server.address, "g", "log")
    assert "log is a log; share groups need queues" in told


async def test_classic_consumers_read_a_queue_beside_its_share_group(server: KafkaServer) -> None:
    await add(server, 2)

    def run() -> list[int]:
        settings = {"bootstrap.servers": server.address, "group.id": "none", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings | {"enable.auto.commit": False})
        consumer.subscribe(["q"])
        found: list[Any] = consumer.consume(2, PATIENCE_S)
        consumer.close()
        return [message.offset() for message in found]

    assert await asyncio.to_thread(run) == [0, 1]
    assert len(await asyncio.to_thread(working, server.address, 2)) == 2
