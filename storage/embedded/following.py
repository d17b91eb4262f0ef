"""Follows a topic batch by batch, for `follow` with and without an event loop.

It peeks, and commits the records that the program has processed, so the cursor passes no record that the program has
not seen. For a strictly_at_once consumer it reads record by record, and counts each before it delivers it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from storage.embedded.batch import RecordBatch
from storage.errors import StorageError
from storage.records import ReadQuery
from storage.state.consumers import Consistency, ConsumerState

#: Limits of a read unless others are given.
MAX_BYTES, MAX_RECORDS = 1 << 20, 1000
#: A follower without a time limit waits this long per read.
_WAIT_MS = 30_000


class ConsumerReads(Protocol):
    """The calls of an engine that a follower makes."""

    async def read_as(
        self, topic: str, consumer: str, query: ReadQuery, *, checkpoint: bool, wait_ms: float = 0
    ) -> RecordBatch: ...

    def with_unreported_losses(self, batch: RecordBatch) -> RecordBatch: ...

    async def ensure_consumer(self, topic: str, consumer: str) -> ConsumerState: ...

    async def commit(self, topic: str, consumer: str, seq: int) -> ConsumerState: ...


class Following:
    """One reader's progress. Belongs to the engine's loop."""

    def __init__(
        self,
        engine: ConsumerReads,
        topic: str,
        consumer: str,
        *,
        wait_ms: float | None,
        max_bytes: int,
        skip_corrupt: bool,
    ) -> None:
        self._engine = engine
        self._topic = topic
        self._consumer = consumer
        self._wait_ms = wait_ms
        self._query = ReadQuery(limit=MAX_RECORDS, max_bytes=max_bytes, skip_corrupt=skip_corrupt)
        self._strict: bool | None = None

    async def next(self) -> RecordBatch | None:
        """The next records, at least one; None when none comes for `wait_ms`."""
        if self._strict is None:
            await self._begin()
        while True:
            batch = await self._engine.read_as(
                self._topic,
                self._consumer,
                self._query,
                checkpoint=bool(self._strict),
                wait_ms=_WAIT_MS if self._wait_ms is None else self._wait_ms,
            )
            moved = batch.next_from_seq > batch.cursor_seq
            if not self._strict and (batch.records or moved):
                batch.announce()
            if self._engine.with_unreported_losses(batch).records:
                return batch
            if moved:
                await self.done(batch)
            elif self._wait_ms is not None:
                return None

    async def _begin(self) -> None:
        """At most persist_every records between two commits: this many may be delivered again after a crash."""
        config = (await self._engine.ensure_consumer(self._topic, self._consumer)).config
        self._strict = config.consistency is Consistency.STRICTLY_AT_ONCE
        limit = 1 if self._strict else min(MAX_RECORDS, config.persist_every)
        self._query = ReadQuery(limit=limit, max_bytes=self._query.max_bytes, skip_corrupt=self._query.skip_corrupt)

    async def done(self, batch: RecordBatch) -> None:
        """The program has processed the whole batch."""
        if not self._strict:
            await self._engine.commit(self._topic, self._consumer, batch.next_from_seq)

    async def leave(self, processed_seq: int) -> None:
        """The program stops after processing records up to this seq (0: none). Records not committed come again."""
        if processed_seq and not self._strict:
            with suppress(StorageError):
                await self._engine.commit(self._topic, self._consumer, processed_seq)
