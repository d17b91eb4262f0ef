"""The walk with confluent-kafka: `python -m tests.kafka.walks.confluent host:port`."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from tests.kafka.walks.walk import Record, walk

confluent_kafka: Any = importlib.import_module("confluent_kafka")
admin: Any = importlib.import_module("confluent_kafka.admin")


class Member:
    def __init__(self, address: str, topic: str, group: str | None) -> None:
        self._topic = topic
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group or "none",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 100,
                "session.timeout.ms": 6000,
            }
        )
        if group is not None:
            self._consumer.subscribe([topic])

    def poll(self) -> list[tuple[int, int, Record]]:
        found: list[tuple[int, int, Record]] = []
        for each in self._consumer.consume(1000, 0.1):
            message: Any = each
            assert message.error() is None, message.error()
            record: Record = (message.key(), message.value(), message.headers() or [], message.timestamp()[1])
            found.append((message.partition(), message.offset(), record))
        return found

    def assigned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def assign(self, partition: int, offset: int) -> None:
        self._consumer.assign([confluent_kafka.TopicPartition(self._topic, partition, offset)])

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(confluent_kafka.TopicPartition(self._topic, partition, offset))

    def commit(self, partition: int, offset: int) -> None:
        place = confluent_kafka.TopicPartition(self._topic, partition, offset)
        for each in self._consumer.commit(offsets=[place], asynchronous=False) or ():
            assert each.error is None, each.error

    def committed(self, partition: int) -> int | None:
        [place] = self._consumer.committed([confluent_kafka.TopicPartition(self._topic, partition)], timeout=20)
        assert place.error is None, place.error
        return place.offset if place.offset >= 0 else None

    def offset_at(self, partition: int, stamp: int) -> int | None:
        [place] = self._consumer.offsets_for_times(
            [confluent_kafka.TopicPartition(self._topic, partition, stamp)], timeout=20
        )
        assert place.error is None, place.error
        return place.offset if place.offset >= 0 else None

    def close(self) -> None:
        self._consumer.close()


class Library:
    idempotent = True

    def __init__(self, address: str) -> None:
        self._address = address
        self._admin = admin.AdminClient({"bootstrap.servers": address})

    def create(self, topic: str, partitions: int, settings: dict[str, str]) -> None:
        self._admin.create_topics([admin.NewTopic(topic, partitions, 1, config=settings)])[topic].result(20)

    def grow(self, topic: str, partitions: int) -> None:
        self._admin.create_partitions([admin.NewPartitions(topic, partitions)])[topic].result(20)

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(20)

    def topics(self) -> set[str]:
        return {*self._admin.list_topics(timeout=20).topics}

    def partitions(self, topic: str) -> int:
        return len(self._admin.list_topics(topic, timeout=20).topics[topic].partitions)

    def setting(self, topic: str, name: str) -> str | None:
        resource = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, topic)
        return self._admin.describe_configs([resource])[resource].result(20)[name].value

    def produce(self, topic: str, partition: int, records: list[Record], codec: str, idempotent: bool) -> list[int]:
        offsets: list[int] = []

        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            offsets.append(message.offset())

        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self._address, "compression.type": codec, "enable.idempotence": idempotent}
        )
        for key, value, headers, stamp in records:
            more: Any = {"key": key, "value": value, "headers": headers, "timestamp": stamp, "on_delivery": delivered}
            producer.produce(topic, partition=partition, **more)
        assert producer.flush(20) == 0
        return offsets

    def member(self, topic: str, group: str | None) -> Member:
        return Member(self._address, topic, group)


if __name__ == "__main__":
    print("version", confluent_kafka.__version__, flush=True)
    walk(Library(sys.argv[1]))
