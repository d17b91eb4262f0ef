"""Another shard count while segments are in the cold tier: they stay where they are, and all changes to them still
reach both tiers."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import islice
from random import Random

import msgspec
import pytest

from storage import Engine
from storage.segments.names import DATA
from storage.segments.store import id_of
from storage.segments.tiering.directory import DirectoryStore
from storage.state.manifest import COLD
from tests.crash.cold_view import MOUNT, objects, tier_problems
from tests.crash.resharding import (
    CHANGES,
    OPTIONS,
    crashed_with,
    cut_by,
    decoded,
    examine,
    filled,
    points_of,
    shards,
    some_of_everything,
    stopped,
)
from tests.crash.workloads import DISK, FSYNC
from tests.support.crash_check import End, Ending, check
from tests.support.crash_run import Crashed, CrashPoint, Cut, carry_on, run, succeed
from tests.support.crash_session import ROOT, Session
from tests.support.sim_disk import Loss
from tests.support.slow_store import FailingStore

COLD_OPTIONS = msgspec.structs.replace(OPTIONS, cold_dir=MOUNT, hot_retain_segments=0)
SAMPLE_POINTS = 15
MAX_FAILURES = 3


async def settle(s: Session) -> None:
    await s.mark_flushed()
    await s.relocate()


async def some_of_it_cold(s: Session) -> None:
    """Segments in both tiers, and deletions in cold ones: known to the files, not yet known to them, and pending."""
    await some_of_everything(s)
    await settle(s)
    for tag in ("p", "q", "p", "r"):
        await s.append("old", 4, tag=tag, config=FSYNC)
        await s.append("older", 4, tag=tag, config=DISK)
    await settle(s)
    await s.snapshot()
    await s.remove("old", tag="q")
    await settle(s)
    await s.append("gone-too", 9, config=FSYNC)
    await settle(s)
    await s.append("old", 3, tag="s")
    await s.remove("older", before_seq=6)
    await s.mark_flushed()
    await s.remove("old", tag="r")
    await s.remove("older", tag="p")
    await s.drop("gone-too")


def cold_data(session: Session) -> dict[str, bytes]:
    """The .data objects that the manifests name, by key."""
    cold, there = session.engine.store.cold, objects(session.disk)
    assert cold is not None
    return {
        key: there[key]
        for topic in session.engine.catalog.topics.values()
        for segment in topic.log.held.manifest.segments
        if segment.tier == COLD
        for key in [cold.key(id_of(topic.topic_id, segment), DATA)]
    }


@pytest.mark.parametrize("end", ["kill", "power", "clean"])
async def test_cold_segments_stay_over_resharding_and_later_changes_reach_both_tiers(end: str) -> None:
    session = await filled(1, COLD_OPTIONS, some_of_it_cold)
    dice = Random(random.getrandbits(32))
    for number, count in enumerate((4, 2, 1, 3)):
        before = cold_data(session)
        assert len(before) > 2
        cut = Cut(End.POWER, dice.choice(list(Loss)), dice.randrange(1 << 30)) if end == "power" else Cut(End.KILL)
        if end == "clean":
            await session.close()
        session = await succeed(session, cut, options=shards(count, COLD_OPTIONS))
        assert cold_data(session) == before
        decoded(session.disk)
        await settle(session)
        await settle(session)
        assert tier_problems(session) == []
        await session.append(f"more-{number}", 8, tag="m", config=DISK)
        await session.remove("old", before_seq=3 + number)
        await session.remove("older", tag="qrs"[number % 3])
        await session.remove("d", tag="x")
        await settle(session)
        await session.remove(f"more-{number}", tag="m")
        if number == 2:
            await session.drop("older")
        await settle(session)
        await settle(session)
        assert tier_problems(session) == []
        decoded(session.disk)
    assert not [key for key in objects(session.disk) if f"{_life(session, 'older'):016x}" in key]
    await carry_on(session)


def _life(session: Session, name: str) -> int:
    return next(life.topic_id for life in session.ledger.lives if life.name == name)


# -- stopped at every call ---------------------------------------------------------------------------------------------


async def _settled(found: Crashed, count: int, cut: Cut) -> list[str]:
    """A start continues to the end, and the tier gets the files that the manifests name."""
    session = Session(cut.of(found.disk), shards(count, COLD_OPTIONS), clock=found.clock, ledger=found.ledger.copy())
    await session.start()
    for _ in range(3):
        await settle(session)
    problems = tier_problems(session)
    decoded(session.disk)
    return problems + await check(session.engine, session.ledger, Ending(cut.end, orderly=False))


def _failures(before: int, after: int, tries: Iterable[tuple[CrashPoint, Cut]]) -> Iterator[str]:
    crashed = crashed_with(before, COLD_OPTIONS, some_of_it_cold)
    for point, cut in tries:
        disk = crashed.disk.process_kill()
        disk.crash_at(point.index, point.when)
        run(stopped(disk, after, crashed, COLD_OPTIONS))
        left = Crashed(disk, crashed.ledger, crashed.clock, orderly=False)
        for count in (before, after):
            try:
                ending = Ending(cut.end, orderly=False)
                problems = run(examine(cut.of(disk), crashed, count, ending, cut.seed, COLD_OPTIONS))
                problems += run(_settled(left, count, cut))
            except Exception as error:
                error.add_note(f"{before} to {after}, {point}, {cut}, then {count}")
                raise
            if problems:
                yield "\n  ".join([f"{before} to {after}, {point}, {cut}, then {count}", *problems])


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_a_change_stopped_at_sampled_calls_keeps_both_tiers(before: int, after: int) -> None:
    rng = Random(random.getrandbits(32))
    points = points_of(crashed_with(before, COLD_OPTIONS, some_of_it_cold), after, COLD_OPTIONS)
    sample = ((point, cut_by(rng)) for point in rng.sample(points, SAMPLE_POINTS))
    assert list(islice(_failures(before, after, sample), MAX_FAILURES)) == []


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_a_change_stopped_at_any_call_keeps_both_tiers(before: int, after: int) -> None:
    rng = Random(random.getrandbits(32))
    points = points_of(crashed_with(before, COLD_OPTIONS, some_of_it_cold), after, COLD_OPTIONS)
    assert list(islice(_failures(before, after, ((point, cut_by(rng)) for point in points)), MAX_FAILURES)) == []


async def test_a_change_of_the_shard_count_makes_no_call_to_the_cold_store() -> None:
    session = await filled(2, COLD_OPTIONS, some_of_it_cold)
    before = cold_data(session)
    disk = session.disk.process_kill()
    store = FailingStore(DirectoryStore(disk, MOUNT))
    store.fail(times=None)

    def make() -> Engine:
        return Engine(ROOT, shards(3, COLD_OPTIONS), fs=disk, clock=session.clock, threaded=False, cold=store)

    changed = Session(disk, shards(3, COLD_OPTIONS), clock=session.clock, ledger=session.ledger, make=make)
    await changed.start()
    assert len(changed.engine.shards) == 3
    assert store.calls == []
    store.mend()
    assert cold_data(changed) == before
    assert await check(changed.engine, changed.ledger, Ending(End.KILL)) == []
    for _ in range(2):
        await settle(changed)
    assert tier_problems(changed) == []
