"""The consumers of an engine: all operations, and the worker that persists cursors.

All methods belong to the loop that started the engine.

Source: docs/reference/api.md#consumers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import structlog

from storage.consumers.admin import ConsumerAdmin, committed_metadata
from storage.consumers.checks import check_attempt_key, check_consumer_config, check_consumer_name, check_kind
from storage.consumers.consumer_read import ConsumerReading
from storage.consumers.cursor_writer import CursorWriter, CursorWriters
from storage.errors import ConsumerNotFound, EpochConflict, InvalidRequest, NotReady, ShuttingDown, StorageError
from storage.reads import Reader
from storage.records import ConsumerFigures, ReadQuery, TopicConfig
from storage.state import Topic
from storage.state.consumers import Attempts, Consumer, ConsumerConfig, ConsumerRead, ConsumerState, Start, resume
from storage.state.consumers.offset import CommittedOffset
from storage.state.consumers.progress import unread

if TYPE_CHECKING:
    from storage.log import Logs

_log = structlog.get_logger("storage")

Result = TypeVar("Result")

#: The interval of the search for idle consumers, and the time after which a consumer is idle.
TICK_S, IDLE_NS = 0.25, 1_000_000_000
_ALL = ReadQuery()


class Consumers:
    """All methods raise TopicNotFound, and InvalidRequest for a name that does not match the pattern. Those that
    need a consumer raise ConsumerNotFound. Ephemeral topics and queues have no consumers: the methods raise
    InvalidRequest(field="topic") for an ephemeral topic and TopicIncompatible for a queue.
    """

    def __init__(self, logs: Logs, reader: Reader) -> None:
        self._logs = logs
        self._reader = reader
        self._cursor_writers = CursorWriters(logs)
        self._admin = ConsumerAdmin(logs, self._cursor_writers)
        self.counters = self._cursor_writers.counters
        self.attempts = Attempts(logs.options.consumer_answers_bytes)
        #: Consumers whose cursor may be ahead of the log.
        self._moved: set[CursorWriter] = set()

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """After recovery: restore the answers that were unconfirmed at the last clean stop."""
        now_ms = self._logs.monotonic_ms()
        for topic in self._logs.catalog.topics.values():
            for consumer in topic.log.consumers.by_name.values() if topic.log.states is not None else ():
                resume(consumer, topic.log.states, topic.log.head, now_ms)
                if (awaited := consumer.awaited) is not None:
                    self.attempts.remember(consumer.consumer_id, awaited.key, awaited.range, None, now_ms)
                    self._moved.add(self._cursor_writers.of(topic, consumer))
        self._logs.runtime.supervisor.start("consumers", TICK_S, self._tick)

    async def stop(self) -> None:
        """At a clean stop: write every cursor to the log."""
        if not self._logs.ready:
            return
        pending = [self._persist_all(cursor_writer, self._logs.monotonic_ms()) for cursor_writer in self._moved]
        self._moved.clear()
        for outcome in await asyncio.gather(*pending, return_exceptions=True):
            if isinstance(outcome, StorageError):
                _log.warning("consumer_cursor_not_written", error=str(outcome))
            elif isinstance(outcome, BaseException):
                raise outcome

    @staticmethod
    async def _persist_all(cursor_writer: CursorWriter, now_ms: int) -> None:
        async with cursor_writer.lock:
            await cursor_writer.wait_written()
            if not cursor_writer.alive:
                return
            if (awaited := cursor_writer.awaits(now_ms)) is not None:
                await cursor_writer.persist_unconfirmed(awaited)
            elif cursor_writer.confirm_silent():
                await cursor_writer.persist()

    async def _tick(self) -> None:
        """Write the cursors of consumers that have not been read for a second, and forget expired answers."""
        logs = self._logs
        silent_ns, now_ms = logs.clock.monotonic_ns() - IDLE_NS, logs.monotonic_ms()
        for cursor_writer in list(self._moved):
            if not cursor_writer.alive:
                self._moved.discard(cursor_writer)
            elif (
                cursor_writer.awaits(now_ms) is None
                and cursor_writer.moved_ns <= silent_ns
                and cursor_writer.writing is None
            ):
                if not cursor_writer.confirm_silent():
                    self._moved.discard(cursor_writer)
                else:
                    cursor_writer.begin_write()  # if its shard has no room now or has stopped: others may have
        self.attempts.expire(now_ms)

    # -- operations ----------------------------------------------------------------------------------------------------

    async def put(
        self, topic: str, consumer: str, config: ConsumerConfig | None = None, start: Start = "earliest"
    ) -> tuple[ConsumerState, bool]:
        """Create the consumer, or replace its config; True when created. Durable on return. Cancelling the call does
        not stop it.

        `start` counts only for a new consumer. A seq beyond the head raises InvalidRequest(field="start"). Also
        raises InvalidRequest(field="persist_every"), LimitReached, Unavailable.
        """
        self._logs.check_open()
        config = config or ConsumerConfig()
        check_consumer_name(consumer)
        check_consumer_config(config)
        made, created = await _whole(self._admin.put(topic, consumer, config, start))
        return self._state_of(self._logs.topic(topic), made), created

    async def change(
        self, topic: str, consumer: str, changed: Callable[[ConsumerConfig], ConsumerConfig]
    ) -> ConsumerState:
        """Replace the consumer's config by the result of `changed`, which gets the current one. Durable on return.
        Cancelling the call does not stop it. Raises ConsumerNotFound, and the errors of `changed` and `put`."""
        self._logs.check_open()
        check_consumer_name(consumer)

        def checked(config: ConsumerConfig) -> ConsumerConfig:
            config = changed(config)
            check_consumer_config(config)
            return config

        return self._state_of(*await _whole(self._admin.alter(topic, consumer, checked)))

    def state(self, topic: str, consumer: str) -> ConsumerState:
        """The consumer as it is now. Raises ConsumerNotFound."""
        return self._state_of(*self._find(topic, consumer))

    def list(self, topic: str, prefix: str = "", after: str = "", limit: int = 100) -> list[ConsumerState]:
        """The consumers of a topic in bytewise order of their names, beginning after `after`."""
        found = self._logs.topic(topic)
        check_kind(found)
        return [self._state_of(found, each) for each in islice(found.log.consumers.named(prefix, after), limit)]

    async def delete(self, topic: str, consumer: str) -> bool:
        """Delete the consumer; False when it does not exist. Durable on return. Cancelling the call does not stop
        it."""
        self._logs.check_open()
        check_consumer_name(consumer)
        check_kind(self._logs.topic(topic))
        return await _whole(self._admin.delete(topic, consumer))

    async def read(
        self,
        topic: str,
        consumer: str,
        query: ReadQuery | None = None,
        *,
        checkpoint: bool = True,
        wait_ms: float = 0,
        acquire: Callable[[], Awaitable[None]] | None = None,
        attempt_key: str | None = None,
    ) -> ConsumerRead:
        """Read records after the cursor, and the losses before them; the cursor moves after the records returned.

        Of `query`, only limit, max_bytes, exclude_nodes, tag and skip_corrupt count. `checkpoint` False is a peek:
        the cursor does not move, and the call waits for no other reader. When there are no records, the call waits up
        to `wait_ms`; it awaits `acquire` before it looks again. `attempt_key`: a retry with the same key within 60 s
        gets the same answer again.

        Raises ConsumerNotFound; RecordCorrupt (the cursor stays before it); Unavailable when the cursor could not be
        made durable as required: then no record was returned, and the cursor has not moved.
        """
        logs = self._logs
        if not logs.ready:
            raise ShuttingDown() if logs.closing else NotReady()
        if checkpoint:
            logs.check_open()
        check_attempt_key(attempt_key)
        found, known = self._find(topic, consumer)
        key = attempt_key if checkpoint else None
        cursor_writer = self._cursor_writers.of(found, known)
        reading = ConsumerReading(
            logs, self._reader, cursor_writer, found, known, query or _ALL, self.attempts, self._moved.add, key
        )
        return await reading.run(wait_ms, acquire, checkpoint=checkpoint)

    async def commit(self, topic: str, consumer: str, seq: int, epoch: int | None = None) -> ConsumerState:
        """Mark everything up to and including `seq` as done. Durable on return. Never moves a cursor back.

        `epoch`: the epoch of the topic when `seq` was read. Raises EpochConflict if the topic has another one now;
        InvalidRequest(field="seq") for a seq that is negative or beyond the head; ConsumerNotFound, Unavailable.
        Cancelling the call does not stop it.
        """
        self._logs.check_open()
        if epoch is not None and (present := self._logs.topic(topic).log.epoch) != epoch:
            raise EpochConflict(topic, epoch, present)
        found, known = self._find(topic, consumer)
        return await _whole(self._state_after(self._admin.commit(found, known, seq), found, known))

    async def commit_offset(
        self,
        topic: str,
        consumer: str,
        seq: int,
        metadata: bytes | None = None,
        config: ConsumerConfig | None = None,
        leader_epoch: int | None = None,
    ) -> ConsumerState:
        """Set the committed position to `seq`, inclusive, forward or back. `metadata` and `leader_epoch` are stored
        with it until the cursor moves. Creates the consumer with `config` if it does not exist. All this is durable
        on return, or nothing has changed.

        A seq beyond the head or below 0 is stored as given, and `committed` returns it. The cursor is then at the
        head, or before the oldest record.

        Raises InvalidRequest(field="metadata") for more than max_offset_metadata_bytes, (field="seq",
        "leader_epoch") for values out of range; LimitReached, Unavailable. Cancelling the call does not stop it.
        """
        self._logs.check_open()
        check_consumer_name(consumer)
        check_kind(self._logs.topic(topic))
        limit = self._logs.options.max_offset_metadata_bytes
        if metadata is not None and len(metadata) > limit:
            raise InvalidRequest(f"metadata has at most {limit} bytes, this has {len(metadata)}.", field="metadata")
        said = CommittedOffset(seq, metadata, leader_epoch)
        said.check()
        work = self._admin.commit_offset(topic, consumer, config or ConsumerConfig(), said)
        return self._state_of(*await _whole(work))

    def committed(self, topic: str, consumer: str) -> CommittedOffset:
        """The durable commit: the seq, or the value that was committed instead, and its metadata.
        Raises ConsumerNotFound."""
        found, known = self._find(topic, consumer)
        return CommittedOffset.decode(known.durable_seq, committed_metadata(found, consumer))

    async def seek(
        self,
        topic: str,
        consumer: str,
        *,
        seq: int | None = None,
        ts: int | None = None,
        to: Literal["earliest", "head"] | None = None,
    ) -> ConsumerState:
        """Move the cursor forward or back; exactly one of the three arguments is given. Durable on return.

        `seq` counts as done (0: start at the first record). `ts`: before the first record appended at that ms or
        later. Raises InvalidRequest(field="seq"), ConsumerNotFound, Unavailable. Cancelling the call does not stop it.
        """
        self._logs.check_open()
        given: list[Start] = [each for each in (seq, to) if each is not None]
        if len(given) + (ts is not None) != 1:
            raise InvalidRequest("Give seq, ts or one of earliest and head.", field="seq")
        found, known = self._find(topic, consumer)
        if ts is not None:
            given = [await self._reader.seq_before(found, ts)]
        return await _whole(self._state_after(self._admin.seek(found, known, given[0]), found, known))

    async def check_change(self, topic: Topic, config: TopicConfig) -> None:
        """Raises TopicIncompatible when the change would make a topic with consumers ephemeral."""
        await self._admin.check_ephemeral(topic, config)

    def figures_of(self, topic: Topic) -> ConsumerFigures | None:
        """The figures of a topic's consumers for its state; None when it has no consumers."""
        table = topic.log.consumers
        if not len(table):
            return None
        slowest = min(each.cursor_seq for each in table.by_name.values())
        return ConsumerFigures(count=len(table), lag=topic.log.head - slowest)

    # -- the rest ------------------------------------------------------------------------------------------------------

    def _find(self, topic: str, consumer: str) -> tuple[Topic, Consumer]:
        catalog = self._logs.catalog
        found = catalog.topics.get(topic)
        if found is not None and not found.provisional:
            known = found.log.consumers.by_name.get(consumer)
            if known is not None:
                return found, known
        check_consumer_name(consumer)
        check_kind(self._logs.topic(topic))
        raise ConsumerNotFound(topic, consumer)

    async def _state_after(self, work: Coroutine[Any, Any, None], topic: Topic, consumer: Consumer) -> ConsumerState:
        """The state right after `work`. A moment later, other readers may have moved the cursor."""
        await work
        return self._state_of(topic, consumer)

    @staticmethod
    def _state_of(topic: Topic, consumer: Consumer) -> ConsumerState:
        head = topic.log.head
        return ConsumerState(
            topic=topic.name,
            consumer=consumer.name,
            consumer_id=consumer.consumer_id,
            config=consumer.config,
            cursor_seq=consumer.cursor_seq,
            durable_seq=consumer.durable_seq,
            unread=unread(topic.log, consumer.cursor_seq),
            lag=head - consumer.cursor_seq,
            head_seq=head,
        )


async def _whole(work: Coroutine[Any, Any, Result]) -> Result:
    """Run `work` to its end, even when the caller is cancelled."""
    return await asyncio.shield(asyncio.ensure_future(work))
