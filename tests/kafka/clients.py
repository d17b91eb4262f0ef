"""Unmodified clients that each produce records and read a partition, all in the same way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias

import aiokafka
import confluent_kafka
import kafka

#: key, value, headers, create time in ms.
Sent: TypeAlias = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PATIENCE_S = 120


class Confluent:
    """confluent-kafka, which is librdkafka."""

    @staticmethod
    async def produce(address: str, topic: str, records: Sequence[Sent], codec: str, **more: Any) -> list[int]:
        """The offsets that the records got."""

        def run() -> list[int]:
            offsets: list[int] = []

            def delivered(error: Any, message: Any) -> None:
                assert error is None, error
                offsets.append(message.offset())

            settings = {"bootstrap.servers": address, "compression.type": codec, "linger.ms": 5, **more}
            producer = confluent_kafka.Producer(settings)
            for key, value, headers, stamp in records:
                producer.produce(
                    topic, value=value, key=key, headers=headers, timestamp=stamp, partition=0, on_delivery=delivered
                )
            assert producer.flush(PATIENCE_S) == 0
            return offsets

        return await asyncio.to_thread(run)

    @staticmethod
    async def read(address: str, topic: str, count: int, offset: int = 0) -> list[tuple[int, Sent]]:
        """Offsets and records, as many as `count`."""

        def run() -> list[tuple[int, Sent]]:
            consumer = confluent_kafka.Consumer(
                {"bootstrap.servers": address, "group.id": "none", "enable.auto.commit": False}
            )
            try:
                consumer.assign([confluent_kafka.TopicPartition(topic, 0, offset)])
                found: list[tuple[int, Sent]] = []
                while len(found) < count:
                    messages = consumer.consume(count - len(found), PATIENCE_S)
                    assert messages, f"{len(found)} of {count}"
                    for message in messages:
                        assert message.error() is None, message.error()
                        sent = (message.key(), message.value(), message.headers() or [], message.timestamp()[1])
                        found.append((message.offset(), sent))
                return found
            finally:
                consumer.close()

        return await asyncio.to_thread(run)


class Aio:
    """aiokafka."""

    @staticmethod
    async def produce(address: str, topic: str, records: Sequence[Sent], codec: str, **more: Any) -> list[int]:
        kind = None if codec == "none" else codec
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=address, compression_type=kind, acks="all", linger_ms=5, **more
        )
        await producer.start()
        try:
            sent = [
                await producer.send(topic, value, key, partition=0, timestamp_ms=stamp, headers=headers)
                for key, value, headers, stamp in records
            ]
            return [(await each).offset for each in sent]
        finally:
            await producer.stop()

    @staticmethod
    async def read(address: str, topic: str, count: int, offset: int = 0) -> list[tuple[int, Sent]]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=address, enable_auto_commit=False)
        await consumer.start()
        try:
            place = aiokafka.TopicPartition(topic, 0)
            consumer.assign([place])
            consumer.seek(place, offset)
            found: list[tuple[int, Sent]] = []
            async with asyncio.timeout(PATIENCE_S):
                while len(found) < count:
                    one: Any = await consumer.getone()
                    found.append((one.offset, (one.key, one.value, [*one.headers], one.timestamp)))
            return found
        finally:
            await consumer.stop()


class KafkaPython:
    """kafka-python."""

    @staticmethod
    async def produce(address: str, topic: str, records: Sequence[Sent], codec: str, **more: Any) -> list[int]:
        def run() -> list[int]:
            kind = None if codec == "none" else codec
            producer: Any = kafka.KafkaProducer(
                bootstrap_servers=address, compression_type=kind, acks="all", linger_ms=5, **more
            )
            try:
                sent = [
                    producer.send(topic, value, key, partition=0, timestamp_ms=stamp, headers=headers)
                    for key, value, headers, stamp in records
                ]
                return [each.get(PATIENCE_S).offset for each in sent]
            finally:
                producer.close()

        return await asyncio.to_thread(run)

    @staticmethod
    async def read(address: str, topic: str, count: int, offset: int = 0) -> list[tuple[int, Sent]]:
        def run() -> list[tuple[int, Sent]]:
            consumer: Any = kafka.KafkaConsumer(
                bootstrap_servers=address, enable_auto_commit=False, consumer_timeout_ms=PATIENCE_S * 1000
            )
            try:
                place = kafka.TopicPartition(topic, 0)
                consumer.assign([place])
                consumer.seek(place, offset)
                found: list[tuple[int, Sent]] = []
                for one in consumer:
                    found.append((one.offset, (one.key, one.value, [*one.headers], one.timestamp)))
                    if len(found) == count:
                        break
                return found
            finally:
                consumer.close()

        return await asyncio.to_thread(run)


CLIENTS: dict[str, Any] = {"confluent": Confluent, "aiokafka": Aio, "kafka-python": KafkaPython}
