"""One read of a consumer: take the lock, read records after the cursor, persist the cursor as required.

With at_least_once, an answer that fits after the durable cursor waits for nothing. With strictly_once, a cursor
frame is synced first. A reader that finds nothing releases the lock while it waits.

Source: docs/reference/api.md#consumers, docs/reference/guarantees.md#consumers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from storage.consumers.cursor_writer import CursorWriter
from storage.reads import Reader
from storage.records import ReadQuery, ReadResult
from storage.state import Topic
from storage.state.consumers import ANSWER_TTL_MS, AnswerRange, Attempts, Awaited, Consumer, ConsumerRead
from storage.state.consumers.progress import unread

if TYPE_CHECKING:
    from storage.log import Logs


class _GoneBack(Exception):
    """The cursor moved back while its readers waited."""


class ConsumerReading:
    """One read. It calls `moved` with the consumer's writer when the cursor has moved ahead of the log."""

    __slots__ = (
        "_attempts",
        "_consumer",
        "_cursor_writer",
        "_key",
        "_limit",
        "_logs",
        "_moved",
        "_query",
        "_reader",
        "_topic",
    )

    def __init__(
        self,
        logs: Logs,
        reader: Reader,
        cursor_writer: CursorWriter,
        topic: Topic,
        consumer: Consumer,
        query: ReadQuery,
        attempts: Attempts,
        moved: Callable[[CursorWriter], None],
        key: str | None,
    ) -> None:
        self._logs = logs
        self._topic = topic
        self._consumer = consumer
        self._reader = reader
        self._cursor_writer = cursor_writer
        self._query = query
        self._attempts = attempts
        self._moved = moved
        self._key = key

    async def run(
        self, wait_ms: float, acquire: Callable[[], Awaitable[None]] | None, *, checkpoint: bool
    ) -> ConsumerRead:
        """Read or peek. When there are no records, wait for some and read again, after waiting for `lock`, since many
        readers may have waited for the same write.
        """
        clock = self._logs.clock
        until_ns = clock.monotonic_ns() + wait_ms * 1e6 if wait_ms > 0 else 0.0
        while True:
            answer = await self._once() if checkpoint else await self._peek()
            if answer.repeated or not _is_empty(answer.result):
                return answer
            found, cursor_seq = answer.result, self._consumer.cursor_seq
            left_ms = (until_ns - clock.monotonic_ns()) / 1e6
            if not wait_ms or left_ms <= 0:
                return self._nothing(answer)
            head = self._topic.log.head
            if checkpoint and found.next_from_seq < head:
                await asyncio.sleep(0)  # filters excluded all records that one read may examine
            else:
                check = partial(self._check, cursor_seq)
                try:
                    if not await self._logs.publisher.wait(self._topic, head, left_ms, check):
                        return self._nothing(answer)
                    if acquire is not None:
                        await acquire()
                except _GoneBack:
                    pass  # records delivered before are available again

    def _check(self, cursor_seq: int) -> None:
        """Whether only new records can satisfy the read. Raises the error that ends the read."""
        self._cursor_writer.check()
        if self._consumer.cursor_seq < cursor_seq:
            raise _GoneBack

    async def _peek(self) -> ConsumerRead:
        """The answer that the next read would get. The cursor does not move, and the call does not wait."""
        consumer = self._consumer
        found = await self._reader.read(self._topic, self._at(consumer.cursor_seq, self._query.limit))
        return self._answer(found)

    def _at(self, cursor_seq: int, limit: int) -> ReadQuery:
        query = self._query
        return ReadQuery(
            from_seq=cursor_seq,
            limit=limit,
            max_bytes=query.max_bytes,
            exclude_nodes=query.exclude_nodes,
            tag=query.tag,
            skip_corrupt=query.skip_corrupt,
        )

    def _answer(self, found: ReadResult) -> ConsumerRead:
        consumer = self._consumer
        cursor_seq = consumer.cursor_seq
        return ConsumerRead(
            result=found, consumer=consumer.name, cursor_seq=cursor_seq, unread=unread(self._topic.log, cursor_seq)
        )

    # -- one turn ------------------------------------------------------------------------------------------------------

    async def _once(self) -> ConsumerRead:
        cursor_writer, consumer = self._cursor_writer, self._consumer
        await cursor_writer.lock.acquire()
        held = True
        try:
            cursor_writer.check()
            if self._key is not None and (again := await self._again(self._key)) is not None:
                return again
            consumer.confirm()
            if consumer.due:
                cursor_writer.begin_write()
            limit = self._query.limit
            if not consumer.strict:
                limit = min(limit, consumer.config.persist_every)
            before_seq = consumer.cursor_seq
            found = await self._reader.read(self._topic, self._at(before_seq, limit))
            cursor_writer.check()
            count = len(found.records)
            if not consumer.strict or not count:
                while not consumer.has_room(count):
                    await cursor_writer.persist()
                    cursor_writer.check()
                if found.next_from_seq > consumer.cursor_seq:
                    self._record_delivery(found.next_from_seq, count)
                return self._given(before_seq, found)
            done = await cursor_writer.write_cursor(found.next_from_seq, consumer.reset)
            held = False  # from here on the frame's completion releases the lock
        finally:
            if held:
                cursor_writer.lock.release()
        return await self._strictly(before_seq, found, done)

    def _record_delivery(self, seq: int, count: int) -> None:
        self._consumer.deliver(seq, count)
        self._cursor_writer.moved_ns = self._logs.clock.monotonic_ns()
        self._moved(self._cursor_writer)

    async def _strictly(self, before_seq: int, found: ReadResult, done: asyncio.Future[int | None]) -> ConsumerRead:
        """Return the records when the frame in flight is durable. The lock is released only then, even on
        cancellation."""
        lock = self._cursor_writer.lock
        try:
            await asyncio.shield(done)
        except asyncio.CancelledError:
            done.add_done_callback(lambda _: self._on_reader_gone(before_seq, found, done))
            raise
        except BaseException:
            lock.release()
            raise
        try:
            self._cursor_writer.check()
            return self._given(before_seq, found)
        finally:
            lock.release()

    def _on_reader_gone(self, before_seq: int, found: ReadResult, done: asyncio.Future[int | None]) -> None:
        """The reader is gone. If it has an attempt_key, it may ask again."""
        try:
            if not done.cancelled() and done.exception() is None and self._cursor_writer.alive:
                self._given(before_seq, found).undo()
        finally:
            self._cursor_writer.lock.release()

    async def _again(self, key: str) -> ConsumerRead | None:
        """The earlier answer for this key; the cursor does not move. None when there is no answer, or it is too old."""
        consumer, now_ms = self._consumer, self._logs.monotonic_ms()
        remembered_answer = self._attempts.find(consumer.consumer_id, key, now_ms)
        if remembered_answer is None:
            return None
        if remembered_answer.answer is not None:
            return msgspec.structs.replace(remembered_answer.answer, repeated=True)
        range_ = remembered_answer.range
        query = msgspec.structs.replace(self._at(range_.from_seq, max(1, range_.limit)), max_bytes=range_.max_bytes)
        found = await self._reader.read(self._topic, query)
        self._cursor_writer.check()
        found.records = [each for each in found.records if each.seq <= range_.to_seq]
        found.next_from_seq = min(found.next_from_seq, range_.to_seq)
        if not range_.limit:
            found.tombstone, found.corrupt_seqs = None, None
        unread_count = unread(self._topic.log, range_.to_seq)
        answer = ConsumerRead(result=found, consumer=consumer.name, cursor_seq=range_.to_seq, unread=unread_count)
        self._attempts.remember(consumer.consumer_id, key, range_, answer, now_ms, remembered_answer.until_ms)
        return msgspec.structs.replace(answer, repeated=True)

    def _nothing(self, answer: ConsumerRead) -> ConsumerRead:
        """Remember an empty answer too: a first try with the same key that arrives late must not get records."""
        if self._key is not None:
            seq = answer.cursor_seq
            range_ = AnswerRange(seq, seq, 0, self._query.max_bytes)
            self._attempts.remember(self._consumer.consumer_id, self._key, range_, answer, self._logs.monotonic_ms())
        return answer

    def _given(self, before_seq: int, found: ReadResult) -> ConsumerRead:
        answer, consumer = self._answer(found), self._consumer
        if _is_empty(found):
            return answer
        if self._key is None:
            answer.take_back = partial(self._take_back, before_seq, answer.cursor_seq, len(found.records))
            return answer
        now_ms = self._logs.monotonic_ms()
        range_ = AnswerRange(before_seq, answer.cursor_seq, max(1, len(found.records)), self._query.max_bytes)
        self._attempts.remember(consumer.consumer_id, self._key, range_, answer, now_ms)
        consumer.awaited = Awaited(self._key, range_, now_ms + ANSWER_TTL_MS)
        self._moved(self._cursor_writer)
        return answer

    def _take_back(self, before_seq: int, seq: int, records: int) -> None:
        """Move the cursor back and wake the waiting readers."""
        if self._cursor_writer.alive and self._consumer.take_back(before_seq, seq, records):
            self._cursor_writer.moved_ns = self._logs.clock.monotonic_ns()
            self._moved(self._cursor_writer)
            if self._consumer.durable_seq > self._consumer.cursor_seq:
                self._cursor_writer.begin_write()  # otherwise a crash would skip these records
            self._logs.publisher.look_again(self._topic.log.topic_id)


def _is_empty(found: ReadResult) -> bool:
    return not found.records and found.tombstone is None and not found.corrupt_seqs
