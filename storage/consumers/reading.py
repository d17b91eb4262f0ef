"""One read of a consumer: take the lock, read records after the cursor, persist the cursor as required.

With at_least_once, an answer that fits behind the durable cursor waits for nothing. With strictly_once, a cursor
frame is synced first. A reader that finds nothing releases the lock while it waits. Source: api.md §7; storage.md
§9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from storage.consumers.desk import Desk
from storage.reads.reader import Reader
from storage.records.values import ReadQuery, ReadResult
from storage.state.catalog import Topic
from storage.state.consumers.attempts import KEPT_MS, Attempts, Span
from storage.state.consumers.consumer import Awaited, Consumer
from storage.state.consumers.unread import unread
from storage.state.consumers.values import ConsumerRead

if TYPE_CHECKING:
    from storage.log.logs import Logs


class _GoneBack(Exception):
    """The cursor moved back while its readers waited."""


class Reading:
    """One read. `moved` is called with the consumer's writer when the cursor has moved ahead of the log."""

    __slots__ = ("_attempts", "_consumer", "_desk", "_key", "_limit", "_logs", "_moved", "_query", "_reader", "_topic")

    def __init__(
        self,
        logs: Logs,
        reader: Reader,
        desk: Desk,
        topic: Topic,
        consumer: Consumer,
        query: ReadQuery,
        attempts: Attempts,
        moved: Callable[[Desk], None],
        key: str | None,
    ) -> None:
        self._logs = logs
        self._topic = topic
        self._consumer = consumer
        self._reader = reader
        self._desk = desk
        self._query = query
        self._attempts = attempts
        self._moved = moved
        self._key = key

    async def run(
        self, wait_ms: float, turn: Callable[[], Awaitable[None]] | None, *, checkpoint: bool
    ) -> ConsumerRead:
        """Read, or peek, and when there is nothing to give wait so long. `turn`: is waited for before it is read again,
        since many may have waited for the same write.
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
                await asyncio.sleep(0)  # none of the records that one read may examine was for this reader
            else:
                check = partial(self._check, cursor_seq)
                try:
                    if not await self._logs.publisher.wait(self._topic, head, left_ms, check):
                        return self._nothing(answer)
                    if turn is not None:
                        await turn()
                except _GoneBack:
                    pass  # records that were handed out are available again

    def _check(self, cursor_seq: int) -> None:
        """Whether new records are all there is to wait for. Raises what ends the read."""
        self._desk.check()
        if self._consumer.cursor_seq < cursor_seq:
            raise _GoneBack

    async def _peek(self) -> ConsumerRead:
        """What the next read would return. The cursor does not move, and the call waits for nobody."""
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
        desk, consumer = self._desk, self._consumer
        await desk.turn.acquire()
        held = True
        try:
            desk.check()
            if self._key is not None and (again := await self._again(self._key)) is not None:
                return again
            consumer.confirm()
            if consumer.due:
                desk.begin_write()
            limit = self._query.limit
            if not consumer.strict:
                limit = min(limit, consumer.config.persist_every)
            before_seq = consumer.cursor_seq
            found = await self._reader.read(self._topic, self._at(before_seq, limit))
            desk.check()
            count = len(found.records)
            if not consumer.strict or not count:
                while not consumer.has_room(count):
                    await desk.persist()
                    desk.check()
                if found.next_from_seq > consumer.cursor_seq:
                    self._hand_out(found.next_from_seq, count)
                return self._given(before_seq, found)
            done = await desk.place(found.next_from_seq, consumer.reset)
            held = False  # from here on the frame's completion releases the lock
        finally:
            if held:
                desk.turn.release()
        return await self._strictly(before_seq, found, done)

    def _hand_out(self, seq: int, count: int) -> None:
        self._consumer.hand_out(seq, count)
        self._desk.moved_ns = self._logs.clock.monotonic_ns()
        self._moved(self._desk)

    async def _strictly(self, before_seq: int, found: ReadResult, done: asyncio.Future[int | None]) -> ConsumerRead:
        """Return the records when the frame in flight is durable. The lock is released only then, even on
        cancellation."""
        turn = self._desk.turn
        try:
            await asyncio.shield(done)
        except asyncio.CancelledError:
            done.add_done_callback(lambda _: self._left(before_seq, found, done))
            raise
        except BaseException:
            turn.release()
            raise
        try:
            self._desk.check()
            return self._given(before_seq, found)
        finally:
            turn.release()

    def _left(self, before_seq: int, found: ReadResult, done: asyncio.Future[int | None]) -> None:
        """The reader is gone. With an attempt_key it may ask again."""
        try:
            if not done.cancelled() and done.exception() is None and self._desk.alive:
                self._given(before_seq, found).undo()
        finally:
            self._desk.turn.release()

    async def _again(self, key: str) -> ConsumerRead | None:
        """The earlier answer for this key; the cursor does not move. None when there is none, or it is too old."""
        consumer, now_ms = self._consumer, self._logs.monotonic_ms()
        kept = self._attempts.find(consumer.consumer_id, key, now_ms)
        if kept is None:
            return None
        if kept.answer is not None:
            return msgspec.structs.replace(kept.answer, repeated=True)
        span = kept.span
        query = msgspec.structs.replace(self._at(span.from_seq, max(1, span.limit)), max_bytes=span.max_bytes)
        found = await self._reader.read(self._topic, query)
        self._desk.check()
        found.records = [each for each in found.records if each.seq <= span.to_seq]
        found.next_from_seq = min(found.next_from_seq, span.to_seq)
        if not span.limit:
            found.tombstone, found.corrupt_seqs = None, None
        left = unread(self._topic.log, span.to_seq)
        answer = ConsumerRead(result=found, consumer=consumer.name, cursor_seq=span.to_seq, unread=left)
        self._attempts.remember(consumer.consumer_id, key, span, answer, now_ms, kept.until_ms)
        return msgspec.structs.replace(answer, repeated=True)

    def _nothing(self, answer: ConsumerRead) -> ConsumerRead:
        """An empty answer is remembered too: a delayed first try with the same key must not get records."""
        if self._key is not None:
            seq = answer.cursor_seq
            span = Span(seq, seq, 0, self._query.max_bytes)
            self._attempts.remember(self._consumer.consumer_id, self._key, span, answer, self._logs.monotonic_ms())
        return answer

    def _given(self, before_seq: int, found: ReadResult) -> ConsumerRead:
        answer, consumer = self._answer(found), self._consumer
        if _is_empty(found):
            return answer
        if self._key is None:
            answer.take_back = partial(self._take_back, before_seq, answer.cursor_seq, len(found.records))
            return answer
        now_ms = self._logs.monotonic_ms()
        span = Span(before_seq, answer.cursor_seq, max(1, len(found.records)), self._query.max_bytes)
        self._attempts.remember(consumer.consumer_id, self._key, span, answer, now_ms)
        consumer.awaited = Awaited(self._key, span, now_ms + KEPT_MS)
        self._moved(self._desk)
        return answer

    def _take_back(self, before_seq: int, seq: int, records: int) -> None:
        """Move the cursor back and wake the waiting readers."""
        if self._desk.alive and self._consumer.take_back(before_seq, seq, records):
            self._desk.moved_ns = self._logs.clock.monotonic_ns()
            self._moved(self._desk)
            if self._consumer.durable_seq > self._consumer.cursor_seq:
                self._desk.begin_write()  # otherwise a crash would skip these records
            self._logs.publisher.look_again(self._topic.log.topic_id)


def _is_empty(found: ReadResult) -> bool:
    return not found.records and found.tombstone is None and not found.corrupt_seqs
