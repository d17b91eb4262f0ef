"""What an engine is to a program that embeds it: named consumers that read on from where they were, and values.

Everything the HTTP API does with consumers is in `engine.consumers`; this is the short way, which makes a consumer the
first time it reads. Source: storage.md §9; api.md §7.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from storage.config import TopicConfig
from storage.core import EngineCore
from storage.embedded import open_engines
from storage.embedded.batch import Record, RecordBatch, records_in, single
from storage.embedded.entries import Entry, Value, records_of
from storage.embedded.following import MAX_BYTES, MAX_RECORDS, Following
from storage.errors import AlreadyLocked, AlreadyOpen, ConsumerNotFound
from storage.records.values import Appended, NewRecord, PlainRecords, ReadQuery, ReadResult, TopicState
from storage.state.consumers.values import Consistency, ConsumerConfig, ConsumerRead, ConsumerState, Start

if TYPE_CHECKING:
    from storage.state.catalog import Topic


class Embedded(EngineCore):
    """The methods of `storage.Engine` that programs use, with those of the engine itself, which are named first."""

    @abstractmethod
    async def append(
        self,
        name: str,
        records: Value | Sequence[NewRecord] | PlainRecords,
        *,
        node: str | None = None,
        idempotency_key: str | None = None,
        idempotency_strict: bool = False,
        create: bool = True,
        config: TopicConfig | None = None,
        expected_seq: int | None = None,
    ) -> Appended: ...

    @abstractmethod
    async def read(self, name: str, query: ReadQuery) -> ReadResult: ...

    @abstractmethod
    def state_of(self, topic: Topic) -> TopicState: ...

    async def start(self) -> None:
        """Lock, recover, open the writers. Raises OpenError, DataError, OSError; then nothing is held."""
        #: By topic_id and consumer: reads that gave no record to tell of losses with.
        self._untold: dict[tuple[int, str], RecordBatch] = {}
        try:
            await super().start()
        except AlreadyLocked:
            if open_engines.is_open(self.path):
                raise AlreadyOpen(self.path) from None
            raise
        open_engines.opened(self)

    async def _release(self) -> None:
        await super()._release()
        open_engines.closed(self)

    def forked(self) -> None:
        """This is a forked process: the engine is the parent's, and its directory must not be held here."""
        self.ready, self.closing = False, True
        self.absorber.copying.forked()
        if self._lock is not None:
            self._lock.release()

    # -- writing -----------------------------------------------------------------------------------------------------

    async def append_batch(
        self,
        topic: str,
        entries: Iterable[Entry],
        *,
        node: str | None = None,
        idempotency_key: str | None = None,
        create: bool = True,
        config: TopicConfig | None = None,
        expected_seq: int | None = None,
    ) -> Appended:
        """Append 1 to 10,000 entries (`Options.max_batch_records`): bytes, `BinaryRecord`s, or whatever is JSON.

        All or nothing, at every instant and over every crash; on return as durable as the topic's class says. What
        was refused (RequestError, StorageFull, WalSaturated) has left no trace; after StorageFailed only the next
        start can tell, and the same idempotency_key settles it.
        """
        return await self.append(
            topic,
            records_of(entries),
            node=node,
            idempotency_key=idempotency_key,
            create=create,
            config=config,
            expected_seq=expected_seq,
        )

    # -- reading -----------------------------------------------------------------------------------------------------

    async def read_next(
        self, topic: str, consumer: str, *, checkpoint: bool = True, wait_ms: float = 0, skip_corrupt: bool = False
    ) -> Record | None:
        """The next record of a consumer, None when there is none (after `wait_ms`).

        A consumer that is not there is made, in front of the oldest record. `checkpoint`: the cursor passes the record;
        False is `peek`. What a crash does to the cursor is the consumer's consistency. `skip_corrupt`: a record that
        fails its check is passed over, logged, and named in `corrupt_seqs` of the next; else it is RecordCorrupt, and
        the cursor stays in front of it. What was lost on the way is in `lost` of the record behind it.

        Raises TopicNotFound, InvalidRequest, RecordCorrupt, Unavailable.
        """
        if not checkpoint:
            return await self.peek(topic, consumer, skip_corrupt=skip_corrupt)
        query = ReadQuery(limit=1, skip_corrupt=skip_corrupt)
        batch = await self.read_as(topic, consumer, query, checkpoint=True, wait_ms=wait_ms)
        return single(self.telling(batch))

    def telling(self, batch: RecordBatch) -> RecordBatch:
        """The batch, telling also what those before it found lost, of which there was no record to tell with."""
        place = self._place(batch.topic, batch.consumer)
        batch.follow(self._untold.pop(place, None))
        if not batch.records and (batch.tombstone is not None or batch.corrupt_seqs):
            self._untold[place] = batch
        return batch

    def _place(self, topic: str, consumer: str) -> tuple[int, str]:
        return self.topic(topic).topic_id, consumer

    async def read_batch(
        self,
        topic: str,
        consumer: str,
        max_bytes: int = MAX_BYTES,
        *,
        max_records: int = MAX_RECORDS,
        checkpoint: bool = True,
        wait_ms: float = 0,
        skip_corrupt: bool = False,
    ) -> RecordBatch:
        """The next records of a consumer: at least one if there is any, `max_bytes` of bodies at most besides.

        As `read_next`; an at_least_once consumer gets no more than its persist_every at a time.
        """
        query = ReadQuery(limit=max_records, max_bytes=max_bytes, skip_corrupt=skip_corrupt)
        return await self.read_as(topic, consumer, query, checkpoint=checkpoint, wait_ms=wait_ms)

    async def peek(self, topic: str, consumer: str, *, skip_corrupt: bool = False) -> Record | None:
        """What `read_next` would give. Moves nothing, makes no consumer, and waits for nobody."""
        query = ReadQuery(limit=1, skip_corrupt=skip_corrupt)
        batch = await self.read_as(topic, consumer, query, checkpoint=False)
        return single(batch)

    async def follow(
        self,
        topic: str,
        consumer: str,
        *,
        wait_ms: float | None = None,
        max_bytes: int = MAX_BYTES,
        skip_corrupt: bool = False,
    ) -> AsyncGenerator[Record]:
        """Records one by one, for a single reader; ends when none comes for `wait_ms` (None: never).

        A record counts as read when the next one is asked for: the one in hand when the loop ends, by `break`, error
        or crash, comes again (`commit` it for it not to). Of a strictly_at_once consumer it counts before it is
        handed out. When the engine closes, the iterator raises ShuttingDown.
        """
        following = self.following(topic, consumer, wait_ms=wait_ms, max_bytes=max_bytes, skip_corrupt=skip_corrupt)
        while (batch := await following.next()) is not None:
            passed = 0
            try:
                for record in records_in(batch):
                    yield record
                    passed = record.seq
            except GeneratorExit:
                await following.leave(passed)
                raise
            await following.done(batch)

    def following(
        self, topic: str, consumer: str, *, wait_ms: float | None, max_bytes: int, skip_corrupt: bool
    ) -> Following:
        """What `follow` works with, batch by batch."""
        return Following(self, topic, consumer, wait_ms=wait_ms, max_bytes=max_bytes, skip_corrupt=skip_corrupt)

    async def read_as(
        self, topic: str, consumer: str, query: ReadQuery, *, checkpoint: bool, wait_ms: float = 0
    ) -> RecordBatch:
        """The next records of a consumer that `query` wants; with `checkpoint`, one that is not there is made."""
        try:
            read = await self.consumers.read(topic, consumer, query, checkpoint=checkpoint, wait_ms=wait_ms)
        except ConsumerNotFound:
            if not checkpoint:
                return await self._read_as_new(topic, consumer, query)
            await self.consumers.put(topic, consumer)
            read = await self.consumers.read(topic, consumer, query, checkpoint=True, wait_ms=wait_ms)
        batch = RecordBatch(read)
        if checkpoint:
            batch.announce()
        return batch

    async def _read_as_new(self, topic: str, consumer: str, query: ReadQuery) -> RecordBatch:
        """What a consumer would get that is made now."""
        state = self.state_of(self.topic(topic))
        before = state.earliest_seq - 1
        result = await self.read(topic, msgspec.structs.replace(query, from_seq=before))
        return RecordBatch(ConsumerRead(result=result, consumer=consumer, cursor_seq=before, unread=state.count))

    # -- consumers ---------------------------------------------------------------------------------------------------

    async def put_consumer(
        self,
        topic: str,
        consumer: str,
        *,
        consistency: Consistency = Consistency.AT_LEAST_ONCE,
        persist_every: int = 1000,
        start: Start = "earliest",
    ) -> ConsumerState:
        """Make a consumer, or replace its settings (then `start` does not count). Durable on return.

        at_least_once: after a crash at most `persist_every` records come again. strictly_at_once: none does, because
        the cursor is synced before a record is handed out. Raises TopicNotFound, InvalidRequest, Unavailable.
        """
        config = ConsumerConfig(consistency=consistency, persist_every=persist_every)
        state, _ = await self.consumers.put(topic, consumer, config, start)
        return state

    async def ensure_consumer(self, topic: str, consumer: str) -> ConsumerState:
        """The consumer as it is; made, in front of the oldest record, if there is none."""
        try:
            return self.consumers.state(topic, consumer)
        except ConsumerNotFound:
            return (await self.consumers.put(topic, consumer))[0]

    def consumer_state(self, topic: str, consumer: str) -> ConsumerState:
        """Raises TopicNotFound, ConsumerNotFound."""
        return self.consumers.state(topic, consumer)

    def list_consumers(self, topic: str, prefix: str = "", after: str = "", limit: int = 100) -> list[ConsumerState]:
        """By name, bytewise; names behind `after`."""
        return self.consumers.list(topic, prefix, after, limit)

    async def delete_consumer(self, topic: str, consumer: str) -> bool:
        """False when there is none. Durable on return."""
        self._untold.pop(self._place(topic, consumer), None)
        return await self.consumers.delete(topic, consumer)

    async def commit(self, topic: str, consumer: str, seq: int) -> ConsumerState:
        """Everything up to `seq`, inclusive, is done with. Durable on return."""
        return await self.consumers.commit(topic, consumer, seq)

    async def seek(
        self,
        topic: str,
        consumer: str,
        *,
        seq: int | None = None,
        ts: int | None = None,
        to: Literal["earliest", "head"] | None = None,
    ) -> ConsumerState:
        """Put the cursor elsewhere; exactly one of `seq` (counts as done), `ts` (ms) and `to`. Durable on return."""
        self._untold.pop(self._place(topic, consumer), None)
        return await self.consumers.seek(topic, consumer, seq=seq, ts=ts, to=to)

    def unread(self, topic: str, consumer: str) -> int:
        """How many live records are behind the cursor; all there are, when there is no such consumer."""
        try:
            return self.consumers.state(topic, consumer).unread
        except ConsumerNotFound:
            return self.state_of(self.topic(topic)).count
