"""Consumers of an engine: every operation, and the life of what persists their cursors. Source: api.md §7.

All methods belong to the loop that started the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import structlog

from storage.config import TopicConfig
from storage.consumers.admin import ConsumerAdmin, kept_value
from storage.consumers.checks import check_attempt_key, check_consumer_config, check_consumer_name, check_kind
from storage.consumers.desk import Desk, Desks
from storage.consumers.reading import Reading
from storage.errors import ConsumerNotFound, InvalidRequest, NotReady, ShuttingDown, StorageError
from storage.reads.reader import Reader
from storage.records.values import ConsumerFigures, ReadQuery
from storage.state.catalog import Topic
from storage.state.consumers.answers import resume
from storage.state.consumers.attempts import Attempts
from storage.state.consumers.consumer import Consumer
from storage.state.consumers.offset import CommittedOffset
from storage.state.consumers.unread import unread
from storage.state.consumers.values import ConsumerConfig, ConsumerRead, ConsumerState, Start

if TYPE_CHECKING:
    from storage.log.logs import Logs

_log = structlog.get_logger("storage")

Result = TypeVar("Result")

#: How often the silent ones are looked for, and how long they have been so.
TICK_S, IDLE_NS = 0.25, 1_000_000_000
_ALL = ReadQuery()


class Consumers:
    """See the module.

    Every method raises TopicNotFound, and InvalidRequest for a name that breaks its pattern; those that need a
    consumer raise ConsumerNotFound. A topic in memory only has none: InvalidRequest(field="topic"); a queue:
    TopicIncompatible.
    """

    def __init__(self, logs: Logs, reader: Reader) -> None:
        self._logs = logs
        self._reader = reader
        self._desks = Desks(logs)
        self._admin = ConsumerAdmin(logs, self._desks)
        self.counters = self._desks.counters
        self.attempts = Attempts(logs.options.consumer_answers_bytes)
        #: Desks whose cursor may be ahead of what the log knows.
        self._moved: set[Desk] = set()

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """After recovery: what was unconfirmed at a clean stop is so again."""
        now_ms = self._logs.monotonic_ms()
        for topic in self._logs.catalog.topics.values():
            for consumer in topic.log.consumers.by_name.values() if topic.log.states is not None else ():
                resume(consumer, topic.log.states, topic.log.head, now_ms)
                if (awaited := consumer.awaited) is not None:
                    self.attempts.remember(consumer.consumer_id, awaited.key, awaited.span, None, now_ms)
                    self._moved.add(self._desks.of(topic, consumer))
        self._logs.runtime.supervisor.start("consumers", TICK_S, self._tick)

    async def stop(self) -> None:
        """A clean stop: the log knows where every cursor stands."""
        if not self._logs.ready:
            return
        pending = [self._persist_all(desk, self._logs.monotonic_ms()) for desk in self._moved]
        self._moved.clear()
        for outcome in await asyncio.gather(*pending, return_exceptions=True):
            if isinstance(outcome, StorageError):
                _log.warning("consumer_cursor_not_written", error=str(outcome))
            elif isinstance(outcome, BaseException):
                raise outcome

    @staticmethod
    async def _persist_all(desk: Desk, now_ms: int) -> None:
        async with desk.turn:
            await desk.settled()
            if not desk.alive:
                return
            if (awaited := desk.awaits(now_ms)) is not None:
                await desk.persist_unconfirmed(awaited)
            elif desk.confirm_silent():
                await desk.persist()

    async def _tick(self) -> None:
        """Write the cursors of those who have not read for a second, and forget what need not be kept."""
        logs = self._logs
        silent_ns, now_ms = logs.clock.monotonic_ns() - IDLE_NS, logs.monotonic_ms()
        for desk in list(self._moved):
            if not desk.alive:
                self._moved.discard(desk)
            elif desk.awaits(now_ms) is None and desk.moved_ns <= silent_ns and desk.writing is None:
                if not desk.confirm_silent():
                    self._moved.discard(desk)
                elif not desk.begin_write():
                    break  # no room now, or no more
        self.attempts.expire(now_ms)

    # -- operations ----------------------------------------------------------------------------------------------------

    async def put(
        self, topic: str, consumer: str, config: ConsumerConfig | None = None, start: Start = "earliest"
    ) -> tuple[ConsumerState, bool]:
        """Make the consumer, or replace its config; True when made. Durable on return. A cancelled call goes on.

        `start` counts only for a new one; a seq beyond the head is an InvalidRequest(field="start"). Raises
        InvalidRequest(field="persist_every"), LimitReached, Unavailable.
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
        """Give the consumer the config that `changed` makes of the one it has. Durable on return. A cancelled call
        goes on. Raises ConsumerNotFound, and as `changed` and `put`."""
        self._logs.check_open()
        check_consumer_name(consumer)

        def checked(config: ConsumerConfig) -> ConsumerConfig:
            config = changed(config)
            check_consumer_config(config)
            return config

        return self._state_of(*await _whole(self._admin.alter(topic, consumer, checked)))

    def state(self, topic: str, consumer: str) -> ConsumerState:
        """A consumer's figures now. Raises ConsumerNotFound."""
        return self._state_of(*self._find(topic, consumer))

    def list(self, topic: str, prefix: str = "", after: str = "", limit: int = 100) -> list[ConsumerState]:
        """Consumers of a topic by name, bytewise; names behind `after`."""
        found = self._logs.topic(topic)
        check_kind(found)
        return [self._state_of(found, each) for each in islice(found.log.consumers.named(prefix, after), limit)]

    async def delete(self, topic: str, consumer: str) -> bool:
        """Delete the consumer; False when there is none. Durable on return. A cancelled call goes on."""
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
        turn: Callable[[], Awaitable[None]] | None = None,
        attempt_key: str | None = None,
    ) -> ConsumerRead:
        """Records behind the cursor, and what was lost before them; the cursor passes what is handed out.

        Of `query` count limit, max_bytes, exclude_nodes, tag and skip_corrupt. `checkpoint` False: a peek, nothing
        moves and nobody is waited for. `wait_ms`: wait so long when there is nothing to give, and `turn` before it is
        read again. `attempt_key`: within 60 s a repeat with the same key gets the same answer again, should it have
        been lost.

        Raises ConsumerNotFound, RecordCorrupt (the cursor stays in front of it), Unavailable where the cursor could
        not be made as durable as it has to be: nothing was handed out then, and the cursor is where it was.
        """
        logs = self._logs
        if not logs.ready:
            raise ShuttingDown() if logs.closing else NotReady()
        if checkpoint:
            logs.check_open()
        check_attempt_key(attempt_key)
        found, known = self._find(topic, consumer)
        key = attempt_key if checkpoint else None
        desk = self._desks.of(found, known)
        reading = Reading(logs, self._reader, desk, found, known, query or _ALL, self.attempts, self._moved.add, key)
        return await reading.run(wait_ms, turn, checkpoint=checkpoint)

    async def commit(self, topic: str, consumer: str, seq: int) -> ConsumerState:
        """Everything up to `seq`, inclusive, is done with. Durable on return. Never takes a cursor back.

        Raises InvalidRequest(field="seq") for one that is negative or beyond the head; ConsumerNotFound, Unavailable.
        A cancelled call goes on.
        """
        self._logs.check_open()
        found, known = self._find(topic, consumer)
        return await _whole(self._told(self._admin.commit(found, known, seq), found, known))

    async def commit_offset(
        self,
        topic: str,
        consumer: str,
        seq: int,
        metadata: bytes | None = None,
        config: ConsumerConfig | None = None,
        leader_epoch: int | None = None,
    ) -> ConsumerState:
        """Everything up to `seq`, inclusive, is done with, and nothing else: also back. `metadata` and `leader_epoch`
        are kept with it until the cursor moves. Makes the consumer where there is none, set as `config` says.
        Durable on return, all of it or nothing.

        A seq beyond the head or below 0 is kept as it is, and `committed` gives it back; the cursor stands at the head
        or in front of the oldest record then.

        Raises InvalidRequest(field="metadata") for more than max_offset_metadata_bytes, (field="seq", "leader_epoch")
        for what is out of range; LimitReached, Unavailable. A cancelled call goes on.
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
        """What is durable: the seq up to which it is done, or what was committed instead, and what came with it.
        Raises ConsumerNotFound."""
        found, known = self._find(topic, consumer)
        return CommittedOffset.decode(known.durable_seq, kept_value(found, consumer))

    async def seek(
        self,
        topic: str,
        consumer: str,
        *,
        seq: int | None = None,
        ts: int | None = None,
        to: Literal["earliest", "head"] | None = None,
    ) -> ConsumerState:
        """Put the cursor elsewhere, forward or back; exactly one of the three is given. Durable on return.

        `seq` counts as done (0: begin at the first). `ts`: in front of the first record appended at that ms or later.
        Raises InvalidRequest(field="seq"), ConsumerNotFound, Unavailable. A cancelled call goes on.
        """
        self._logs.check_open()
        given: list[Start] = [each for each in (seq, to) if each is not None]
        if len(given) + (ts is not None) != 1:
            raise InvalidRequest("Give seq, ts or one of earliest and head.", field="seq")
        found, known = self._find(topic, consumer)
        if ts is not None:
            given = [await self._reader.seq_before(found, ts)]
        return await _whole(self._told(self._admin.seek(found, known, given[0]), found, known))

    async def check_change(self, topic: Topic, config: TopicConfig) -> None:
        """Whether the topic may be set so. Raises TopicIncompatible: with consumers it cannot be made ephemeral."""
        await self._admin.check_ephemeral(topic, config)

    def figures_of(self, topic: Topic) -> ConsumerFigures | None:
        """What a topic's state tells of its consumers; None: it has none."""
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

    async def _told(self, work: Coroutine[Any, Any, None], topic: Topic, consumer: Consumer) -> ConsumerState:
        """The state at the end of `work`: in the next moment others may have read on."""
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
    """It goes on when its caller goes away."""
    return await asyncio.shield(asyncio.ensure_future(work))
