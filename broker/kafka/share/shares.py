"""The share groups of a broker: sessions, members, and the leases they hold.

A job that a member acquires is leased to the node `share:<member id>`. If the member leaves or closes its session, its
leases are released without counting as deliveries. If its connection breaks or its session expires, they are nacked,
because a job that kills its worker must reach the dead letter topic. The group of a queue is durable (see `owners`),
and leases are durable if the queue's leases are. Sessions and members are not durable: after a restart, clients open
new sessions by themselves.

All methods run on the loop.

Source: docs/guides/kafka.md#share-groups.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from broker.kafka import cluster
from broker.kafka import group_settings as settings
from broker.kafka.call import log_start_offset
from broker.kafka.errors import ErrorCode
from broker.kafka.fetching import offset_since
from broker.kafka.share.acks import AckType, Plan
from broker.kafka.share.configs import Configs
from broker.kafka.share.members import HEARTBEAT_INTERVAL_MS, Members
from broker.kafka.share.owners import Owners
from broker.kafka.share.sessions import Session, Step, advance
from storage.queues import MAX_JOBS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.kafka.call import Peer
    from storage import Engine
    from storage.queues import ClaimedJob
    from storage.state import Topic
    from storage.state.queues import Settled

#: The most sessions of all groups together, as in Kafka (group.share.max.share.sessions).
MAX_SESSIONS: Final = 2000
#: How long a member that leaves may still acknowledge its jobs.
LEAVE_GRACE_S: Final = 2.0
#: The reason that a rejected job has in the dead letter topic.
REJECTED: Final = "rejected by its share group"


class Shares:
    """See the module. `max_members`: the most members of one group."""

    def __init__(self, engine: Engine, *, max_members: int) -> None:
        self._engine = engine
        self.members = Members(max_members)
        self.owners = Owners(engine)
        self.configs = Configs(engine)
        self._sessions: dict[tuple[str, str], Session] = {}
        self._peers: dict[tuple[str, str], Peer] = {}
        self._sweeping: asyncio.Task[None] | None = None
        self._leaving: list[asyncio.TimerHandle] = []

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to expire sessions of members."""
        self._sweeping = asyncio.get_running_loop().create_task(self._sweep())

    async def close(self) -> None:
        for timer in self._leaving:
            timer.cancel()
        if self._sweeping is not None:
            self._sweeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeping

    # -- what other cells have (see `cell_shares`) ---------------------------------------------------------------------

    def refusal(self, group_id: str) -> ErrorCode:
        """The error if another node coordinates the group, or NONE."""
        return ErrorCode.NONE

    async def look(self, group_id: str | None) -> None:
        """Find the queues of the group in other cells (None: of each group), for the methods that do not wait. Raises
        Unavailable."""

    async def look_up_config(self, group_id: str) -> None:
        """Find out the group's config, for `configs`. Raises Unavailable."""

    async def find(self, names: Sequence[str]) -> list[bytes]:
        """The ids of those topics that exist."""
        topics = self._engine.catalog.topics
        found = [topics[name] for name in names if name in topics and "/" not in name]
        return [cluster.uuid_of(topic) for topic in found if not topic.provisional]

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of a topic that `find` has found."""
        topic = cluster.with_uuid(self._engine, topic_id)
        return None if topic is None else topic.name

    async def release(self, group_id: str) -> None:
        """Take all queues away from a group. Durable on return. Raises StorageError."""
        await self.owners.release(group_id)

    def member_left(self, group_id: str, member_id: str, *, forgiven: bool) -> None:
        """A member has left or is overdue: its sessions in other cells end, too."""

    async def _sweep(self) -> None:
        while True:
            await self._engine.clock.sleep(HEARTBEAT_INTERVAL_MS / 1000)
            for group_id, member_id in self.members.overdue(self.now_ms()):
                self.members.leave(group_id, member_id)
                self.end((group_id, member_id), forgiven=False)
                self.member_left(group_id, member_id, forgiven=False)

    def now_ms(self) -> int:
        """Monotonic time."""
        return self._engine.clock.monotonic_ns() // 1_000_000

    # -- sessions ------------------------------------------------------------------------------------------------------

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    def session(self, group_id: str, member_id: str, epoch: int, peer: Peer) -> tuple[Session, Step] | ErrorCode:
        """The session of a request with this epoch, and the effect of the request. The session now belongs to the
        peer: it ends with the peer's connection."""
        key = (group_id, member_id)
        session = self._sessions.get(key)
        step = advance(session, epoch)
        if isinstance(step, ErrorCode):
            return step
        if step is Step.OPEN:
            session = self._opened(key, session)
        if session is None:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        before = self._peers.get(key)
        if before is not peer:
            if before is not None:
                before.when_gone.pop(key, None)
            self._peers[key] = peer
            peer.when_gone[key] = lambda: self._gone(key)
        return session, step

    def is_peer(self, group_id: str, member_id: str, peer: Peer) -> bool:
        """Whether a session of that member belongs to the peer."""
        return self._peers.get((group_id, member_id)) is peer

    def _opened(self, key: tuple[str, str], before: Session | None) -> Session | None:
        if before is None and len(self._sessions) >= MAX_SESSIONS:
            return None
        session = self._sessions[key] = Session(*key)
        if before is not None:
            before.closed = True
            session.held = before.held
        return session

    def _gone(self, key: tuple[str, str]) -> None:
        # When the broker itself stops, this must not count as a delivery.
        self.end(key, forgiven=self._engine.queues.leaving)

    def end(self, key: tuple[str, str], *, forgiven: bool) -> None:
        """End the session of (group id, member id), if it exists, and release its leases. `forgiven`: not as nacks."""
        session, peer = self._sessions.pop(key, None), self._peers.pop(key, None)
        if peer is not None:
            peer.when_gone.pop(key, None)
        if session is None:
            return
        session.closed = True
        for topic_id, holding in session.held.items():
            self.give_back(session, topic_id, list(holding.leases.items()), forgiven=forgiven)

    def leave(self, group_id: str, member_id: str) -> bool:
        """Remove a member. Returns whether it was one. Its session is ended after LEAVE_GRACE_S, unless it closes the
        session itself: its last acknowledgements may still be in flight on another connection."""
        self.end_later((group_id, member_id))
        self.member_left(group_id, member_id, forgiven=True)
        return self.members.leave(group_id, member_id)

    def end_later(self, key: tuple[str, str]) -> None:
        """End the session of (group id, member id) after LEAVE_GRACE_S, unless it closes the session itself."""
        session = self._sessions.get(key)
        if session is not None:
            loop = asyncio.get_running_loop()
            self._leaving.append(loop.call_later(LEAVE_GRACE_S, self._on_session_gone, key, session))

    def _on_session_gone(self, key: tuple[str, str], session: Session) -> None:
        now = asyncio.get_running_loop().time()
        self._leaving = [timer for timer in self._leaving if timer.when() > now]
        if self._sessions.get(key) is session:
            self.end(key, forgiven=True)

    def give_back(
        self, session: Session, topic_id: bytes, leases: Sequence[tuple[int, int]], *, forgiven: bool
    ) -> None:
        """Release these leases, (seq, lease id), in one queue. `forgiven`: not as nacks."""
        topic = cluster.with_uuid(self._engine, topic_id)
        if topic is not None and leases:
            self._engine.queues.give_back(topic.name, node_of(session), leases, forgiven=forgiven)

    # -- groups --------------------------------------------------------------------------------------------------------

    def groups(self) -> dict[str, set[str]]:
        """The names of queues by group id, of all groups with members or queues."""
        found = {group_id: set[str]() for group_id in self.members.groups()}
        for group_id, topic in self.owners.all():
            found.setdefault(group_id, set()).add(topic.name)
        return found

    def queues(self, group_id: str) -> set[str]:
        """The names of the queues of a group."""
        return {topic.name for topic in self.owners.queues(group_id)}

    def topics(self, group_id: str) -> set[str]:
        """The queues of a group, and the topics that its members subscribe to."""
        return self.queues(group_id) | self.members.wanted(group_id)

    def lock_ms(self, group_id: str, topic: Topic) -> int:
        """How long a member of the group holds a job of the queue."""
        return settings.lock_ms(self.configs.of(group_id, [topic.name])) or topic.config.lease_ms

    async def take(self, topic: Topic, group_id: str) -> str:
        """Assign a queue to this group if it has none. Returns its group. A new group begins at the position that its
        config sets. Durable on return. Raises StorageError."""

        async def begin(topic: Topic) -> None:
            now_ms = self._engine.now_ms()
            since_ms = settings.begins_at(self.configs.of(group_id, [topic.name]), now_ms)
            if since_ms is None:
                return
            found = None
            if since_ms < now_ms:
                found = await offset_since(self._engine, topic.name, topic, since_ms)
            await self.begin_at(topic, topic.log.head if found is None else found[0])

        return await self.owners.take(topic, group_id, begin)

    async def begin_at(self, topic: Topic, offset: int) -> None:
        """Delete the jobs before that offset: a queue has no cursor, it begins at its first job."""
        if offset > log_start_offset(topic):
            await self._engine.delete_records(topic.name, before_seq=offset + 1)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    async def claim(self, session: Session, topic: Topic, count: int, wait_ms: int) -> list[ClaimedJob]:
        """Claim up to `count` jobs (1000 at most) of a queue, ordered by seq. The session holds their leases.

        Raises the errors of `Queues.claim`. A cancelled call has claimed nothing.
        """
        holding = session.holding(cluster.uuid_of(topic))
        claimed = await self._engine.queues.claim(
            topic.name,
            node_of(session),
            max=min(count, MAX_JOBS),
            lease_ms=settings.lock_ms(self.configs.of(session.group_id, [topic.name])),
            wait_ms=wait_ms,
            holder=holding,
        )
        if session.closed:
            claimed.undo()
            return []
        jobs = sorted((job for job in claimed.jobs if claimed.stands(job)), key=lambda job: job.record.seq)
        holding.leases.update((job.record.seq, job.lease_id) for job in jobs)
        return jobs

    async def acknowledge(self, session: Session, topic: Topic, plan: Plan) -> bool:
        """Apply the member's acknowledgements. Returns whether all leases were valid. The result is as durable as the
        queue.

        Raises the errors of `Queues.ack`: then some may have been applied and others not.
        """
        leases = session.holding(cluster.uuid_of(topic)).leases
        work = [
            self._apply(type_, topic, session, part, [leases[seq] for seq in part])
            for type_, seqs in plan.seqs.items()
            for part in (seqs[begin : begin + MAX_JOBS] for begin in range(0, len(seqs), MAX_JOBS))
        ]
        done = await asyncio.gather(*work, return_exceptions=True)
        for each in done:
            if isinstance(each, BaseException):
                raise each
        return not any(each.skipped for each in done if not isinstance(each, BaseException))

    async def _apply(
        self, type_: AckType, topic: Topic, session: Session, seqs: list[int], lease_ids: list[int]
    ) -> Settled:
        queues, name, node = self._engine.queues, topic.name, node_of(session)
        match type_:
            case AckType.ACCEPT:
                return await queues.ack(name, node, seqs, lease_ids=lease_ids)
            case AckType.REJECT:
                return await queues.reject(name, node, seqs, lease_ids=lease_ids, reason=REJECTED)
            case AckType.RENEW:
                return await queues.extend(name, node, seqs, self.lock_ms(session.group_id, topic), lease_ids=lease_ids)
            case _:
                return await queues.nack(name, node, seqs, lease_ids=lease_ids)


def node_of(session: Session) -> str:
    """The node that holds the session's leases."""
    return f"share:{session.member_id}"
