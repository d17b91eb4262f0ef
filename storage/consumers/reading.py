"""A read of a consumer: its turn, the records behind the cursor, and the cursor as durable as it has to be.

At least once, an answer whose records fit behind the durable cursor waits for nothing. Strictly at once, a frame is
synced first. Who finds nothing gives the turn away while waiting. Source: api.md §7; storage.md §9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from storage.catalog import Topic
from storage.consumers.attempts import Attempts
from storage.consumers.consumer import Consumer
from storage.consumers.desk import Desk, desk_of
from storage.consumers.unread import unread
from storage.consumers.values import ConsumerRead
from storage.read import Reader
from storage.records import ReadQuery, ReadResult

if TYPE_CHECKING:
    from storage.core import EngineCore


class Reading:
    """One read. `moved` is told the desk whose cursor has moved without the log's knowing."""

    __slots__ = ("_attempts", "_consumer", "_desk", "_engine", "_key", "_limit", "_moved", "_query", "_topic")

    def __init__(
        self,
        engine: EngineCore,
        topic: Topic,
        consumer: Consumer,
        query: ReadQuery,
        attempts: Attempts,
        moved: Callable[[Desk], None],
        key: str | None,
    ) -> None:
        self._engine = engine
        self._topic = topic
        self._consumer = consumer
        self._desk = desk_of(engine, topic, consumer)
        self._query = query
        self._attempts = attempts
        self._moved = moved
        self._key = key

    async def run(self, wait_ms: float, *, checkpoint: bool) -> ConsumerRead:
        """Read, or peek, and when there is nothing to give wait so long."""
        loop = self._engine.loop
        until = loop.time() + wait_ms / 1000 if wait_ms > 0 else 0.0
        while True:
            answer = await self._once() if checkpoint else await self._peek()
            found = answer.result
            if not wait_ms or found.records or found.tombstone is not None or found.corrupt_seqs:
                return answer
            left_ms = (until - loop.time()) * 1000
            if left_ms <= 0:
                return answer
            head = self._topic.log.head
            if found.next_from_seq >= head or not checkpoint:
                await self._engine.publisher.wait(self._topic, head, left_ms, self._desk.check)
            else:
                await asyncio.sleep(0)  # as much as one read looks at was not for this reader

    async def _peek(self) -> ConsumerRead:
        """What the next read would give, with nothing moved and nobody waited for."""
        consumer = self._consumer
        found = await Reader(self._engine).read(self._topic, self._at(consumer.cursor_seq, self._query.limit))
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
        turn = desk.turn
        await turn.acquire()
        held = True
        try:
            desk.check()
            if self._key is not None:
                now_ms = self._engine.monotonic_ms()
                again = self._attempts.find(consumer.consumer_id, self._key, now_ms)
                if again is not None:
                    return ConsumerRead(
                        result=again.result,
                        consumer=again.consumer,
                        cursor_seq=again.cursor_seq,
                        unread=again.unread,
                        repeated=True,
                    )
            consumer.confirm()
            if consumer.due:
                desk.begin_write()
            limit = self._query.limit
            if not consumer.strict:
                limit = min(limit, consumer.config.persist_every)
            found = await Reader(self._engine).read(self._topic, self._at(consumer.cursor_seq, limit))
            desk.check()
            count = len(found.records)
            if count and consumer.strict:
                done = await desk.place(found.next_from_seq, consumer.reset)
                try:
                    await asyncio.shield(done)
                except asyncio.CancelledError:
                    held = False  # nobody is served before it is known where the cursor stands

                    def left(_: object) -> None:
                        self._remember(found, done)
                        turn.release()

                    done.add_done_callback(left)
                    raise
                desk.check()
            elif found.next_from_seq > consumer.cursor_seq or count:
                while not consumer.has_room(count):
                    await desk.persist()
                    desk.check()
                self._hand_out(found.next_from_seq, count)
            return self._given(found)
        finally:
            if held:
                turn.release()

    def _hand_out(self, seq: int, count: int) -> None:
        self._consumer.hand_out(seq, count)
        self._desk.moved_ns = self._engine.clock.monotonic_ns()
        self._moved(self._desk)

    def _given(self, found: ReadResult) -> ConsumerRead:
        answer = self._answer(found)
        if self._key is not None and (found.records or found.tombstone is not None):
            self._attempts.remember(self._consumer.consumer_id, self._key, answer, self._engine.monotonic_ms())
        return answer

    def _remember(self, found: ReadResult, done: asyncio.Future[int | None]) -> None:
        """Its reader is gone, and may ask again."""
        if not done.cancelled() and done.exception() is None and self._desk.alive:
            self._given(found)
