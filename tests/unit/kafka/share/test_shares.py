"""Share groups on an engine without a port: silent members, members that leave, and limits on their number."""

from __future__ import annotations

import pytest

from broker.kafka import cluster
from broker.kafka.call import Peer
from broker.kafka.errors import ErrorCode
from broker.kafka.share import shares as module
from broker.kafka.share.members import SESSION_TIMEOUT_MS
from broker.kafka.share.sessions import Session
from broker.kafka.share.shares import Shares
from storage import Engine
from tests.unit.storage.machine import Machine
from tests.unit.storage.queues.jobs import add, turns, with_jobs

DURABLE = pytest.mark.parametrize("leases_durable", [False, True])


def opened(shares: Shares, member_id: str = "m", peer: Peer | None = None, epoch: int = 0) -> Session:
    found = shares.session("g", member_id, epoch, peer or Peer(None, ("", 0), ""))
    assert not isinstance(found, ErrorCode)
    return found[0]


async def taken(shares: Shares, session: Session, engine: Engine, wait_ms: int = 0) -> list[tuple[int, int]]:
    """Seqs and delivery counts of the acquired records."""
    jobs = await shares.claim(session, engine.topic("q"), 10, wait_ms)
    return [(job.record.seq, job.deliveries) for job in jobs]


@DURABLE
async def test_jobs_of_a_silent_member_are_nacked(machine: Machine, leases_durable: bool) -> None:
    engine = await with_jobs(
        machine, 1, leases_durable=leases_durable, max_deliveries=1, dead_letter="dead", lease_ms=3_600_000
    )
    shares = Shares(engine, max_members=10)
    shares.start()
    shares.members.heartbeat("g", "m", 0, ("q",), shares.now_ms())
    assert await taken(shares, opened(shares), engine) == [(1, 1)]
    await machine.clock.advance(SESSION_TIMEOUT_MS)
    assert (shares.sessions, len(shares.members)) == (1, 1)
    await machine.clock.advance(SESSION_TIMEOUT_MS)
    await turns()
    assert (shares.sessions, len(shares.members)) == (0, 0)
    assert engine.queues.figures("q").dead_lettered == 1
    await shares.close()


@DURABLE
async def test_jobs_claimed_for_a_closed_session_are_released(machine: Machine, leases_durable: bool) -> None:
    engine = await with_jobs(machine, 1, leases_durable=leases_durable, max_deliveries=1, dead_letter="dead")
    shares = Shares(engine, max_members=10)
    session = opened(shares)
    shares.end(("g", "m"), forgiven=True)
    assert await taken(shares, session, engine) == []
    await turns()
    assert await taken(shares, opened(shares), engine) == [(1, 2)]


async def test_a_shutdown_counts_no_delivery_against_the_jobs(machine: Machine) -> None:
    engine = await with_jobs(machine, 1, max_deliveries=1, dead_letter="dead")
    shares, peer = Shares(engine, max_members=10), Peer(None, ("", 0), "")
    await taken(shares, opened(shares, peer=peer), engine)
    engine.begin_shutdown()
    for then in [*peer.when_gone.values()]:
        then()
    assert peer.when_gone == {}
    engine = await machine.restart()
    assert engine.queues.figures("q").ready == 1


async def test_a_session_belongs_to_the_connection_of_its_last_request(machine: Machine) -> None:
    engine = await with_jobs(machine, 1)
    shares = Shares(engine, max_members=10)
    first, second = Peer(None, ("", 0), ""), Peer(None, ("", 0), "")
    session = opened(shares, peer=first)
    assert opened(shares, peer=second, epoch=1) is session
    assert (len(first.when_gone), len(second.when_gone)) == (0, 1)
    shares.end(("g", "m"), forgiven=True)
    assert not second.when_gone


async def test_number_of_sessions_is_limited(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SESSIONS", 2)
    shares = Shares(await with_jobs(machine), max_members=10)
    opened(shares, "a")
    opened(shares, "b")
    opened(shares, "a")
    peer = Peer(None, ("", 0), "")
    assert shares.session("g", "c", 0, peer) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert peer.when_gone == {}


async def test_owners_of_deleted_queues_are_forgotten(machine: Machine) -> None:
    engine = await with_jobs(machine)
    shares = Shares(engine, max_members=10)
    topic = engine.topic("q")
    for _ in range(3):
        topic = engine.topic("q")
        assert await shares.owners.take(topic, "g") == "g"
        assert await shares.owners.take(topic, "other") == "g"
        config = topic.config
        await engine.delete_topic("q")
        await engine.put_topic("q", config)
    assert len(engine.states.items("share_group")) == 1
    assert cluster.uuid_of(engine.topic("q")) != cluster.uuid_of(topic)
    await add(engine)
    engine = await machine.kill()
    assert Shares(engine, max_members=10).owners.owner(engine.topic("q")) is None
