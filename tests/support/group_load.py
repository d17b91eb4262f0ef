"""An idempotent producer and the members of one group, all with librdkafka, through crashes of their broker.

They record what they were told, in order: values that were acked, and offsets that were committed.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

GROUP = "readers"
#: Reconnect soon after a crash, and do not report what is irrelevant here.
SOON: dict[str, Any] = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}
PATIENCE_S = 60.0
#: A member commits after this many records.
COMMIT_EVERY = 20


class Sent:
    """One idempotent producer that sends values to each topic in turn, until it is stopped."""

    def __init__(self, address: str, topics: Sequence[str], *, pause_s: float) -> None:
        self.acked: list[str] = []
        self.failed: list[str] = []
        self.count = 0
        self._topics = topics
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": address, "enable.idempotence": True, "message.timeout.ms": 120_000, **SOON}
        )
        self.thread = threading.Thread(target=self._run, name="producer")

    def stop(self) -> None:
        """Send no more values. On return all that were sent are acked, or have failed."""
        self._stop.set()
        self.thread.join(PATIENCE_S)
        left = self._producer.flush(PATIENCE_S)
        assert left == 0, f"{left} values are neither acked nor refused"

    def _run(self) -> None:
        while not self._stop.is_set():
            for _ in range(10):
                value = f"v{self.count}"
                topic = self._topics[self.count % len(self._topics)]
                self._producer.produce(topic, value.encode(), key=value.encode(), on_delivery=self._told)
                self.count += 1
            self._producer.poll(self._pause_s)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        value = (message.value() or b"").decode()
        if error is None:
            self.acked.append(value)
        else:
            self.failed.append(f"{value}: {error}")


class Reader:
    """One member: reads, and commits what it has read, until it is stopped."""

    def __init__(self, address: str, topics: Sequence[str], committed: Callable[[str, int, int], None]) -> None:
        self.seen: set[str] = set()
        self.problems: list[str] = []
        self._committed = committed
        self._stop = threading.Event()
        self._unsaid = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 100,
                "partition.assignment.strategy": "roundrobin",
                **SOON,
            }
        )
        self._consumer.subscribe(list(topics))
        self.thread = threading.Thread(target=self._run, name="member")

    def stop(self) -> None:
        self._stop.set()
        self.thread.join(PATIENCE_S)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                message = self._consumer.poll(0.05)
                if message is not None:
                    self._take(message)
                if self._unsaid >= COMMIT_EVERY or (message is None and self._unsaid):
                    self._commit()
        except Exception as error:
            self.problems.append(repr(error))
        finally:
            self._consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self.seen.add((message.value() or b"").decode())
            self._unsaid += 1
        elif error.code() == KafkaError.OFFSET_OUT_OF_RANGE or not error.retriable():
            self.problems.append(str(error))

    def _commit(self) -> None:
        self._unsaid = 0
        try:
            for each in self._consumer.commit(asynchronous=False) or ():
                if each.error is None and each.offset >= 0:  # there is nothing to commit of what it has not read yet
                    self._committed(each.topic, each.partition, each.offset)
        except KafkaException:
            pass  # the generation has ended, or nobody answers: the new owner of the partition reads it again


class GroupLoad:
    """The producer and its readers. `floor`: the greatest committed offset of each partition, as far as they were
    told."""

    def __init__(self, address: str, topics: Sequence[str], *, members: int, pause_s: float = 0.02) -> None:
        self.address = address
        self.topics = topics
        self.floor: Counter[tuple[str, int]] = Counter()
        self.commits = 0
        self._lock = threading.Lock()
        self.sent = Sent(address, topics, pause_s=pause_s)
        self.readers = [Reader(address, topics, self._committed) for _ in range(members)]

    def _committed(self, topic: str, partition: int, offset: int) -> None:
        with self._lock:
            self.commits += 1
            self.floor[topic, partition] = max(self.floor[topic, partition], offset)

    @contextlib.contextmanager
    def running(self) -> Generator[None]:
        self.sent.thread.start()
        for reader in self.readers:
            reader.thread.start()
        try:
            yield
        finally:
            self.sent._stop.set()
            for reader in self.readers:
                reader.stop()

    def wait_commits(self, more: int) -> None:
        """Wait until this many more commits were reported."""
        target, deadline = self.commits + more, time.monotonic() + PATIENCE_S
        while self.commits < target:
            assert time.monotonic() < deadline, (self.commits, target, [each.problems for each in self.readers])
            time.sleep(0.01)

    def wait_read(self) -> None:
        """Wait until the group has read all that was acked."""
        deadline = time.monotonic() + PATIENCE_S
        while missing := set(self.sent.acked) - self.seen():
            assert time.monotonic() < deadline, f"{len(missing)} acked values were never read, {min(missing)} for one"
            time.sleep(0.05)

    def seen(self) -> set[str]:
        return set[str]().union(*(set(reader.seen) for reader in self.readers))


def make_topics(address: str, partitions: Mapping[str, int]) -> None:
    """Make these topics with this many partitions."""
    admin = AdminClient({"bootstrap.servers": address, **SOON})
    made = admin.create_topics([NewTopic(name, count, 1) for name, count in partitions.items()])
    for each in made.values():
        each.result(PATIENCE_S)


def all_values(address: str, places: Sequence[tuple[str, int]]) -> Counter[str]:
    """Everything in these partitions, read outside the group."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "none", "enable.partition.eof": True, **SOON})
    found: Counter[str] = Counter()
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in places])
        ends, deadline = 0, time.monotonic() + PATIENCE_S
        while ends < len(places):
            assert time.monotonic() < deadline
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found[(message.value() or b"").decode()] += 1
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ends += 1
    finally:
        consumer.close()
    return found


def all_there_once(load: GroupLoad, places: Sequence[tuple[str, int]]) -> Counter[str]:
    """What these partitions hold. Checks that it is what was sent and acked, each value once, and that no reader had a
    problem."""
    assert [problem for reader in load.readers for problem in reader.problems] == []
    assert load.sent.failed == []
    assert len(load.sent.acked) == load.sent.count
    found = all_values(load.address, places)
    assert [value for value in load.sent.acked if found[value] != 1] == []
    assert sum(found.values()) == load.sent.count
    return found


def committed(address: str, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """What the group has committed, by partition."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": GROUP, **SOON})
    try:
        asked = [TopicPartition(topic, partition) for topic, partition in places]
        return {(each.topic, each.partition): each.offset for each in consumer.committed(asked, timeout=PATIENCE_S)}
    finally:
        consumer.close()
