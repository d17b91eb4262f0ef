"""Writes and syncs that fail: the shard stops, no uncertain write is acked, and the next start is consistent."""

from __future__ import annotations

import errno

import msgspec
import pytest

from storage import Durability, TopicConfig
from storage.errors import StorageFailed
from storage.state.catalog import shard_of
from tests.support.crash_check import End
from tests.support.crash_run import SMALL, Cut, carry_on, succeed
from tests.support.crash_session import ROOT, Session
from tests.support.crash_view import view
from tests.support.sim_disk import Loss, SimDisk

FSYNC = TopicConfig(durability=Durability.FSYNC)
DISK = TopicConfig(durability=Durability.DISK)
KILLED = Cut(End.KILL)
LOST = Cut(End.POWER, Loss.DROP)
TWO = msgspec.structs.replace(SMALL, wal_shards=2)


async def two_shards(config: TopicConfig = FSYNC) -> tuple[Session, str, str]:
    """A process with a topic in each of two shards. The names are those of shard 0 and of shard 1."""
    session = Session(SimDisk(), TWO)
    await session.start()
    names: dict[int, str] = {}
    number = 0
    while len(names) < 2:
        number += 1
        names.setdefault(shard_of(number, 2), f"t{number}")
        await session.append(f"t{number}", 2, config=config)
    return session, names[0], names[1]


@pytest.mark.parametrize("op", ["datasync", "pwritev"])
@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS])
async def test_a_disk_error_stops_its_shard_and_the_other_shard_serves_on(op: str, code: int) -> None:
    session, bad, good = await two_shards()
    session.disk.fail(op, "*shard-00*", errno=code)
    await session.together(*(session.append(bad) for _ in range(3)), session.append(good, 2))
    for _ in range(2):  # the disk would accept writes again, but this shard no longer makes any
        await session.append(bad)
    await session.remove(bad, before_seq=2)
    await session.put(bad, msgspec.structs.replace(FSYNC, cap_records=9))
    assert {type(error) for error in session.refusals} == {StorageFailed}
    assert len(session.refusals) == 7
    assert all(error.detail["outcome"] == "unknown" for error in session.refusals)
    assert session.engine.failed_shards == [(0, code)]
    assert [record.seq for record in (await view(session.engine))[bad].records] == [1, 2]
    await session.append(good)
    await session.snapshot()
    for cut in (KILLED, LOST):
        found = Session(session.disk, TWO, clock=session.clock, ledger=session.ledger.copy())
        await succeed(found, cut, orderly=False)


async def test_topics_are_created_only_in_healthy_shards() -> None:
    session, bad, _ = await two_shards()
    session.disk.fail("datasync", "*shard-00*")
    await session.append(bad)
    for number in range(6):
        assert await session.append(f"new-{number}", config=FSYNC) is not None
    after = await succeed(session, LOST, orderly=False)
    assert all(after.engine.topic(f"new-{number}").log.shard == 1 for number in range(6))


async def test_a_keyed_retry_resolves_a_write_of_unknown_outcome() -> None:
    session = Session(SimDisk(), SMALL)
    await session.start()
    await session.append("t", 2, key="before", config=FSYNC)
    session.disk.fail("datasync")
    await session.append("t", 3, key="open")
    assert [error.code for error in session.refusals] == ["storage_failed"]
    for cut, deduped in ((KILLED, True), (LOST, False)):
        found = Session(session.disk, SMALL, clock=session.clock, ledger=session.ledger.copy())
        after = await succeed(found, cut, orderly=False)
        life = after.ledger.live("t")
        assert life is not None
        records = [record.new() for record in life.writes[1].records]
        answer = await after.engine.append("t", records, idempotency_key="open")
        assert (answer.deduped, answer.first_seq, answer.count) == (deduped, 3, 3)


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("config", [FSYNC, DISK], ids=["fsync", "disk"])
async def test_frames_left_in_the_page_cache_by_a_failed_sync_are_written_again(
    config: TopicConfig, torn: bool
) -> None:
    """After a failed fsync the kernel treats the pages as clean: a later fsync of the same file succeeds and writes
    nothing.
    """
    session = Session(SimDisk(), SMALL)
    await session.start()
    await session.append("t", 2, config=config)
    await session.append("f", 2, config=FSYNC)
    await session.append("t", 2)
    session.disk.fail("datasync", torn=torn, seed=4)
    await session.append("f", 3)
    second = await succeed(session, KILLED, orderly=False)
    before = await view(second.engine)
    third = await succeed(second, LOST)
    await third.append("t")
    assert (await view(third.engine))["f"] == before["f"]
    assert (await view(third.engine))["t"].records[: len(before["t"].records)] == before["t"].records


