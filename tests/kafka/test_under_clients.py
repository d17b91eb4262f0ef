"""Changes to topics that clients are using: created again, records evicted, many partitions, many topics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from storage import TopicConfig
from tests.kafka.groups.kafka_python import KafkaAdminClient
from tests.kafka.groups.server import Server

PATIENCE_S = 30
SOON: dict[str, Any] = {
    "topic.metadata.refresh.interval.ms": 500,
    "topic.metadata.propagation.max.ms": 1000,
    "log_level": 0,
}
#: Errors from a producer's cached metadata when a topic was created or recreated since its last refresh.
STALE = (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "data", kafka_min_session_ms=1000) as server:
        yield server


class Group:
    """Members of one group, polled in turn by the waiting test; `found` by topic and partition, in order of arrival."""

    def __init__(self, server: Server, *topics: str, members: int = 1, **config: Any) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": server.address,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 100,
            **SOON,
            **{key.replace("_", "."): value for key, value in config.items()},
        }
        self.members = [Consumer(settings) for _ in range(members)]
        self.found: dict[tuple[str, int], list[bytes]] = {}
        self.errors: list[KafkaError] = []
        for member in self.members:
            member.subscribe([*topics])

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, (self.assigned(), self.errors[-3:], self.found)
            for member in self.members:
                for message in member.consume(1000, 0.02):
                    error = message.error()
                    if error is not None:
                        self.errors.append(error)
                        continue
                    place = (message.topic() or "", message.partition() or 0)
                    self.found.setdefault(place, []).append(message.value() or b"")

    def assigned(self) -> list[set[tuple[str, int]]]:
        return [{(each.topic, each.partition) for each in member.assignment()} for member in self.members]

    def count(self) -> int:
        return sum(len(each) for each in self.found.values())

    def close(self) -> None:
        for member in self.members:
            member.close()


def produce(producer: Producer, topic: str, *values: bytes, partition: int | None = None) -> list[str]:
    """On return all records are acked or refused. Returns the refusals. Waits until the producer knows the present
    topic."""
    refused: list[str] = []
    deadline = time.monotonic() + PATIENCE_S

    def told(error: KafkaError | None, _: Any) -> None:
        if error is not None:
            refused.append(error.name())

    for value in values:
        more: dict[str, Any] = {} if partition is None else {"partition": partition}
        while True:
            try:
                producer.produce(topic, value, on_delivery=told, **more)
                break
            except KafkaException as error:  # from cached metadata, which is refreshed soon
                if error.args[0].code() not in STALE or time.monotonic() > deadline:
                    raise
                producer.poll(0.02)
    assert producer.flush(PATIENCE_S) == 0
    return refused


def make_anew(admin: AdminClient, topic: str, partitions: int) -> None:
    """A producer that looks at its topics meanwhile creates this one again. Then it is deleted again."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        admin.delete_topics([topic])[topic].result(PATIENCE_S)
        try:
            admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(PATIENCE_S)
            return
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS or time.monotonic() > deadline:
                raise


def test_topic_is_recreated_under_a_group_and_an_idempotent_producer(server: Server) -> None:
    admin = AdminClient({"bootstrap.servers": server.address, **SOON})
    producer = Producer({"bootstrap.servers": server.address, "enable.idempotence": True, **SOON})
    assert produce(producer, "t", *(b"old %d" % number for number in range(20))) == []
    group = Group(server, "t")
    group.until(lambda: group.count() == 20)
    group.members[0].commit(asynchronous=False)
    make_anew(admin, "t", 2)
    group.found.clear()
    assert produce(producer, "t", *(b"new %d" % number for number in range(10)), partition=0) == []
    group.until(lambda: group.count() >= 10)
    assert group.found == {("t", 0): [b"new %d" % number for number in range(10)]}
    group.members[0].commit(asynchronous=False)
    assert group.members[0].committed([TopicPartition("t", 0)], timeout=PATIENCE_S)[0].offset == 10
    assert produce(producer, "t", b"in the second", partition=1) == []
    group.until(lambda: group.count() == 11)
    group.close()


