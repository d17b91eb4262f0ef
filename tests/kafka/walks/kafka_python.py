"""The walk with kafka-python: `python -m tests.kafka.walks.kafka_python host:port`."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from tests.kafka.walks.walk import Record, walk

kafka: Any = importlib.import_module("kafka")
admin: Any = importlib.import_module("kafka.admin")
structs: Any = importlib.import_module("kafka.structs")
#: For 2.0.2 and 3.0 alike. 2.0.2 has no idempotent producer, and OffsetAndMetadata has no epoch; admin calls of all but
#: 3.0 answer with messages instead of plain data.
OLD = kafka.__version__ < "2.1"
PLAIN = kafka.__version__ >= "3"


class Member:
    def __init__(self, address: str, topic: str, group: str | None) -> None:
        self._topic = topic
        times: dict[str, Any] = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 100}
        self._consumer: Any = kafka.KafkaConsumer(
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            metadata_max_age_ms=1000,
            **({} if group is None else times),
        )
        self._active = group is not None
        if group is not None:
            self._consumer.subscribe([topic])

    def poll(self) -> list[tuple[int, int, Record]]:
        if not self._active:
            return []
        return [
            (each.partition, each.offset, (each.key, each.value, [*each.headers], each.timestamp))
            for batch in self._consumer.poll(100).values()
            for each in batch
        ]

    def assigned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def assign(self, partition: int, offset: int) -> None:
        self._consumer.assign([self._place(partition)])
        self.seek(partition, offset)
        self._active = True

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(self._place(partition), offset)

    def commit(self, partition: int, offset: int) -> None:
        place: Any = structs.OffsetAndMetadata(*(offset, "", -1)[: len(structs.OffsetAndMetadata._fields)])
        self._consumer.commit({self._place(partition): place})

    def committed(self, partition: int) -> int | None:
        return self._consumer.committed(self._place(partition))

    def offset_at(self, partition: int, stamp: int) -> int | None:
        place = self._place(partition)
        found = self._consumer.offsets_for_times({place: stamp})[place]
        return None if found is None else found.offset

    def close(self) -> None:
        self._consumer.close()

    def _place(self, partition: int) -> Any:
        return kafka.TopicPartition(self._topic, partition)


class Library:
    idempotent = not OLD

    def __init__(self, address: str) -> None:
        self._address = address
        self._admin: Any = admin.KafkaAdminClient(bootstrap_servers=address)

    def create(self, topic: str, partitions: int, settings: dict[str, str]) -> None:
        self._admin.create_topics([admin.NewTopic(topic, partitions, 1, topic_configs=settings)])

    def grow(self, topic: str, partitions: int) -> None:
        self._admin.create_partitions({topic: partitions if PLAIN else admin.NewPartitions(partitions)})

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])

    def topics(self) -> set[str]:
        return {*self._admin.list_topics()}

    def partitions(self, topic: str) -> int:
        return len(self._admin.describe_topics([topic])[0]["partitions"])

    def setting(self, topic: str, name: str) -> str | None:
        resource = admin.ConfigResource(admin.ConfigResourceType.TOPIC, topic)
        if PLAIN:
            return self._admin.describe_configs([resource], config_filter="all")["topic"][topic][name]["value"]
        [answer] = self._admin.describe_configs([resource])
        [(_, _, _, _, entries)] = answer.resources
        return {entry[0]: entry[1] for entry in entries}[name]

    def produce(self, topic: str, partition: int, records: list[Record], codec: str, idempotent: bool) -> list[int]:
        more: dict[str, Any] = {} if OLD else {"enable_idempotence": idempotent}
        producer: Any = kafka.KafkaProducer(
            bootstrap_servers=self._address,
            acks="all",
            compression_type=None if codec == "none" else codec,
            linger_ms=5,
            **more,
        )
        try:
            sent = [
                producer.send(topic, value, key, partition=partition, headers=headers, timestamp_ms=stamp)
                for key, value, headers, stamp in records
            ]
            return [each.get(20).offset for each in sent]
        finally:
            producer.close()

    def member(self, topic: str, group: str | None) -> Member:
        return Member(self._address, topic, group)


if __name__ == "__main__":
    print("version", kafka.__version__, flush=True)
    walk(Library(sys.argv[1]))
