"""Topics and time over crashes: deletions that were not synced, class changes, and clocks that jump."""

from __future__ import annotations

import msgspec
import pytest

from storage import Durability, TopicConfig
from tests.support.crash_check import End
from tests.support.crash_run import SMALL, Cut, succeed, until_crash
from tests.support.crash_session import Session
from tests.support.crash_view import view
from tests.support.sim_disk import Loss, SimDisk, When

FSYNC = TopicConfig(durability=Durability.FSYNC)
DISK = TopicConfig(durability=Durability.DISK)
KILLED = Cut(End.KILL)
LOST = Cut(End.POWER, Loss.DROP)
CUTS = [KILLED, *(Cut(End.POWER, loss, seed) for loss in Loss for seed in range(4))]
HOUR_MS = 3_600_000


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("shards", [1, 3])
async def test_an_unsynced_deletion_happened_or_did_not(shards: int, cut: Cut) -> None:
    session = Session(SimDisk(), msgspec.structs.replace(SMALL, wal_shards=shards))
    await session.start()
    await session.append("t", 3, config=FSYNC)
    session.disk.crash_on("datasync")
    await until_crash(session.disk, session.drop("t"))
    after = await succeed(session, cut)
    await after.append("t", 2, config=DISK)
    await succeed(after, LOST)


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
async def test_a_recreated_topic_never_shows_records_of_the_deleted_topic(when: When, cut: Cut) -> None:
    session = Session(SimDisk(), msgspec.structs.replace(SMALL, wal_shards=3))
    await session.start()
    for _ in range(3):
        await session.append("t", 2, config=DISK)
        await session.drop("t")
    session.disk.crash_on("datasync", when=when)
    await until_crash(session.disk, session.append("t", 2, config=FSYNC))
    after = await succeed(session, cut)
    former = [life.topic_id for life in after.ledger.lives if life.topic_id]
    await after.append("t", 2)
    assert after.engine.state("t").topic_id >= max(former)


@pytest.mark.parametrize("before", list(Durability))
@pytest.mark.parametrize("after", list(Durability))
async def test_a_change_of_class_keeps_records_acked_before_the_change(before: Durability, after: Durability) -> None:
    session = Session(SimDisk(), SMALL)
    await session.start()
    await session.put("t", TopicConfig(durability=before))
    await session.append("t", 3)
    await session.put("t", TopicConfig(durability=after))
    await session.append("t", 2)
    for cut in CUTS:
        await succeed(Session(session.disk, SMALL, clock=session.clock, ledger=session.ledger.copy()), cut)


async def test_ts_never_goes_backwards_after_a_clock_that_was_ahead_is_set_back() -> None:
    session = Session(SimDisk(), SMALL)
    await session.start()
    await session.append("t", config=FSYNC)
    session.clock.set_wall(session.clock.wall_ms() + 5 * HOUR_MS)
    await session.append("t")
    await session.snapshot()
    ahead = session.clock.wall_ms()
    for setback in (1, 2, 3):
        session.clock.set_wall(session.clock.wall_ms() - setback * HOUR_MS)
        session = await succeed(session, LOST)
        await session.append("t")
    seen = (await view(session.engine))["t"]
    assert [record.ts for record in seen.records][1:] == [ahead] * 4
    assert not seen.problems


async def test_a_topic_without_records_keeps_its_time_over_a_restart() -> None:
    session = Session(SimDisk(), SMALL)
    await session.start()
    session.clock.set_wall(session.clock.wall_ms() + 5 * HOUR_MS)
    ahead = session.clock.wall_ms()
    await session.append("t", config=FSYNC)
    await session.remove("t", before_seq=2)
    await session.snapshot()
    await session.snapshot()
    session.clock.set_wall(ahead - 6 * HOUR_MS)
    after = await succeed(session, LOST)
    await after.append("t")
    assert (await view(after.engine))["t"].records[0].ts >= ahead


async def test_ttl_counts_engine_time_after_the_clock_was_set_back() -> None:
    session = Session(SimDisk(), SMALL)
    await session.start()
    session.clock.set_wall(session.clock.wall_ms() + HOUR_MS)
    await session.append("t", 2, config=msgspec.structs.replace(FSYNC, ttl_ms=60_000))
    session.clock.set_wall(session.clock.wall_ms() - 2 * HOUR_MS)
    after = await succeed(session, LOST)
    await after.pass_time(50_000)
    await after.append("t")
    assert after.engine.state("t").count == 3
    await after.pass_time(20_000)
    assert after.engine.state("t").earliest_seq == 3
    await after.pass_time(60_000)
    assert after.engine.state("t").count == 0


async def test_records_expired_during_the_downtime_are_evicted_with_a_tombstone() -> None:
    session = Session(SimDisk(), SMALL)
    await session.start()
    await session.append("t", 2, config=msgspec.structs.replace(FSYNC, ttl_ms=60_000))
    session.clock.set_wall(session.clock.wall_ms() + HOUR_MS)
    after = await succeed(session, LOST)
    seen = (await view(after.engine))["t"]
    assert [(each.gap_from, each.gap_to, each.reason) for each in seen.tombstones] == [(1, 2, "ttl")]


async def test_keys_live_a_whole_window_after_a_restart() -> None:
    session = Session(SimDisk(), SMALL)
    await session.start()
    await session.append("t", 2, key="k", config=msgspec.structs.replace(FSYNC, idempotency_window_ms=10_000))
    session.clock.set_wall(session.clock.wall_ms() + HOUR_MS)
    after = await succeed(session, LOST)
    life = after.ledger.live("t")
    assert life is not None
    records = [record.new() for record in life.writes[0].records]
    await after.pass_time(9_000)
    assert (await after.engine.append("t", records, idempotency_key="k")).deduped
    await after.pass_time(1_500)
    assert not (await after.engine.append("t", records, idempotency_key="k")).deduped


@pytest.mark.parametrize("trust", [True, False])
async def test_a_killed_process_leaves_no_gap_unless_the_page_cache_is_not_trusted(trust: bool) -> None:
    options = msgspec.structs.replace(SMALL, trust_page_cache=trust)
    session = Session(SimDisk(), options)
    await session.start()
    await session.append("t", 3, config=DISK)
    after = await succeed(session, KILLED, orderly=trust)
    answer = await after.append("t")
    assert answer is not None
    assert answer.first_seq == (4 if trust else 257)


async def test_a_clean_stop_leaves_no_gap_even_when_the_machine_is_off_meanwhile() -> None:
    session = Session(SimDisk(), SMALL)
    await session.start()
    await session.append("t", 3, config=DISK)
    await session.close()
    after = await succeed(session, LOST)
    answer = await after.append("t")
    assert answer is not None
    assert answer.first_seq == 4
