"""A full disk is a state, not a failure: no write is stored in part, deletes work, and writes resume by themselves."""

from __future__ import annotations

import errno
from collections.abc import Callable

import msgspec
import pytest

from storage import Durability, Options, TopicConfig
from storage.errors import StorageFull
from tests.support.crash_check import End
from tests.support.crash_run import SMALL, Cut, succeed
from tests.support.crash_session import Session
from tests.support.crash_view import view
from tests.support.sim_disk import Loss, SimDisk

FSYNC = TopicConfig(durability=Durability.FSYNC)
DISK = TopicConfig(durability=Durability.DISK)
KILLED = Cut(End.KILL)
LOST = Cut(End.POWER, Loss.DROP)
TINY = msgspec.structs.replace(SMALL, wal_file_bytes=2048, wal_reserve_bytes=4096)


async def filled(options: Options = TINY) -> Session:
    """A process whose disk has just become full: its last writes were refused."""
    session = Session(SimDisk(), options)
    await session.start()
    await session.append("f", 2, tag="x", config=FSYNC)
    await session.append("d", 2, config=DISK)
    await session.append("doomed", config=FSYNC)
    session.disk.capacity_bytes = session.disk.used_bytes
    while not session.refusals:
        await session.together(session.append("f", size=500), session.append("d", 2, size=200))
    return session


async def test_a_write_refused_by_a_full_disk_leaves_no_trace_and_its_seqs_are_reused() -> None:
    session = await filled()
    assert {type(error) for error in session.refusals} == {StorageFull}
    heads = {state.topic: state.head_seq for state in session.engine.topics()}
    seen = await view(session.engine)
    assert {name: each.records[-1].seq for name, each in seen.items()} == heads
    session.disk.capacity_bytes = None
    await session.pass_time(600)
    for name in ("f", "d"):
        answer = await session.append(name)
        assert answer is not None
        assert answer.first_seq == heads[name] + 1
    await succeed(session, LOST)


async def test_reads_and_deletes_go_on_while_the_disk_is_full() -> None:
    session = await filled()
    await session.remove("f", tag="x")
    await session.remove("d", before_seq=2)
    await session.drop("doomed")
    assert session.ledger.live("doomed") is None
    assert session.engine.state("f").earliest_seq == 3
    assert [problem for each in (await view(session.engine)).values() for problem in each.problems] == []
    await session.append("f")
    await session.put("new", FSYNC)
    assert {error.code for error in session.refusals} == {"storage_full"}
    assert session.engine.failed_shards == []
    for cut in (KILLED, LOST):
        await succeed(Session(session.disk, TINY, clock=session.clock, ledger=session.ledger.copy()), cut)


async def test_writes_resume_with_a_new_reserve_when_the_disk_has_space() -> None:
    session = await filled()
    await session.remove("f", tag="x")
    session.disk.capacity_bytes = None
    assert session.engine.shards[0].log.full
    await session.pass_time(600)
    assert not session.engine.shards[0].log.full
    assert session.engine.shards[0].log.files.has_reserve()
    assert await session.append("f", 3) is not None
    assert await session.append("new", config=DISK) is not None
    await succeed(session, KILLED)


async def test_a_disk_can_fill_up_repeatedly() -> None:
    session = await filled()
    for _ in range(3):
        session.disk.capacity_bytes = None
        await session.pass_time(600)
        assert await session.append("f", size=300) is not None
        session.disk.capacity_bytes = session.disk.used_bytes
        session.refusals.clear()
        while not session.refusals:
            await session.append("f", size=500)
        await session.remove("f", before_seq=session.engine.state("f").head_seq)
    await succeed(session, LOST)


async def test_deletes_are_refused_when_the_reserve_is_used_up_and_taken_when_space_returns() -> None:
    session = await filled()
    session.refusals.clear()
    for seq in range(1, 200):
        await session.remove("f", before_seq=seq)
        if session.refusals:
            break
    assert [error.code for error in session.refusals] == ["storage_full"]
    session.disk.capacity_bytes = None
    await session.pass_time(600)
    session.refusals.clear()
    await session.remove("f", before_seq=3)
    assert session.refusals == []
    await succeed(session, LOST)


@pytest.mark.parametrize("cut", [KILLED, LOST], ids=["kill", "power"])
async def test_a_start_on_a_full_disk_reads_deletes_and_resumes(cut: Cut) -> None:
    session = await filled()
    session.disk.capacity_bytes = session.disk.used_bytes - TINY.wal_file_bytes
    after = await succeed(session, cut)
    assert after.engine.shards[0].log.full
    await after.append("f")
    assert [error.code for error in after.refusals] == ["storage_full"]
    await after.remove("f", tag="x")
    assert after.engine.state("f").earliest_seq == 3
    after.disk.capacity_bytes = None
    await after.pass_time(600)
    assert await after.append("f", 2) is not None
    assert await after.append("d", 2) is not None
    last = await succeed(after, LOST)
    await last.append("d")


def _fill(session: Session) -> None:
    session.disk.capacity_bytes = session.disk.used_bytes


def _quota(session: Session) -> None:
    session.disk.fail("allocate", errno=errno.EDQUOT, sticky=True)


def _no_room_in_place(session: Session) -> None:
    session.disk.fail("pwritev", "*/wal-*.log", errno=errno.ENOSPC, times=2)


@pytest.mark.parametrize("cause", [_fill, _quota, _no_room_in_place])
async def test_every_cause_of_no_space_leads_to_storage_full(cause: Callable[[Session], None]) -> None:
    session = Session(SimDisk(), TINY)
    await session.start()
    await session.append("f", 2, config=FSYNC)
    await session.append("d", 2, config=DISK)
    cause(session)
    while not session.refusals:
        await session.together(session.append("d", size=300), session.append("f", size=300))
    await session.remove("f", before_seq=2)
    assert {error.code for error in session.refusals} == {"storage_full"}
    assert session.engine.failed_shards == []
    session.disk.capacity_bytes = None
    session.disk.clear_faults()
    await session.pass_time(600)
    assert await session.append("f", 2) is not None
    await session.close()
    for cut in (KILLED, LOST):
        await succeed(Session(session.disk, TINY, clock=session.clock, ledger=session.ledger.copy()), cut)


async def test_a_failed_truncate_on_a_full_disk_stops_the_shard() -> None:
    session = Session(SimDisk(), SMALL)
    await session.start()
    await session.append("f", 2, config=FSYNC)
    session.disk.fail("pwritev", "*/wal-*.log", errno=errno.ENOSPC)
    session.disk.fail("truncate", "*/wal-*.log")
    await session.append("f", 2)
    assert session.engine.failed_shards == [(0, errno.EIO)]
    await succeed(session, KILLED, orderly=False)
