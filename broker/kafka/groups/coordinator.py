"""The consumer groups of a broker: finds and deletes them, runs their timers, and makes their generations durable.

A group is in memory while it has members. Its generation and protocol type are durable (see `record`) before members
learn of the generation; committed offsets are durable, too (see `offsets`). After a restart, members get
UNKNOWN_MEMBER_ID and join again, into a later generation. When the broker stops, waiting members get NOT_COORDINATOR,
so that they retry.

All methods run on the loop.

Source: docs/guides/kafka.md#consumer-groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import uuid4

import msgspec
import structlog

from broker.kafka.errors import ErrorCode, code_of
from broker.kafka.groups.hosted import Hosted
from broker.kafka.groups.machine import Group
from broker.kafka.groups.record import KIND, GroupRecord
from broker.kafka.groups.states import State
from broker.kafka.groups.values import Join, JoinAnswer, Limits, Member, Save, SyncAnswer, Token
from broker.kafka.names import consumer_name
from storage import Unavailable

if TYPE_CHECKING:
    from broker.kafka.groups.offsets import Offsets
    from broker.kafka.node import Cells
    from storage import Engine

_log = structlog.get_logger("broker.kafka")

#: The interval between searches for expired groups.
SWEEP_S: Final = 600
#: The call by which a cell gives the record of a group to the group's home cell.
ADOPT: Final = "kafka_adopt_group"
#: The part of the client's id in a member id has at most this many characters.
_SHOWN_CHARS: Final = 128

Answered = TypeVar("Answered", JoinAnswer, SyncAnswer)


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of a group."""

    group_id: str
    state: State
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[Member, ...] = ()


