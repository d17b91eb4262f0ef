"""One classic group: members, generation, waiting requests. Pure: time is an argument, answers go to `outbox`.

`states.TABLE` says which action follows an event; this module executes the action. The caller then processes the outbox
in order and calls `tick` at `deadline`. Every wait ends: a join with the rebalance timeout; a sync with the leader's
sync, or with the same timeout after the barrier; and the session of a member that waits for nothing with its session
timeout.

Source: docs/guides/kafka.md#consumer-groups, Kafka's group membership protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.kafka.errors import ErrorCode
from broker.kafka.groups.roster import Roster
from broker.kafka.groups.states import Action, Event, State, action
from broker.kafka.groups.values import Join, JoinAnswer, Limits, Member, Output, Save, SyncAnswer, Token

#: A client must use its new member id within this time, or request another one.
PENDING_MS: Final = 10_000

_REFUSALS: Final = {
    Action.REFUSE_REBALANCING: ErrorCode.REBALANCE_IN_PROGRESS,
    Action.REFUSE_UNKNOWN: ErrorCode.UNKNOWN_MEMBER_ID,
    Action.REFUSE_NOT_EMPTY: ErrorCode.NON_EMPTY_GROUP,
    Action.REFUSE_UNAVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    Action.ACCEPT: ErrorCode.NONE,
}
_ADMISSIONS: Final = (Action.ADMIT_FIRST, Action.ADMIT, Action.ADMIT_AND_REBALANCE)
_REPLACEMENTS: Final = (Action.REPLACE, Action.REPLACE_IN_PLACE, Action.REPLACE_AND_REBALANCE)
#: Actions that end the current generation.
_REBALANCING: Final = (Action.ADMIT_AND_REBALANCE, Action.REPLACE_AND_REBALANCE, Action.UPDATE_AND_REBALANCE)


class Group:
    """See the module. `generation`: the current or last one; the next one is greater."""

    __slots__ = (
        "_limits",
        "_not_before_ms",
        "_prepared_ms",
        "_sync_by_ms",
        "generation",
        "group_id",
        "outbox",
        "protocol",
        "protocol_type",
        "roster",
        "state",
    )

    def __init__(self, group_id: str, limits: Limits, generation: int = 0, protocol_type: str = "") -> None:
        self.group_id = group_id
        self._limits = limits
        self.generation = generation
        self.protocol_type = protocol_type
        #: The protocol of this generation; "": none.
        self.protocol = ""
        self.state = State.EMPTY
        self.roster = Roster()
        self.outbox: list[Output] = []
        #: When the barrier began, and until when it waits for new members in any case.
        self._prepared_ms = 0
        self._not_before_ms = 0
        #: The time by which all members must sync after the barrier.
        self._sync_by_ms = 0

    # -- requests ------------------------------------------------------------------------------------------------------

    def join(self, token: Token, asked: Join, now_ms: int) -> None:
        """A member joins, for the first time or again. The answer goes to the outbox, now or later."""
        known = self.roster.joining(asked)
        error = known if isinstance(known, ErrorCode) else self._refusal(asked, known)
        if error is not ErrorCode.NONE or isinstance(known, ErrorCode):
            self.outbox.append(JoinAnswer(token=token, error=error, member_id=asked.member_id))
            return
        then = action(self.state, self._join_event(asked, known))
        if then in _REFUSALS:
            self.outbox.append(JoinAnswer(token=token, error=_REFUSALS[then], member_id=asked.member_id))
        elif known is None and not asked.member_id and asked.instance_id is None and asked.round_trip:
            self.roster.pending[asked.fresh_id] = now_ms + min(asked.session_ms, PENDING_MS)
            error = ErrorCode.MEMBER_ID_REQUIRED
            self.outbox.append(JoinAnswer(token=token, error=error, member_id=asked.fresh_id))
        elif then in _ADMISSIONS:
            self._admit(token, asked, then, now_ms)
        elif known is not None and then in _REPLACEMENTS:
            self._replace(token, asked, known, then, now_ms)
        elif known is not None and then is Action.ANSWER_AGAIN:
            self._touch(known, now_ms)
            self._answer_join(token, known)
        elif known is not None:
            self._update(token, asked, known, then, now_ms)

    def sync(
        self,
        token: Token,
        member_id: str,
        generation: int,
        instance_id: str | None,
        assignments: Mapping[str, bytes],
        now_ms: int,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> None:
        """A member requests its assignment; the leader sends all assignments. The answer goes to the outbox, now or
        later.

        The protocol in the request must be the group's; None: the request has none.
        """
        member = self._of_generation(member_id, generation, instance_id)
        if protocol_type not in (None, self.protocol_type) or protocol not in (None, self.protocol):
            member = member if isinstance(member, ErrorCode) else ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if isinstance(member, ErrorCode):
            self.outbox.append(SyncAnswer(token, member))
            return
        leads = member.member_id == self.roster.leader
        then = action(self.state, Event.SYNC_LEADER if leads else Event.SYNC)
        if then in _REFUSALS:
            self.outbox.append(SyncAnswer(token, _REFUSALS[then]))
            return
        self._drop_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)  # the client has repeated the request
        member.synced = True
        member.sync = token
        if then is Action.ASSIGN:
            self.state = State.STABLE
            for each in self.roster.members.values():
                each.assignment = assignments.get(each.member_id, b"")
                self._answer_sync(each, now_ms)
        elif then is Action.ANSWER_SYNC:
            self._answer_sync(member, now_ms)

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None, now_ms: int) -> ErrorCode:
        """Returns NONE, or the error that tells the member what to do. In both cases, its session continues."""
        return self._from_member(Event.HEARTBEAT, member_id, generation, instance_id, now_ms)

    def commit(self, member_id: str, generation: int, instance_id: str | None, now_ms: int) -> ErrorCode:
        """Returns NONE if this member may commit offsets. Generation -1: a client without membership."""
        if generation < 0 and not member_id:
            return _REFUSALS[action(self.state, Event.COMMIT_OUTSIDE)]
        return self._from_member(Event.COMMIT, member_id, generation, instance_id, now_ms)

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> ErrorCode:
        """Remove a member. A request with only a group.instance.id comes from an operator."""
        roster = self.roster
        if member_id in roster.pending:
            del roster.pending[member_id]
            self._complete_barrier(now_ms)
            return ErrorCode.NONE
        if not member_id and instance_id is not None:
            member_id = roster.instances.get(instance_id, "")
        member = roster.identify(member_id, instance_id)
        if isinstance(member, ErrorCode):
            return member
        self._gone(member, now_ms)
        return ErrorCode.NONE

    def delete(self) -> ErrorCode:
        """Returns NONE if the group has no members; it then accepts none any more."""
        then = action(self.state, Event.DELETE)
        if then is not Action.DIE:
            return _REFUSALS[then]
        self.roster.clear()
        self.state = State.DEAD
        return ErrorCode.NONE

    def disconnected(self, token: Token, now_ms: int) -> None:
        """The client that waited with this token has disconnected: its session timeout begins now.

        It stays in the barrier: it may come back, and the others do not wait for it.
        """
        for each in self.roster.members.values():
            if token in (each.join, each.sync):
                each.join = each.sync = None
                self._touch(each, now_ms)

    def disband(self, error: ErrorCode) -> None:
        """Remove all members; those that wait get `error`."""
        for each in self.roster.members.values():
            self._drop_waits(each, error)
        self.roster.clear()
        if self.state is not State.DEAD:
            self.state, self.protocol = State.EMPTY, ""

    # -- time ----------------------------------------------------------------------------------------------------------

    def deadline(self) -> int | None:
        """When `tick` must run next; None: never."""
        times = [*self.roster.pending.values()]
        times += [each.expires_ms for each in self.roster.members.values() if not each.waits]
        if self.state is State.PREPARING:
            times.append(self._barrier_ms if self._waiting_for() else min(self._not_before_ms, self._barrier_ms))
        elif self._late():
            times.append(self._sync_by_ms)
        return min(times, default=None)

    def tick(self, now_ms: int) -> None:
        """Process all timeouts that have passed."""
        pending = self.roster.pending
        for member_id in [member_id for member_id, until in pending.items() if until <= now_ms]:
            del pending[member_id]
        for each in list(self.roster.members.values()):
            # The removal of an earlier one may have completed a barrier, and that may have removed this one.
            if each.expires_ms <= now_ms and not each.waits and self.roster.members.get(each.member_id) is each:
                self._gone(each, now_ms)
        late = self._late()
        if late and self._sync_by_ms <= now_ms and action(self.state, Event.SYNC_LATE) is Action.REMOVE_LATE:
            for each in late:
                self._remove(each)
            self._prepare(now_ms)
        self._complete_barrier(now_ms)

    # -- joining -------------------------------------------------------------------------------------------------------

    def _refusal(self, asked: Join, known: Member | None) -> ErrorCode:
        limits, roster = self._limits, self.roster
        if not limits.min_session_ms <= asked.session_ms <= limits.max_session_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if not asked.protocol_type or (roster.members and asked.protocol_type != self.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not roster.agrees(asked.protocols, but="" if known is None else known.member_id):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if roster.bytes_with(asked.protocols, known) > limits.max_bytes:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        there = len(roster.members) + len(roster.pending)
        if known is None and asked.member_id not in roster.pending and 0 < limits.max_members <= there:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        return ErrorCode.NONE

    def _join_event(self, asked: Join, known: Member | None) -> Event:
        if known is None:
            return Event.JOIN_NEW
        if not asked.member_id:
            return Event.JOIN_REPLACED
        if asked.protocols != known.protocols:
            return Event.JOIN_CHANGED
        return Event.JOIN_LEADER if known.member_id == self.roster.leader else Event.JOIN_AGAIN

    def _admit(self, token: Token, asked: Join, then: Action, now_ms: int) -> None:
        limits, roster = self._limits, self.roster
        self.protocol_type = asked.protocol_type
        if then in _REBALANCING:
            self._prepare(now_ms)
        elif then is Action.ADMIT_FIRST:
            self._prepare(now_ms)
            self._not_before_ms = now_ms + limits.rebalance_delay_ms
        elif now_ms < self._not_before_ms:
            self._not_before_ms = now_ms + limits.rebalance_delay_ms
        member_id = asked.member_id or asked.fresh_id
        roster.pending.pop(member_id, None)
        self._wait(token, roster.add(member_id, asked, now_ms + asked.session_ms), now_ms)

    def _replace(self, token: Token, asked: Join, old: Member, then: Action, now_ms: int) -> None:
        self._drop_waits(old, ErrorCode.FENCED_INSTANCE_ID)
        leader = self.roster.leader
        new = self.roster.replace(old, asked, now_ms + asked.session_ms)
        if then is Action.REPLACE_IN_PLACE and self.roster.choose_protocol() == self.protocol:
            # With the leader's old id: the member must not consider itself the leader and make an assignment.
            self._answer_join(token, new, leader)
            return
        if then is not Action.REPLACE:
            self._prepare(now_ms)
        self._wait(token, new, now_ms)

    def _update(self, token: Token, asked: Join, member: Member, then: Action, now_ms: int) -> None:
        if then in _REBALANCING:
            self._prepare(now_ms)
        member.protocols = asked.protocols
        member.session_ms, member.rebalance_ms = asked.session_ms, asked.rebalance_ms
        member.client_id, member.client_host = asked.client_id, asked.client_host
        self._wait(token, member, now_ms)

    def _wait(self, token: Token, member: Member, now_ms: int) -> None:
        """The member has joined the barrier, and waits for the others."""
        if member.join is not None:  # the client has repeated the request
            self._drop_join(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.join, member.joined = token, True
        self._complete_barrier(now_ms)

    # -- the barrier ---------------------------------------------------------------------------------------------------

    def _prepare(self, now_ms: int) -> None:
        """Begin a rebalance: all members must join again."""
        self.state = State.PREPARING
        self._prepared_ms = self._not_before_ms = now_ms
        for each in self.roster.members.values():
            each.joined = False
            if each.sync is not None:
                self._touch(each, now_ms)
                self._drop_sync(each, ErrorCode.REBALANCE_IN_PROGRESS)

    @property
    def _barrier_ms(self) -> int:
        return self._prepared_ms + self.roster.rebalance_ms

    def _waiting_for(self) -> bool:
        return bool(self.roster.pending) or not all(each.joined for each in self.roster.members.values())

    def _complete_barrier(self, now_ms: int) -> None:
        """Begin the next generation if the barrier waits for nobody."""
        if self.state is not State.PREPARING:
            return
        if now_ms < self._barrier_ms and (now_ms < self._not_before_ms or self._waiting_for()):
            return
        if action(self.state, Event.BARRIER) is Action.NEXT_GENERATION:
            self._next_generation(now_ms)

    def _next_generation(self, now_ms: int) -> None:
        roster = self.roster
        for each in [each for each in roster.members.values() if not each.joined and each.instance_id is None]:
            self._remove(each)
        if roster.members and not any(each.joined for each in roster.members.values()):
            self._prepared_ms = now_ms  # all are static members: they return, or their sessions expire
            return
        self.generation += 1
        self.outbox.append(Save(self.generation, self.protocol_type, empty=not roster.members))
        if not roster.members:
            self.state, self.protocol = State.EMPTY, ""
            return
        roster.elect()
        self.protocol = roster.choose_protocol()
        self.state = State.COMPLETING
        self._sync_by_ms = now_ms + roster.rebalance_ms
        for each in roster.members.values():
            each.assignment, each.synced, each.joined = b"", False, False
            token, each.join = each.join, None
            if token is not None:
                self._touch(each, now_ms)
                self._answer_join(token, each)

    def _late(self) -> list[Member]:
        """The members that have not synced in this generation."""
        if self.state not in (State.COMPLETING, State.STABLE):
            return []
        return [each for each in self.roster.members.values() if not each.synced]

    # -- going ---------------------------------------------------------------------------------------------------------

    def _gone(self, member: Member, now_ms: int) -> None:
        then = action(self.state, Event.GONE)
        self._remove(member)
        if then is Action.REMOVE_AND_REBALANCE:
            self._prepare(now_ms)
        self._complete_barrier(now_ms)

    def _remove(self, member: Member) -> None:
        self._drop_waits(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.roster.remove(member)

    # -- answers -------------------------------------------------------------------------------------------------------

    def _of_generation(self, member_id: str, generation: int, instance_id: str | None) -> Member | ErrorCode:
        member = self.roster.identify(member_id, instance_id)
        if not isinstance(member, ErrorCode) and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return member

    def _from_member(
        self, event: Event, member_id: str, generation: int, instance_id: str | None, now_ms: int
    ) -> ErrorCode:
        member = self._of_generation(member_id, generation, instance_id)
        if isinstance(member, ErrorCode):
            return member
        self._touch(member, now_ms)
        return _REFUSALS[action(self.state, event)]

    @staticmethod
    def _touch(member: Member, now_ms: int) -> None:
        member.expires_ms = now_ms + member.session_ms

    def _answer_join(self, token: Token, member: Member, leader: str | None = None) -> None:
        leader = self.roster.leader if leader is None else leader
        leads = member.member_id == leader
        self.outbox.append(
            JoinAnswer(
                token=token,
                member_id=member.member_id,
                generation=self.generation,
                protocol_type=self.protocol_type,
                protocol=self.protocol,
                leader=leader,
                members=self.roster.listed(self.protocol) if leads else (),
            )
        )

    def _answer_sync(self, member: Member, now_ms: int) -> None:
        token, member.sync = member.sync, None
        if token is not None:
            self._touch(member, now_ms)
            self.outbox.append(SyncAnswer(token, ErrorCode.NONE, member.assignment, self.protocol_type, self.protocol))

    def _drop_join(self, member: Member, error: ErrorCode) -> None:
        token, member.join = member.join, None
        if token is not None:
            self.outbox.append(JoinAnswer(token=token, error=error, member_id=member.member_id))

    def _drop_sync(self, member: Member, error: ErrorCode) -> None:
        token, member.sync = member.sync, None
        if token is not None:
            self.outbox.append(SyncAnswer(token, error))

    def _drop_waits(self, member: Member, error: ErrorCode) -> None:
        self._drop_join(member, error)
        self._drop_sync(member, error)
