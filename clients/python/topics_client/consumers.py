"""`client.consumers`: readers whose position the broker stores, for the blocking and the asyncio client."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from typing import TYPE_CHECKING, Literal

from topics_client import consumer_calls
from topics_client.consumer_values import (
    ConsumerChanges,
    ConsumerDeleted,
    ConsumerOptions,
    ConsumerPut,
    ConsumerRead,
    ConsumerReadOptions,
    ConsumerState,
)
from topics_client.consuming import Consuming
from topics_client.values import Record, Tombstone

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from topics_client.asynchronous import AsyncClient
    from topics_client.blocking import Client

Edge = Literal["earliest", "head"]


class Consumers:
    """The consumers of a `Client`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def put(self, topic: str, consumer: str, **options: Unpack[ConsumerOptions]) -> ConsumerPut:
        """Creates a consumer, or replaces the settings of an existing one, whose position stays."""
        return self._client.run(consumer_calls.put(topic, consumer, options))

    def change(self, topic: str, consumer: str, **options: Unpack[ConsumerChanges]) -> ConsumerPut:
        """Changes the given settings; all others stay, and so does its position. Raises ConsumerNotFound."""
        return self._client.run(consumer_calls.change(topic, consumer, options))

    def get(self, topic: str, consumer: str, *, partition: int | None = None) -> ConsumerState:
        """The consumer as it is now. Raises ConsumerNotFound, TopicNotFound."""
        return self._client.run(consumer_calls.get(topic, consumer, partition))

    def list(
        self, topic: str, prefix: str = "", *, page_size: int = 1000, partition: int | None = None
    ) -> Iterator[ConsumerState]:
        """Every consumer of the topic whose name begins with `prefix`; pages are fetched as needed."""
        cursor: str | None = None
        while True:
            page = self._client.run(consumer_calls.page(topic, prefix, page_size, cursor, partition))
            yield from page.consumers
            cursor = page.next_cursor
            if cursor is None:
                return

    def delete(self, topic: str, consumer: str, *, partition: int | None = None) -> ConsumerDeleted:
        """Deletes a consumer and its position; records stay."""
        return self._client.run(consumer_calls.delete(topic, consumer, partition))

    def read(self, topic: str, consumer: str, **options: Unpack[ConsumerReadOptions]) -> ConsumerRead:
        """The next records; the cursor moves after them, so no other reader of this consumer gets them. With
        `checkpoint` False the cursor stays until a `commit`.

        Every read has an attempt_key, a random one unless given: if the answer is lost, the retry gets the same
        records.
        """
        return self._client.run(consumer_calls.read(topic, consumer, options))

    def follow(
        self, topic: str, consumer: str, *, shared: bool = False, **options: Unpack[ConsumerReadOptions]
    ) -> Generator[Record | Tombstone]:
        """Every next record; a loss comes as a Tombstone. Ends when no record has come for `wait_ms` (None, the
        default: never), like `follow` of the embedded engine. With 0 it ends after the stored records.

        The records of an answer (at most `limit`) are committed when you ask for the record after them. After a failure
        before that, they come again. This is for one reader at a time. Several readers need `shared`: then each record
        is returned once, whether its reader finishes it or not.
        """
        consuming = Consuming(topic, consumer, options, shared=shared, now=time.monotonic)
        while not consuming.is_over:
            yield from self._client.run(consuming.call())

    def commit(
        self, topic: str, consumer: str, seq: int, *, partition: int | None = None, epoch: int | None = None
    ) -> ConsumerState:
        """Everything up to and including `seq` is done. Durable on return. `epoch`: the epoch of the topic that `seq`
        belongs to; raises EpochConflict if the topic was created again, restored or salvaged since."""
        return self._client.run(consumer_calls.commit(topic, consumer, seq, partition, epoch))

    def seek(
        self,
        topic: str,
        consumer: str,
        *,
        seq: int | None = None,
        ts: int | None = None,
        to: Edge | None = None,
        partition: int | None = None,
    ) -> ConsumerState:
        """Continue after `seq`, at the first record of the time `ts` (ms since the epoch) or later, or at the beginning
        or end: give one of the three. Durable on return."""
        return self._client.run(consumer_calls.seek(topic, consumer, seq=seq, ts=ts, to=to, partition=partition))


