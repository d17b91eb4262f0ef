"""A group in memory: sends its answers in order, each after the record that must be durable before it.

If a record cannot be made durable, members do not learn of the new generation: all waiting members get
COORDINATOR_NOT_AVAILABLE and join again, into a later generation.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias, cast

import structlog

from broker.kafka.errors import ErrorCode
from broker.kafka.groups import consumer_protocol
from broker.kafka.groups.machine import Group
from broker.kafka.groups.record import GroupRecord
from broker.kafka.groups.states import State
from broker.kafka.groups.values import JoinAnswer, Output, Save, SyncAnswer, Token

_log = structlog.get_logger("broker.kafka")

#: Makes a record durable, or raises StorageError.
Write: TypeAlias = Callable[[str, GroupRecord], Awaitable[None]]


class Hosted:
    """A state machine and its output. `record`: the last durable one; None: there is none."""

    __slots__ = ("_now_ms", "_queue", "_topics", "_write", "due_ms", "group", "owner", "record", "saving")

    def __init__(self, group: Group, record: GroupRecord | None, write: Write, now_ms: Callable[[], int]) -> None:
        self.group = group
        self.record = record
        #: The prefixes of the key that created it; None: unknown.
        self.owner = None if record is None else record.owner
        #: The cached result of `topics`; None: it may have changed.
        self._topics: frozenset[str] | None = None
        #: When the coordinator ticks it next; None: no deadline.
        self.due_ms: int | None = None
        self.saving: asyncio.Task[None] | None = None
        self._queue: deque[Output] = deque()
        self._write = write
        self._now_ms = now_ms

    @property
    def idle(self) -> bool:
        """Whether it can be forgotten because all its state is durable."""
        group = self.group
        return group.state is State.EMPTY and not group.roster.pending and not self._queue and self.saving is None

    def topics(self) -> frozenset[str]:
        """The topics that members subscribe to or are assigned, if they are consumers."""
        if self._topics is None:
            found: set[str] = set()
            if self.group.protocol_type == consumer_protocol.TYPE:
                for member in self.group.roster.members.values():
                    found |= consumer_protocol.wanted(member.protocols)
                    found.update(topic for topic, _ in consumer_protocol.assigned(member.assignment))
            self._topics = frozenset(found)
        return self._topics

    def members_changed(self) -> None:
        """Members or subscriptions may have changed."""
        self._topics = None

    def send_outputs(self, then: Callable[[Hosted], None]) -> None:
        """Process the machine's output: send answers, save records. `then` is called after each save."""
        self._queue.extend(self.group.outbox)
        self.group.outbox.clear()
        while self._queue and self.saving is None:
            output = self._queue.popleft()
            if isinstance(output, Save):
                self.saving = asyncio.create_task(self._save(output, then))
            else:
                _set_answer(output.token, output)

    def add(self, *outputs: Output) -> None:
        """Add output as if it came from the machine."""
        self.group.outbox.extend(outputs)

    def stop(self, error: ErrorCode) -> None:
        """Remove all members. Those that wait get an error."""
        self.group.disband(error)
        waiting, self._queue = [*self._queue, *self.group.outbox], deque[Output]()
        self.group.outbox.clear()
        for output in waiting:
            if isinstance(output, JoinAnswer):
                _set_answer(output.token, JoinAnswer(token=output.token, error=error, member_id=output.member_id))
            elif isinstance(output, SyncAnswer):
                _set_answer(output.token, SyncAnswer(output.token, error))

    async def _save(self, save: Save, then: Callable[[Hosted], None]) -> None:
        record = GroupRecord(
            generation=save.generation,
            protocol_type=save.protocol_type,
            empty_ms=self._now_ms() if save.empty else 0,
            owner=self.owner,
        )
        try:
            await self._write(self.group.group_id, record)
            self.record = record
        except Exception as error:
            _log.warning("kafka_group_not_saved", group=self.group.group_id, error=str(error))
            self.stop(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        finally:
            self.saving = None
        then(self)


def _set_answer(token: Token, answer: JoinAnswer | SyncAnswer) -> None:
    waiting = cast("asyncio.Future[JoinAnswer | SyncAnswer]", token)
    if not waiting.done():
        waiting.set_result(answer)
