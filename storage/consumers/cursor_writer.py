"""One consumer's lock, and its cursor frame in flight, at most one.

All methods belong to the loop.

Source: docs/reference/api.md#consumers, docs/reference/guarantees.md#crash-points-of-a-write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import structlog

from storage.errors import ConsumerNotFound, TopicNotFound
from storage.format import control
from storage.log import encode_controls
from storage.state import OFFSET, Topic
from storage.state.consumers import Awaited, Consumer, remembered

if TYPE_CHECKING:
    from storage.log import Logs

_log = structlog.get_logger("storage")


class Counters:
    """Counts over all consumers of an engine, since its start."""

    __slots__ = ("failed", "persisted", "waits")

    def __init__(self) -> None:
        #: Cursor frames that became durable, and that failed.
        self.persisted = 0
        self.failed = 0
        #: Answers that waited for a cursor frame.
        self.waits = 0


class CursorWriter:
    """Writes the cursor of one consumer. Readers, commits and seeks hold `lock`, one after another."""

    __slots__ = ("_consumer", "_counters", "_logs", "_topic", "lock", "moved_ns", "writing")

    def __init__(self, logs: Logs, counters: Counters, topic: Topic, consumer: Consumer) -> None:
        self._logs = logs
        self._topic = topic
        self._consumer = consumer
        self._counters = counters
        self.lock = asyncio.Lock()
        #: The frame in flight.
        self.writing: asyncio.Future[int | None] | None = None
        #: When the cursor last moved; monotonic.
        self.moved_ns = 0

    def check(self) -> None:
        """Raises TopicNotFound or ConsumerNotFound when the topic or the consumer has been deleted."""
        if self._logs.catalog.by_id.get(self._topic.topic_id) is not self._topic:
            raise TopicNotFound(self._topic.name)
        if self._topic.log.consumers.by_name.get(self._consumer.name) is not self._consumer:
            raise ConsumerNotFound(self._topic.name, self._consumer.name)

    @property
    def alive(self) -> bool:
        known = self._logs.catalog.by_id.get(self._topic.topic_id) is self._topic
        return known and self._topic.log.consumers.by_name.get(self._consumer.name) is self._consumer

    # -- in the background ---------------------------------------------------------------------------------------------

    def begin_write(self) -> bool:
        """Write the confirmed cursor without waiting for it. False when that is impossible now: the caller tries
        again later."""
        logs, log = self._logs, self._topic.log
        shard = logs.shards[log.shard]
        if self.writing is not None or log.topic_id in logs.unannounced_losses or shard.log.failed is not None:
            return False
        if not shard.has_room(1, self._size, internal=True):
            return False
        self._submit(self._consumer.write(), None)
        return True

    @property
    def _size(self) -> int:
        """Size limit of a cursor frame, in bytes."""
        return 256 + len(self._consumer.name)

    def _submit(
        self, seq: int, then: Callable[[], None] | None, behind: Sequence[control.Control] = ()
    ) -> asyncio.Future[int | None]:
        """Submit the cursor frame, followed by the frames of `behind`. Calls `then` when they are durable, even if the
        caller is gone."""
        consumer = self._consumer
        frame = control.Consumer(consumer_id=consumer.consumer_id, name=consumer.name, event="cursor", seq=seq)
        encoded = encode_controls([frame, *behind], self._topic.topic_id, self._logs.now_ms())
        done = self._logs.submit_controls(self._topic.log, encoded, frees=True)
        self.writing = done

        def on_written(done: asyncio.Future[int | None]) -> None:
            self.writing = None
            error = done.exception()
            self._consumer.written(durable=error is None)
            if error is not None:
                self._counters.failed += 1
                _log.warning("consumer_cursor_not_written", consumer=self._consumer.name, error=str(error))
                return
            self._counters.persisted += 1
            if then is not None:
                then()

        done.add_done_callback(on_written)
        return done

    def awaits(self, now_ms: int) -> Awaited | None:
        """The newest answer, if a retry may still ask for it. Then neither idleness nor a stop confirms it."""
        return self._consumer.awaits(now_ms)

    def confirm_silent(self) -> bool:
        """The consumer is idle, so its last answer has arrived. Returns whether the cursor must be written now."""
        self._consumer.confirm()
        return self._consumer.behind

    # -- for those who wait --------------------------------------------------------------------------------------------

    async def wait_written(self) -> None:
        """Wait until no frame is in flight, however the last one ended."""
        while self.writing is not None:
            await asyncio.wait([self.writing])
            await asyncio.sleep(0)  # a completed future may not have run its callbacks yet

    async def persist(self) -> None:
        """Return when a frame is durable: the frame in flight, or else a new one with the confirmed cursor. Raises
        Unavailable."""
        self._counters.waits += 1
        if self.writing is None:
            await self._ready()
            self._submit(self._consumer.write(), None)
        writing = self.writing
        assert writing is not None
        await asyncio.shield(writing)
        await asyncio.sleep(0)

    async def persist_unconfirmed(self, awaited: Awaited) -> None:
        """At a clean stop: record that the newest answer is unconfirmed, so that the next process recognises its
        key."""
        consumer, behind = self._consumer, [remembered(self._consumer, awaited)]
        states = self._topic.log.states
        committed = states.get(OFFSET, consumer.name) if states is not None else None
        if committed is not None and consumer.confirmed_seq == consumer.durable_seq:
            # The metadata committed at this position still belongs to it. A cursor frame alone would clear it.
            behind.append(control.State(kind=OFFSET, key=consumer.name, value=committed))
        await (await self.write_cursor(consumer.confirmed_seq, lambda: None, behind))

    async def write_cursor(
        self, seq: int, then: Callable[[], None], behind: Sequence[control.Control] = ()
    ) -> asyncio.Future[int | None]:
        """Submit a cursor frame with `seq`, and the frames of `behind` after it, as one unit. The future completes when
        they are durable and `then` has been called.

        The caller holds the lock until then. Raises Unavailable; then no frame was sent.
        """
        await self._ready()
        self._consumer.write_other()
        return self._submit(seq, then, behind)

    async def _ready(self) -> None:
        """Wait until the log accepts a frame. Raises StorageFull, WalSaturated, StorageFailed."""
        logs, log = self._logs, self._topic.log
        shard = logs.shards[log.shard]
        while True:
            if shard.log.failed is not None:
                raise shard.log.failure()
            if log.topic_id in logs.unannounced_losses:
                await logs.announce_losses(log)
            elif not shard.has_room(1, self._size, internal=True):
                await shard.wait_room(1, self._size)
            elif self.writing is not None:
                await self.wait_written()
            else:
                return


class CursorWriters:
    """The cursor writers of an engine's consumers."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self.counters = Counters()

    def of(self, topic: Topic, consumer: Consumer) -> CursorWriter:
        """The consumer's cursor writer, created by the first call and deleted with the consumer."""
        cursor_writer = consumer.cursor_writer
        if not isinstance(cursor_writer, CursorWriter):
            cursor_writer = consumer.cursor_writer = CursorWriter(self._logs, self.counters, topic, consumer)
        return cursor_writer