class Coordinator:
    """See the module. `retention_ms`: how long a group without members keeps its offsets; 0: forever."""

    def __init__(
        self,
        engine: Engine,
        offsets: Offsets,
        *,
        limits: Limits,
        retention_ms: int = 0,
        max_groups: int = 0,
        cells: Cells | None = None,
    ) -> None:
        self._engine = engine
        self._offsets = offsets
        self._limits = limits
        self._retention_ms = retention_ms
        self._max_groups = max_groups
        #: The set of cells: this cell coordinates the groups whose home it is.
        self._cells = cells
        if cells is not None:
            cells.handlers[ADOPT] = self._adopt
        self._hosted: dict[str, Hosted] = {}
        #: When groups without members last committed offsets, if their record does not say so yet.
        self._used_ms: dict[str, int] = {}
        self._due: list[tuple[int, str]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._stopped = False
        #: The number of generations that were made durable, for the metrics.
        self.begun = 0

    def __len__(self) -> int:
        """The number of groups in memory."""
        return len(self._hosted)

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to expire empty groups. The engine must be ready."""
        self._sweeping = asyncio.create_task(self._keep_sweeping())

    async def close(self) -> None:
        """Answer all waiting members and admit no others. May be called twice, and without `start`."""
        self._stopped = True
        for handle in (self._timer, self._sweeping):
            if handle is not None:
                handle.cancel()
        hosted = list(self._hosted.values())
        for each in hosted:
            each.stop(ErrorCode.NOT_COORDINATOR)
        saving = [each.saving for each in hosted if each.saving is not None]
        if saving:
            await asyncio.wait(saving)

    # -- members -------------------------------------------------------------------------------------------------------

    async def join(self, group_id: str, asked: Join, prefixes: tuple[str, ...] = ()) -> JoinAnswer:
        """Join a group, and wait for the answer. If cancelled, the client counts as disconnected.

        `prefixes`: of the client's key. A new group keeps them.
        """
        error = self.refusal(group_id)
        if error is ErrorCode.NONE and not asked.member_id and self._is_full(group_id):
            error = ErrorCode.GROUP_MAX_SIZE_REACHED
        if error is ErrorCode.NONE and not self._can_save():
            # Checked before the group changes, so that its members continue in the current generation.
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error is not ErrorCode.NONE:
            return JoinAnswer(token=None, error=error, member_id=asked.member_id)
        hosted = self._host(group_id, prefixes)
        return await self._answer(hosted, lambda token: hosted.group.join(token, asked, self._now_ms()))

    async def sync(
        self,
        group_id: str,
        member_id: str,
        generation: int,
        instance_id: str | None,
        assignments: Mapping[str, bytes],
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> SyncAnswer:
        """Sync, and wait for the answer."""
        error = self.refusal(group_id)
        if error is not ErrorCode.NONE:
            return SyncAnswer(None, error)
        hosted = self._host(group_id)

        def begin(token: Token) -> None:
            now = self._now_ms()
            hosted.group.sync(token, member_id, generation, instance_id, assignments, now, protocol_type, protocol)

        return await self._answer(hosted, begin)

    def heartbeat(self, group_id: str, member_id: str, generation: int, instance_id: str | None) -> ErrorCode:
        return self._call_group(
            group_id,
            lambda group: group.heartbeat(member_id, generation, instance_id, self._now_ms()),
            changes_members=False,
        )

    def leave(self, group_id: str, member_id: str, instance_id: str | None) -> ErrorCode:
        return self._call_group(group_id, lambda group: group.leave(member_id, instance_id, self._now_ms()))

    @staticmethod
    def fresh_id(client_id: str, instance_id: str | None) -> str:
        """Make an id for a new member."""
        return f"{(client_id if instance_id is None else instance_id)[:_SHOWN_CHARS]}-{uuid4()}"

    # -- offsets -------------------------------------------------------------------------------------------------------

    async def admit_commit(
        self, group_id: str, member_id: str, generation: int, instance_id: str | None, prefixes: tuple[str, ...] = ()
    ) -> ErrorCode:
        """Whether this member may commit offsets now. If so, the group is in memory. `prefixes`: as in `join`."""
        error = self._call_group(
            group_id,
            lambda group: group.commit(member_id, generation, instance_id, self._now_ms()),
            changes_members=False,
        )
        if error is not ErrorCode.NONE or generation >= 0:
            return error
        self._used_ms[group_id] = self._engine.now_ms()
        if self._engine.states.get(KIND, group_id) is not None:
            return error
        if self._is_full(group_id):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        hosted = self._host(group_id, prefixes)

        def note(token: Token) -> None:
            group = hosted.group
            hosted.add(Save(group.generation, group.protocol_type, empty=not group.roster.members))
            hosted.add(SyncAnswer(token, ErrorCode.NONE))

        noted: SyncAnswer = await self._answer(hosted, note)
        return noted.error

    # -- groups as a whole ---------------------------------------------------------------------------------------------

    def describe(self, group_id: str) -> Described:
        """Describe a group. An unknown one is dead."""
        hosted = self._hosted.get(group_id)
        if hosted is not None:
            group = hosted.group
            members = tuple(group.roster.members.values())
            return Described(
                group_id=group_id,
                state=group.state,
                generation=group.generation,
                protocol_type=group.protocol_type,
                protocol=group.protocol,
                members=members,
            )
        record = self._record(group_id)
        if record is None and not self._offsets.has_any(group_id):
            return Described(group_id=group_id, state=State.DEAD)
        record = record or GroupRecord()
        return Described(
            group_id=group_id,
            state=State.EMPTY,
            generation=record.generation,
            protocol_type=record.protocol_type,
        )

    def topics(self, group_id: str) -> frozenset[str]:
        """The topics that members subscribe to or are assigned."""
        hosted = self._hosted.get(group_id)
        return frozenset() if hosted is None else hosted.topics()

    def owner(self, group_id: str) -> tuple[str, ...] | None:
        """The prefixes of the key that created the group, () for a key without prefixes; None: unknown."""
        hosted = self._hosted.get(group_id)
        if hosted is not None:
            return hosted.owner
        record = self._record(group_id)
        return None if record is None else record.owner

    def known(self) -> set[str]:
        """The groups with members, and those with a durable record."""
        return {*(group_id for group_id, _ in self._engine.states.items(KIND)), *self._hosted}

    def all_groups(self) -> list[Described]:
        """The groups of this coordinator that are known or have committed offsets, ordered by id."""
        found = sorted(self.known() | self._offsets.groups())
        return [self.describe(group_id) for group_id in found if self._is_home(group_id)]

    async def delete(self, group_id: str) -> ErrorCode:
        """Delete the group and its offsets. Durable on return. Returns NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, or another
        error that prevents it."""
        error = self.refusal(group_id)
        if error is ErrorCode.NONE and self.describe(group_id).state is State.DEAD:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        if error is not ErrorCode.NONE:
            return error
        hosted = self._host(group_id)
        error = hosted.group.delete()
        if error is not ErrorCode.NONE:
            self._after_event(hosted)
            return error
        try:
            # Until this ends, nobody can create the group again.
            if hosted.saving is not None:
                await asyncio.wait([hosted.saving])
            await self._offsets.delete_all(group_id)
            await self._engine.states.delete(KIND, group_id)
        except Exception as failure:
            return code_of(failure, unavailable=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        finally:
            self._hosted.pop(group_id, None)
            self._used_ms.pop(group_id, None)
        return ErrorCode.NONE

    def refusal(self, group_id: str) -> ErrorCode:
        """The error if the group is not available now, or NONE."""
        error = self.refusal_of_all()
        if error is not ErrorCode.NONE:
            return error
        if not self._is_home(group_id):
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.INVALID_GROUP_ID if consumer_name(group_id) is None else ErrorCode.NONE

    def refusal_of_all(self) -> ErrorCode:
        """The error if no group is available now, or NONE."""
        if self._stopped or self._engine.closing:
            return ErrorCode.NOT_COORDINATOR
        if not self._engine.ready:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE

    def _is_home(self, group_id: str) -> bool:
        return self._cells is None or self._cells.home(group_id) == self._cells.me

    # -- the rest ------------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self._engine.monotonic_ms()

    def _record(self, group_id: str) -> GroupRecord | None:
        value = self._engine.states.get(KIND, group_id)
        return None if value is None else GroupRecord.decode(value)

    async def _write(self, group_id: str, record: GroupRecord) -> None:
        await self._engine.states.put(KIND, group_id, record.encode())
        self.begun += not record.empty_ms

    def _can_save(self) -> bool:
        """Whether the shard accepts writes and has room, so that a generation can probably be made durable."""
        try:
            self._engine.shards[0].refuse_when_full()
        except Unavailable:
            return False
        return True

    def _host(self, group_id: str, prefixes: tuple[str, ...] | None = None) -> Hosted:
        """The group in memory; it is loaded or created. `prefixes`: of the client's key, for a new group."""
        hosted = self._hosted.get(group_id)
        if hosted is None:
            record = self._record(group_id)
            was = record or GroupRecord()
            group = Group(group_id, self._limits, was.generation, was.protocol_type)
            hosted = self._hosted[group_id] = Hosted(group, record, self._write, self._engine.now_ms)
        if hosted.owner is None:
            hosted.owner = prefixes
        return hosted

    def _is_full(self, group_id: str) -> bool:
        if not self._max_groups or group_id in self._hosted or self._engine.states.get(KIND, group_id) is not None:
            return False
        there = {group_id for group_id, _ in self._engine.states.items(KIND)} | self._hosted.keys()
        return len(there) >= self._max_groups

    def _call_group(
        self, group_id: str, ask: Callable[[Group], ErrorCode], *, changes_members: bool = True
    ) -> ErrorCode:
        """Call the group and handle its output. `changes_members`: the call may change members or subscriptions."""
        error = self.refusal(group_id)
        if error is ErrorCode.NONE:
            hosted = self._host(group_id)
            error = ask(hosted.group)
            self._after_event(hosted, changes_members=changes_members)
        return error

    async def _answer(self, hosted: Hosted, begin: Callable[[Token], None]) -> Answered:
        """Call `begin` with a new token, and wait for the answer to it."""
        waiting: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        begin(waiting)
        self._after_event(hosted)
        try:
            return await waiting
        except asyncio.CancelledError:
            hosted.group.disconnected(waiting, self._now_ms())
            self._after_event(hosted)
            raise

    def _after_event(self, hosted: Hosted, *, changes_members: bool = True) -> None:
        """After an event: send answers, and set the group's next deadline or forget the group."""
        if changes_members:
            hosted.members_changed()
        hosted.send_outputs(self._after_event)
        group_id = hosted.group.group_id
        if self._stopped or self._hosted.get(group_id) is not hosted:
            return  # it was forgotten; another object may represent the group now
        if hosted.idle:
            del self._hosted[group_id]
            return
        due_ms = hosted.group.deadline()
        if due_ms is not None and (hosted.due_ms is None or due_ms < hosted.due_ms):
            hosted.due_ms = due_ms
            heappush(self._due, (due_ms, group_id))
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        wait_ms = max(0, self._due[0][0] - self._now_ms())
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._tick)

    def _tick(self) -> None:
        """The one timer of all groups: tick those whose deadline has passed."""
        now_ms, self._timer = self._now_ms(), None
        while self._due and self._due[0][0] <= now_ms:
            due_ms, group_id = heappop(self._due)
            hosted = self._hosted.get(group_id)
            if hosted is not None and hosted.due_ms == due_ms:
                hosted.due_ms = None
                self._tick_group(hosted, now_ms)
        if self._due:
            self._set_timer()

    def _tick_group(self, hosted: Hosted, now_ms: int) -> None:
        """A defect in one group must not stop the timers of the others: its members have to join again."""
        try:
            hosted.group.tick(now_ms)
        except Exception as error:
            _log.error("kafka_group_failed", group=hosted.group.group_id, exc_info=error)
            hosted.stop(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._after_event(hosted)

    # -- expiry --------------------------------------------------------------------------------------------------------

    async def _keep_sweeping(self) -> None:
        while True:
            await self._engine.clock.sleep(SWEEP_S)
            try:
                await self.sweep()
            except Exception as error:
                _log.warning("kafka_groups_not_swept", error=str(error))

    async def sweep(self) -> None:
        """Delete expired groups with their offsets. For other empty groups, record since when they are empty."""
        now_ms = self._engine.now_ms()
        for group_id, _ in self._engine.states.items(KIND):
            record = self._record(group_id)
            if record is None or group_id in self._hosted:
                continue
            if not self._is_home(group_id):
                await self._pass_on(group_id, record)
                continue
            empty_ms = max(record.empty_ms, self._used_ms.pop(group_id, 0))
            if empty_ms and self._retention_ms and now_ms - empty_ms > self._retention_ms:
                error = await self.delete(group_id)
                _log.info("kafka_group_expired", group=group_id, error=error.name)
            elif empty_ms != record.empty_ms or not empty_ms:
                # It had members when the process ended, or it has committed offsets without members.
                hosted = self._host(group_id)
                hosted.add(Save(record.generation, record.protocol_type, empty=True))
                self._after_event(hosted)

    async def _pass_on(self, group_id: str, record: GroupRecord) -> None:
        """Send a group to its home cell: this directory had it before it became a cell."""
        assert self._cells is not None
        await self._cells.peers.call(self._cells.home(group_id), ADOPT, [group_id, record.encode()])
        await self._engine.states.delete(KIND, group_id)

    async def _adopt(self, argument: list[Any]) -> None:
        """Take the record of a group from another cell, unless the group is known here. Durable on return."""
        group_id, value = argument
        if group_id not in self._hosted and self._record(group_id) is None:
            await self._engine.states.put(KIND, group_id, value)
