"""A group while somebody deals with it: its answers go out in order, each behind what has to be durable before it.

What could not be made durable is told to nobody: all who wait for it get COORDINATOR_NOT_AVAILABLE and ask again, and
the members join again, into a later generation.
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
    """A machine and what it has said. `record`: the newest that is durable, None: there is none."""

    __slots__ = ("_now_ms", "_queue", "_topics", "_write", "due_ms", "group", "owner", "record", "saving")

    def __init__(self, group: Group, record: GroupRecord | None, write: Write, now_ms: Callable[[], int]) -> None:
        self.group = group
        self.record = record
        #: The prefixes of the key whose member made it; None: not known.
        self.owner = None if record is None else record.owner
        #: What `topics` said last; None: it may be something else by now.
        self._topics: frozenset[str] | None = None
        #: When the coordinator looks at it next; None: it need not.
        self.due_ms: int | None = None
        self.saving: asyncio.Task[None] | None = None
        self._queue: deque[Output] = deque()
        self._write = write
        self._now_ms = now_ms

    @property
    def idle(self) -> bool:
        """Whether nothing would be lost by forgetting it: what is durable tells all there is."""
        group = self.group
        return group.state is State.EMPTY and not group.roster.pending and not self._queue and self.saving is None

    def topics(self) -> frozenset[str]:
        """Those that members are subscribed to or have been assigned, where they are consumers."""
        if self._topics is None:
            found: set[str] = set()
            if self.group.protocol_type == consumer_protocol.TYPE:
                for member in self.group.roster.members.values():
                    found |= consumer_protocol.wanted(member.protocols)
                    found.update(topic for topic, _ in consumer_protocol.assigned(member.assignment))
            self._topics = frozenset(found)
        return self._topics

    def moved(self) -> None:
        """Members have come or gone, or say something else."""
        self._topics = None

    def pass_on(self, then: Callable[[Hosted], None]) -> None:
        """Carry out what the machine has said meanwhile; `then` is called each time that it goes on later."""
        self._queue.extend(self.group.outbox)
        self.group.outbox.clear()
        while self._queue and self.saving is None:
            output = self._queue.popleft()
            if isinstance(output, Save):
                self.saving = asyncio.create_task(self._save(output, then))
            else:
                _give(output.token, output)

    def add(self, *outputs: Output) -> None:
        """As if the machine had said it."""
        self.group.outbox.extend(outputs)

    def break_off(self, error: ErrorCode) -> None:
        """Nothing more comes of it: all that wait are told so."""
        self.group.disband(error)
        waiting, self._queue = [*self._queue, *self.group.outbox], deque[Output]()
        self.group.outbox.clear()
        for output in waiting:
            if isinstance(output, JoinAnswer):
                _give(output.token, JoinAnswer(token=output.token, error=error, member_id=output.member_id))
            elif isinstance(output, SyncAnswer):
                _give(output.token, SyncAnswer(output.token, error))

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
            self.break_off(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        finally:
            self.saving = None
        then(self)


def _give(token: Token, answer: JoinAnswer | SyncAnswer) -> None:
    waiting = cast("asyncio.Future[JoinAnswer | SyncAnswer]", token)
    if not waiting.done():
        waiting.set_result(answer)