class AsyncConsumers:
    """The consumers of an `AsyncClient`."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def put(self, topic: str, consumer: str, **options: Unpack[ConsumerOptions]) -> ConsumerPut:
        """Creates a consumer, or replaces the settings of an existing one, whose position stays."""
        return await self._client.run(consumer_calls.put(topic, consumer, options))

    async def change(self, topic: str, consumer: str, **options: Unpack[ConsumerChanges]) -> ConsumerPut:
        """Changes the given settings; all others stay, and so does its position. Raises ConsumerNotFound."""
        return await self._client.run(consumer_calls.change(topic, consumer, options))

    async def get(self, topic: str, consumer: str, *, partition: int | None = None) -> ConsumerState:
        """The consumer as it is now. Raises ConsumerNotFound, TopicNotFound."""
        return await self._client.run(consumer_calls.get(topic, consumer, partition))

    async def list(
        self, topic: str, prefix: str = "", *, page_size: int = 1000, partition: int | None = None
    ) -> AsyncIterator[ConsumerState]:
        """Every consumer of the topic whose name begins with `prefix`; pages are fetched as needed."""
        cursor: str | None = None
        while True:
            page = await self._client.run(consumer_calls.page(topic, prefix, page_size, cursor, partition))
            for consumer in page.consumers:
                yield consumer
            cursor = page.next_cursor
            if cursor is None:
                return

    async def delete(self, topic: str, consumer: str, *, partition: int | None = None) -> ConsumerDeleted:
        """Deletes a consumer and its position; records stay."""
        return await self._client.run(consumer_calls.delete(topic, consumer, partition))

    async def read(self, topic: str, consumer: str, **options: Unpack[ConsumerReadOptions]) -> ConsumerRead:
        """The next records; the cursor moves after them, so no other reader of this consumer gets them. With
        `checkpoint` False the cursor stays until a `commit`.

        Every read has an attempt_key, a random one unless given: if the answer is lost, the retry gets the same
        records.
        """
        return await self._client.run(consumer_calls.read(topic, consumer, options))

    async def follow(
        self, topic: str, consumer: str, *, shared: bool = False, **options: Unpack[ConsumerReadOptions]
    ) -> AsyncGenerator[Record | Tombstone]:
        """Every next record; a loss comes as a Tombstone. Ends when no record has come for `wait_ms` (None, the
        default: never), like `follow` of the embedded engine. With 0 it ends after the stored records.

        The records of an answer (at most `limit`) are committed when you ask for the record after them. After a failure
        before that, they come again. This is for one reader at a time. Several readers need `shared`: then each record
        is returned once, whether its reader finishes it or not.
        """
        consuming = Consuming(topic, consumer, options, shared=shared, now=time.monotonic)
        while not consuming.is_over:
            for item in await self._client.run(consuming.call()):
                yield item

    async def commit(
        self, topic: str, consumer: str, seq: int, *, partition: int | None = None, epoch: int | None = None
    ) -> ConsumerState:
        """Everything up to and including `seq` is done. Durable on return. `epoch`: the epoch of the topic that `seq`
        belongs to; raises EpochConflict if the topic was created again, restored or salvaged since."""
        return await self._client.run(consumer_calls.commit(topic, consumer, seq, partition, epoch))

    async def seek(
        self,
        topic: str,
        consumer: str,
        *,
        seq: int | None = None,
        ts: int | None = None,
        to: Edge | None = None,
        partition: int | None = None,
    ) -> ConsumerState:
        """Continue after `seq`, at the first record of the time `ts` (ms since the epoch) or later, or at the beginning
        or end: give one of the three. Durable on return."""
        return await self._client.run(consumer_calls.seek(topic, consumer, seq=seq, ts=ts, to=to, partition=partition))