async def test_an_unsynced_write_with_a_pending_deletion_is_announced_as_lost() -> None:
    """Its key is forgotten with it and the loss is announced: a deletion with an open outcome does not explain it."""
    session = Session(SimDisk(), SMALL)
    await session.start()
    await session.put("t", TopicConfig(durability=Durability.MEMORY))
    session.disk.fail("datasync")
    await session.append("t", 3, tag="red", key="k")
    await session.remove("t", tag="red")
    after = await succeed(session, LOST, orderly=False)
    (write,) = session.ledger.lives[0].writes
    assert write.lost
    await carry_on(after)


@pytest.mark.parametrize("op", ["pwritev", "sync"])
async def test_a_failed_sync_in_recovery_refuses_the_start_and_the_next_start_writes_again(op: str) -> None:
    session = Session(SimDisk(), SMALL)
    await session.start()
    await session.append("t", 2, config=FSYNC)
    session.disk.fail("datasync")
    await session.append("t", 2)
    disk = session.disk.process_kill()
    disk.fail(op, "*/wal-*")
    with pytest.raises(OSError, match="Input/output error"):
        await Session(disk, SMALL).start()
    refused = Session(disk, SMALL, clock=session.clock, ledger=session.ledger)
    second = await succeed(refused, KILLED, orderly=False)
    assert second.engine.state("t").count == 4
    await succeed(second, LOST)


async def test_a_failed_sync_at_rotation_stops_the_shard() -> None:
    options = msgspec.structs.replace(SMALL, wal_file_bytes=2048)
    session = Session(SimDisk(), options)
    await session.start()
    await session.append("d", 2, config=DISK)
    await session.append("d", size=900)
    session.disk.fail("sync", "*0001.log")
    await session.append("d", size=900)
    assert session.engine.failed_shards == [(0, errno.EIO)]
    for cut in (KILLED, LOST):
        found = Session(session.disk, options, clock=session.clock, ledger=session.ledger.copy())
        second = await succeed(found, cut, orderly=False)
        await second.append("d", 2)
        await succeed(second, LOST)


async def test_a_failed_timer_sync_stops_the_shard_and_acked_records_stay_readable() -> None:
    session = Session(SimDisk(), SMALL)
    await session.start()
    await session.append("d", 2, config=DISK)
    await session.append("d", 3)
    session.disk.fail("datasync")
    await session.pass_time(200)
    await session.append("d")
    assert [error.code for error in session.refusals] == ["storage_failed"]
    assert (await view(session.engine))["d"].state.head_seq == 5
    for cut in (KILLED, LOST):
        found = Session(session.disk, SMALL, clock=session.clock, ledger=session.ledger.copy())
        await succeed(found, cut, orderly=False)


async def test_a_stop_with_a_failed_shard_is_not_clean_and_loses_no_acked_write() -> None:
    session, bad, good = await two_shards(DISK)
    await session.snapshot()
    await session.append(bad, 2)
    session.disk.fail("datasync", "*shard-00*")
    await session.pass_time(200)
    await session.append(good, 2)
    await session.close()
    await succeed(session, KILLED, orderly=False)


@pytest.mark.parametrize("op", ["pwritev", "sync", "rename", "sync_dir", "open"])
async def test_a_failed_snapshot_stops_no_shard_and_is_taken_again(op: str) -> None:
    session = Session(SimDisk(), SMALL)
    await session.start()
    await session.append("t", 2, config=FSYNC)
    session.disk.fail(op, f"{ROOT}/meta*")
    with pytest.raises(OSError, match="Input/output error"):
        await session.engine.snapshotter.take()
    await session.append("t", 2)
    await session.engine.snapshotter.take()
    await session.engine.snapshotter.take()
    assert session.engine.failed_shards == []
    await succeed(session, LOST)


@pytest.mark.parametrize("index", range(0, 60, 3))
async def test_an_io_error_during_a_start_fails_the_start_and_the_next_start_is_complete(index: int) -> None:
    session = Session(SimDisk(), SMALL)
    await session.start()
    await session.append("t", 2, config=FSYNC)
    await session.append("d", 2, config=DISK)
    await session.snapshot()
    await session.append("t", 3)
    disk = session.disk.power_cut(Loss.TORN, seed=index)
    disk.fail("*", nth=index + 1)
    start = Session(disk, SMALL, clock=session.clock, ledger=session.ledger.copy())
    try:
        await start.start()
    except OSError:
        assert not start.engine.ready
    again = Session(disk, SMALL, clock=session.clock, ledger=session.ledger)
    await succeed(again, LOST, orderly=False)
