"""The walk with aiokafka: `python -m tests.kafka.walks.aio host:port`. Its loop runs in a separate thread."""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from tests.kafka.walks.walk import PATIENCE_S, Record, walk

T = TypeVar("T")
aiokafka: Any = importlib.import_module("aiokafka")
admin: Any = importlib.import_module("aiokafka.admin")
resources: Any = importlib.import_module("aiokafka.admin.config_resource")
LOOP = asyncio.new_event_loop()


def wait(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, LOOP).result(PATIENCE_S)


class Member:
    def __init__(self, address: str, topic: str, group: str | None) -> None:
        self._topic = topic
        self._group = group
        self._active = group is not None
        self._consumer: Any = wait(self._start(address))

    async def _start(self, address: str) -> Any:
        # Created within the loop, which it requires.
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=address,
            group_id=self._group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
            session_timeout_ms=6000,
            metadata_max_age_ms=1000,
        )
        if self._group is not None:
            consumer.subscribe([self._topic])
        await consumer.start()
        return consumer

    def poll(self) -> list[tuple[int, int, Record]]:
        if not self._active:
            return []
        batches: Any = wait(self._consumer.getmany(timeout_ms=100))
        return [
            (each.partition, each.offset, (each.key, each.value, [*each.headers], each.timestamp))
            for batch in batches.values()
            for each in batch
        ]

    def assigned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def assign(self, partition: int, offset: int) -> None:
        async def assign() -> None:
            self._consumer.assign([self._place(partition)])
            self._consumer.seek(self._place(partition), offset)

        wait(assign())
        self._active = True

    def seek(self, partition: int, offset: int) -> None:
        async def seek() -> None:
            self._consumer.seek(self._place(partition), offset)

        wait(seek())

    def commit(self, partition: int, offset: int) -> None:
        wait(self._consumer.commit({self._place(partition): offset}))

    def committed(self, partition: int) -> int | None:
        return wait(self._consumer.committed(self._place(partition)))

    def offset_at(self, partition: int, stamp: int) -> int | None:
        place = self._place(partition)
        found = wait(self._consumer.offsets_for_times({place: stamp}))[place]
        return None if found is None else found.offset

    def close(self) -> None:
        wait(self._consumer.stop())

    def _place(self, partition: int) -> Any:
        return aiokafka.TopicPartition(self._topic, partition)


class Library:
    idempotent = True

    def __init__(self, address: str) -> None:
        self._address = address
        self._admin: Any = wait(self._administer())

    async def _administer(self) -> Any:
        client = admin.AIOKafkaAdminClient(bootstrap_servers=self._address)
        await client.start()
        return client

    def create(self, topic: str, partitions: int, settings: dict[str, str]) -> None:
        answer = wait(self._admin.create_topics([admin.NewTopic(topic, partitions, 1, topic_configs=settings)]))
        assert [each[1] for each in answer.topic_errors] == [0], answer

    def grow(self, topic: str, partitions: int) -> None:
        wait(self._admin.create_partitions({topic: admin.NewPartitions(partitions)}))

    def delete(self, topic: str) -> None:
        wait(self._admin.delete_topics([topic]))

    def topics(self) -> set[str]:
        return {*wait(self._admin.list_topics())}

    def partitions(self, topic: str) -> int:
        return len(wait(self._admin.describe_topics([topic]))[0]["partitions"])

    def setting(self, topic: str, name: str) -> str | None:
        resource = resources.ConfigResource(resources.ConfigResourceType.TOPIC, topic)
        [answer] = wait(self._admin.describe_configs([resource]))
        return {entry[0]: entry[1] for entry in answer.resources[0][4]}[name]

    def produce(self, topic: str, partition: int, records: list[Record], codec: str, idempotent: bool) -> list[int]:
        return wait(self._produce(topic, partition, records, codec, idempotent))

    async def _produce(
        self, topic: str, partition: int, records: list[Record], codec: str, idempotent: bool
    ) -> list[int]:
        producer: Any = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self._address,
            acks="all",
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=5,
        )
        await producer.start()
        try:
            sent = [
                await producer.send(topic, value, key, partition=partition, headers=headers, timestamp_ms=stamp)
                for key, value, headers, stamp in records
            ]
            return [(await each).offset for each in sent]
        finally:
            await producer.stop()

    def member(self, topic: str, group: str | None) -> Member:
        return Member(self._address, topic, group)


if __name__ == "__main__":
    threading.Thread(target=LOOP.run_forever, daemon=True).start()
    print("version", aiokafka.__version__, flush=True)
    walk(Library(sys.argv[1]))