def test_lagging_group_continues_at_the_first_existing_record(server: Server) -> None:
    server.put_topic("t", TopicConfig(cap_records=100))
    producer = Producer({"bootstrap.servers": server.address, **SOON})
    group = Group(server, "t")
    assert produce(producer, "t", *(b"%d" % number for number in range(50))) == []
    group.until(lambda: group.count() == 50)
    group.members[0].commit(asynchronous=False)
    group.close()
    assert produce(producer, "t", *(b"%d" % number for number in range(50, 1000))) == []
    late = Group(server, "t")
    late.until(lambda: bool(late.found) and late.found["t", 0][-1] == b"999")
    values = [int(each) for each in late.found["t", 0]]
    assert values == [*range(900, 1000)]
    late.close()
    strict = Group(server, "t", auto_offset_reset="error")
    strict.until(lambda: bool(strict.errors))
    assert strict.errors[0].code() == KafkaError._AUTO_OFFSET_RESET
    strict.close()


def test_a_group_of_three_shares_64_partitions(server: Server) -> None:
    admin = AdminClient({"bootstrap.servers": server.address, **SOON})
    admin.create_topics([NewTopic("t", 64, 1)])["t"].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": server.address, "enable.idempotence": True, **SOON})
    for number in range(64):
        assert produce(producer, "t", *(b"%d" % value for value in range(20)), partition=number) == []
    group = Group(server, "t", members=3)
    group.until(lambda: sorted(len(each) for each in group.assigned()) == [21, 21, 22])
    group.until(lambda: len(group.found) == 64 and all(len({*each}) == 20 for each in group.found.values()))
    for member in group.members:
        for each in member.commit(asynchronous=False) or ():
            assert each.error is None
    places = [TopicPartition("t", number) for number in range(64)]
    assert [each.offset for each in group.members[0].committed(places, timeout=PATIENCE_S)] == [20] * 64
    group.close()


def make(server: Server, count: int) -> set[str]:
    """Topics with the shortest possible names and one partition, so that requests are as small as possible."""
    names = {f"t{number}" for number in range(count)}

    async def put() -> None:
        await asyncio.gather(*(server.engine.put_topic(name) for name in names))

    server.run(put)
    return names


@pytest.mark.parametrize("count", [10, 100, 1100])
def test_each_client_lists_many_topics(server: Server, count: int) -> None:
    names = make(server, count)
    confluent = AdminClient({"bootstrap.servers": server.address, **SOON})
    assert confluent.list_topics(timeout=PATIENCE_S).topics.keys() == names
    plain: Any = KafkaAdminClient(bootstrap_servers=server.address)
    assert {*plain.list_topics()} == names
    plain.close()

    async def ask() -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=server.address)
        await admin.start()
        try:
            return await admin.list_topics()
        finally:
            await admin.close()

    assert {*asyncio.run(ask())} == names


def test_a_pattern_finds_its_topics_among_many(server: Server) -> None:
    names = make(server, 1100)
    producer = Producer({"bootstrap.servers": server.address, **SOON})
    for number in (7, 1099):
        assert produce(producer, f"t{number}", b"x") == []
    group = Group(server, "^t.*9")
    group.until(lambda: group.count() == 1)
    assert len(group.assigned()[0]) == sum("9" in name for name in names)
    group.close()


def test_group_waits_for_topics_that_do_not_exist(server: Server) -> None:
    names = [f"t{number}" for number in range(20)]
    group = Group(server, *names, allow_auto_create_topics=False)
    group.until(lambda: len({error.code() for error in group.errors}) > 0)
    assert {error.name() for error in group.errors} == {"UNKNOWN_TOPIC_OR_PART"}
    make(server, 20)
    producer = Producer({"bootstrap.servers": server.address, **SOON})
    for name in names:
        assert produce(producer, name, b"x") == []
    group.until(lambda: group.count() == 20)
    group.close()
