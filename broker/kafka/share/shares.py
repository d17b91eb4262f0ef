"""The share groups of a broker: sessions, members, and the leases they hold.

A job that a member acquires is leased to the node `share:<member id>`. When the member leaves or ends its session,
its leases are released without counting as deliveries. When its connection breaks or its session expires, they are
released like a nack, because a job that kills its worker must reach the dead letter topic. The group of a queue is
durable (see `owners`), and so are leases if the queue's are. Sessions and members are not: after a restart clients
begin anew by themselves.

All methods belong to the loop.

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
from broker.kafka.share.sessions import Session, Step, judge
from storage.queues import MAX_JOBS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.kafka.call import Peer
    from storage import Engine
    from storage.queues import ClaimedJob
    from storage.state import Topic
    from storage.state.queues import Settled

#: Sessions of all groups together, as in Kafka (group.share.max.share.sessions).
MAX_SESSIONS: Final = 2000
#: How long a leaving member may take to acknowledge its jobs.
LEAVE_GRACE_S: Final = 2.0
#: The reason of a rejected job, in the dead letter topic.
REJECTED: Final = "rejected by its share group"


class Shares:
    """See the module. `max_members`: of one group."""

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
        """From now on sessions of members expire."""
        self._sweeping = asyncio.get_running_loop().create_task(self._sweep())

    async def close(self) -> None:
        for timer in self._leaving:
            timer.cancel()
        if self._sweeping is not None:
            self._sweeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeping

    async def _sweep(self) -> None:
        while True:
            await self._engine.clock.sleep(HEARTBEAT_INTERVAL_MS / 1000)
            for group_id, member_id in self.members.overdue(self.now_ms()):
                self.members.leave(group_id, member_id)
                self.end((group_id, member_id), forgiven=False)

    def now_ms(self) -> int:
        """A time that never goes back."""
        return self._engine.clock.monotonic_ns() // 1_000_000

    # -- sessions ------------------------------------------------------------------------------------------------------

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    def session(self, group_id: str, member_id: str, epoch: int, peer: Peer) -> tuple[Session, Step] | ErrorCode:
        """The session of a request with this epoch, and its relation to the request. From now on it belongs to the
        peer."""
        key = (group_id, member_id)
        session = self._sessions.get(key)
        step = judge(session, epoch)
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
        # When the broker itself stops, its members are not at fault.
        self.end(key, forgiven=self._engine.queues.leaving)

    def end(self, key: tuple[str, str], *, forgiven: bool) -> None:
        """End the session of (group id, member id), if there is one: release all its leases."""
        session, peer = self._sessions.pop(key, None), self._peers.pop(key, None)
        if peer is not None:
            peer.when_gone.pop(key, None)
        if session is None:
            return
        session.closed = True
        for topic_id, holding in session.held.items():
            self.give_back(session, topic_id, list(holding.leases.items()), forgiven=forgiven)

    def leave(self, group_id: str, member_id: str) -> bool:
        """The member leaves; returns whether it was a member. Its session ends too, unless it does so itself: the
        request may come on another connection than its last acknowledgements, which may still be in flight."""
        key = (group_id, member_id)
        session = self._sessions.get(key)
        if session is not None:
            loop = asyncio.get_running_loop()
            self._leaving.append(loop.call_later(LEAVE_GRACE_S, self._on_session_gone, key, session))
        return self.members.leave(group_id, member_id)

    def _on_session_gone(self, key: tuple[str, str], session: Session) -> None:
        now = asyncio.get_running_loop().time()
        self._leaving = [timer for timer in self._leaving if timer.when() > now]
        if self._sessions.get(key) is session:
            self.end(key, forgiven=True)

    def give_back(
        self, session: Session, topic_id: bytes, leases: Sequence[tuple[int, int]], *, forgiven: bool
    ) -> None:
        """Release these leases, (seq, token), of one of its queues."""
        topic = cluster.with_uuid(self._engine, topic_id)
        if topic is not None and leases:
            self._engine.queues.give_back(topic.name, node_of(session), leases, forgiven=forgiven)

    # -- groups --------------------------------------------------------------------------------------------------------

    def groups(self) -> dict[str, set[str]]:
        """Groups with members or queues: the names of their queues, by the id of the group."""
        found = {group_id: set[str]() for group_id in self.members.groups()}
        for group_id, topic in self.owners.all():
            found.setdefault(group_id, set()).add(topic.name)
        return found

    def topics(self, group_id: str) -> set[str]:
        """Its queues, and the topics its members want."""
        return {topic.name for topic in self.owners.queues(group_id)} | self.members.wanted(group_id)

    def lock_ms(self, group_id: str, topic: Topic) -> int:
        """How long a member of that group has a job of that queue."""
        return settings.lock_ms(self.configs.of(group_id, [topic.name])) or topic.config.lease_ms

    async def take(self, topic: Topic, group_id: str) -> str:
        """The group that a queue belongs to: this one if it had none. Then it begins at the position that the
        group's config sets. Durable on return. Raises StorageError."""

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
        """Delete the jobs before that offset: a queue can only begin at its first job."""
        if offset > log_start_offset(topic):
            await self._engine.delete_records(topic.name, before_seq=offset + 1)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    async def claim(self, session: Session, topic: Topic, count: int, wait_ms: int) -> list[ClaimedJob]:
        """Up to `count` jobs (1000 at most) of that queue, by seq; the session holds them on return.

        Raises what `Queues.claim` raises. A cancelled call has claimed nothing.
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
        """Carry out the member's acknowledgements; returns whether all leases stood. On return the result is as
        durable as the queue.

        Raises what `Queues.ack` raises: then some may be done and some not.
        """
        leases = session.holding(cluster.uuid_of(topic)).leases
        work = [
            self._say(type_, topic, session, part, [leases[seq] for seq in part])
            for type_, seqs in plan.seqs.items()
            for part in (seqs[begin : begin + MAX_JOBS] for begin in range(0, len(seqs), MAX_JOBS))
        ]
        done = await asyncio.gather(*work, return_exceptions=True)
        for each in done:
            if isinstance(each, BaseException):
                raise each
        return not any(each.skipped for each in done if not isinstance(each, BaseException))

    async def _say(
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
    """The node that holds its leases."""
    return f"share:{session.member_id}"
