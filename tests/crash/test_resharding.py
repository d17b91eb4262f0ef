"""Another number of log shards: a start may end anywhere during the change, and either number starts from what that
left."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Iterable, Iterator
from itertools import islice
from random import Random

import pytest

from storage.errors import StorageError
from storage.platform import layout
from storage.snapshot import contents as snapshot
from tests.crash.resharding import (
    CHANGES,
    crashed_with,
    cut_by,
    decoded,
    examine,
    filled,
    log_folders,
    points_of,
    segment_files,
    shards,
    stopped,
)
from tests.crash.workloads import DISK, FSYNC
from tests.support.crash_check import End, Ending, check
from tests.support.crash_run import Crashed, CrashPoint, Cut, carry_on, run, succeed
from tests.support.crash_session import ROOT, Session
from tests.support.sim_disk import Loss, SimDisk

SAMPLE_POINTS = 20
SAMPLE_ERRORS = 12
MAX_FAILURES = 3


@pytest.mark.parametrize("end", ["kill", "power", "clean"])
async def test_successive_shard_counts_keep_all_records(end: str) -> None:
    session = await filled(1)
    dice = Random(random.getrandbits(32))
    for number, count in enumerate((4, 2, 1, 8, 3, 3, 1)):
        loss = dice.choice(list(Loss))
        cut = Cut(End.POWER, loss, dice.randrange(1 << 30)) if end == "power" else Cut(End.KILL)
        if end == "clean":
            await session.close()
        session = await succeed(session, cut, options=shards(count))
        assert len(session.engine.shards) == len(decoded(session.disk).shards) == count
        assert sorted(log_folders(session.disk)) == (
            ["wal"] if count == 1 else [f"wal/shard-{shard:02d}" for shard in range(count)]
        )
        assert [state.topic for state in session.engine.topics(limit=100)] == sorted(
            {life.name for life in session.ledger.lives} - {"gone"}
        )
        if number % 2:
            await session.snapshot()
            await session.mark_flushed()
        await carry_on(session)
        await session.append("d", 2, size=600, key=f"turn-{number}")
        await session.remove("d", tag="x")
        await session.append(f"new-{number}", 3, config=DISK)
    again = await succeed(session, Cut(End.POWER, Loss.DROP), options=shards(0))
    assert len(again.engine.shards) == 1, "0 is the count of the newest snapshot"


async def test_files_of_the_previous_shard_layout_are_removed() -> None:
    session = await filled(1)
    session = await succeed(session, Cut(End.KILL), options=shards(3))
    assert not [path for path in session.disk.content() if path.startswith(f"{ROOT}/wal/") and "/shard-" not in path]
    session = await succeed(session, Cut(End.KILL), options=shards(1))
    assert not [path for path in session.disk.tree() if "/shard-" in path]


async def test_both_snapshots_have_the_new_layout_and_begin_at_its_first_files() -> None:
    session = await filled(2)
    session = await succeed(session, Cut(End.KILL), options=shards(3))
    [first] = {name for names in log_folders(session.disk).values() for name in names[:1]}
    begin = (layout.wal_numbers([first])[0], 0)
    paths = [path for path in session.disk.tree() if "/meta/snapshot-" in path]
    for body in [snapshot.decode(session.disk.read_file(path)) for path in paths]:
        assert (body.shards, body.clean, body.redo_from) == (3, False, [begin] * 3)
        assert {snapshot.decode_section(section).as_of for section in body.sections} == {begin}
    assert len(paths) == 2


async def test_file_numbers_never_restart() -> None:
    session = await filled(2)
    highest = ""
    for count in (4, 2, 4, 1, 4):
        numbers = [name for names in log_folders(session.disk).values() for name in names]
        highest = max([highest, *numbers])
        session = await succeed(session, Cut(End.KILL), options=shards(count))
        assert min(min(names) for names in log_folders(session.disk).values()) > highest
        await session.append("f", 4, size=900)


async def test_seqs_reserved_before_a_change_of_the_shard_count_are_not_reused() -> None:
    session = Session(SimDisk(), shards(1))
    await session.start()
    await session.append("d", 200, size=1, config=DISK)
    second = await succeed(session, Cut(End.POWER, Loss.DROP), options=shards(2))
    third = await succeed(second, Cut(End.POWER, Loss.DROP), options=shards(1))
    answer = await third.append("d")
    assert answer is not None
    assert answer.first_seq > 200


async def test_the_shard_count_of_an_empty_directory_changes() -> None:
    session = Session(SimDisk(), shards(1))
    await session.start()
    for count in (2, 1, 5):
        session = await succeed(session, Cut(End.KILL), options=shards(count))
    await session.append("f", config=FSYNC)
    await succeed(session, Cut(End.POWER, Loss.DROP), options=shards(0))


@pytest.mark.parametrize("count", [1, 3])
async def test_two_damaged_snapshots_after_a_change_of_the_shard_count_are_refused_without_changes(count: int) -> None:
    session = await filled(4 - count)
    session = await succeed(session, Cut(End.KILL), options=shards(count))
    await session.append("f", 2)
    for how in ("flipped", "removed"):
        disk = session.disk.process_kill()
        for path in [path for path in disk.tree() if "/meta/snapshot-" in path]:
            if how == "flipped":
                disk.flip_byte(path, 60)
            else:
                disk.remove_file(path)
        before = disk.content()
        for wanted in (0, 1, 3):
            found = disk.process_kill()
            with pytest.raises(StorageError, match="backup"):
                await Session(found, shards(wanted)).start()
            after = found.content()
            after.pop(f"{ROOT}/.lock")
            assert after == {path: data for path, data in before.items() if path != f"{ROOT}/.lock"}


@pytest.mark.parametrize("damaged", [0, 1])
async def test_either_snapshot_of_a_change_of_the_shard_count_is_sufficient(damaged: int) -> None:
    session = await filled(2)
    session = await succeed(session, Cut(End.KILL), options=shards(3))
    await session.append("f", 2)
    snapshots = [path for path in session.disk.tree() if "/meta/snapshot-" in path]
    assert len(snapshots) == 2
    session.disk.flip_byte(snapshots[damaged], 60)
    await succeed(session, Cut(End.POWER, Loss.DROP), options=shards(0))


# -- stopped at every call ---------------------------------------------------------------------------------------------


def _failures(before: int, after: int, tries: Iterable[tuple[CrashPoint, Cut]]) -> Iterator[str]:
    crashed = crashed_with(before)
    for point, cut in tries:
        disk = crashed.disk.process_kill()
        disk.crash_at(point.index, point.when)
        for count in (before, after):
            try:
                run(stopped(disk, after, crashed))
                found = cut.of(disk)
                problems = run(examine(found, crashed, count, Ending(cut.end, orderly=False), cut.seed))
            except Exception as error:
                error.add_note(f"{before} to {after}, {point}, {cut}, then {count}")
                raise
            if problems:
                yield "\n  ".join([f"{before} to {after}, {point}, {cut}, then {count}", *problems])


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_a_change_of_the_shard_count_stopped_at_sampled_calls_loses_no_record(before: int, after: int) -> None:
    rng = Random(random.getrandbits(32))
    points = points_of(crashed_with(before), after)
    sample = rng.sample(points, min(SAMPLE_POINTS, len(points)))
    assert list(islice(_failures(before, after, ((point, cut_by(rng)) for point in sample)), MAX_FAILURES)) == []


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_a_change_of_the_shard_count_stopped_at_any_call_loses_no_record(before: int, after: int) -> None:
    rng = Random(random.getrandbits(32))
    cuts = [Cut(End.KILL), *(Cut(End.POWER, loss, rng.randrange(1 << 30)) for loss in (*Loss, Loss.TORN))]
    tries = ((point, cut) for point in points_of(crashed_with(before), after) for cut in cuts)
    assert list(islice(_failures(before, after, tries), MAX_FAILURES)) == []


# -- errors ------------------------------------------------------------------------------------------------------------


async def _refused(disk: SimDisk, count: int, crashed: Crashed, index: int, code: int) -> bool:
    """Whether a start with one failing call is refused (some calls need not succeed)."""
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    disk.fail("*", nth=index + 1, errno=code)
    session = Session(disk, shards(count), clock=crashed.clock)
    try:
        await session.start()
    except (OSError, StorageError):
        assert not session.engine.ready
        return True
    return False


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_an_error_in_a_change_refuses_the_start_or_does_no_harm(before: int, after: int, code: int) -> None:
    rng = Random(random.getrandbits(32))
    crashed = crashed_with(before)
    whole = crashed.disk.process_kill()
    run(stopped(whole, after, crashed))
    refused = 0
    for index in rng.sample(range(len(whole.calls)), SAMPLE_ERRORS):
        disk = crashed.disk.process_kill()
        refused += run(_refused(disk, after, crashed, index, code))
        cut = cut_by(rng)
        for count in (before, after):
            found = cut.of(disk)
            problems = run(examine(found, crashed, count, Ending(cut.end, orderly=False), cut.seed))
            assert problems == [], f"{before} to {after}, errno {code} at call {index}, {cut}, then {count}"
    assert refused > 2


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_a_segment_unreadable_for_a_moment_does_no_harm(before: int, after: int) -> None:
    rng = Random(random.getrandbits(32))
    crashed = crashed_with(before)
    whole = crashed.disk.process_kill()
    run(stopped(whole, after, crashed))
    reads = [n for n, call in enumerate(whole.calls) if call.op == "pread" and call.path.startswith(f"{ROOT}/topics/")]
    refusals = 0
    for index in reads:
        disk = crashed.disk.process_kill()
        refusals += run(_refused(disk, after, crashed, index, errno.EIO))
        cut = cut_by(rng)
        problems = run(examine(cut.of(disk), crashed, after, Ending(cut.end, orderly=False), cut.seed))
        assert problems == [], f"{before} to {after}, {whole.calls[index]}, {cut}"
    assert 0 < refusals < len(reads), "it is refused where it must know, and goes on where it may assume"


async def test_a_full_disk_refuses_the_change_and_the_old_count_still_starts() -> None:
    session = Session(SimDisk(), shards(1))
    await session.start()
    await session.append("f", 3, config=FSYNC)
    await session.append("d", 2, config=DISK)
    await session.mark_flushed()
    for _ in range(8):
        await session.append("f", 3)
        await session.append("d", 3, size=300)
    await session.close()  # its statement that the segment files are right must not be trusted any more
    disk = session.disk.process_kill()
    before = segment_files(disk)
    disk.capacity_bytes = disk.used_bytes + 1500
    with pytest.raises(OSError, match="No space") as caught:
        await Session(disk, shards(4), clock=session.clock).start()
    assert caught.value.errno == errno.ENOSPC
    disk = disk.process_kill()
    disk.capacity_bytes = None
    assert segment_files(disk) != before
    same = Session(disk.process_kill(), shards(1), clock=session.clock, ledger=session.ledger.copy())
    await same.start()
    assert await check(same.engine, same.ledger, Ending(End.KILL, orderly=False)) == []
    assert segment_files(same.disk) == before, "what was written for the change takes no room any more"
    other = Session(disk.process_kill(), shards(4), clock=session.clock, ledger=session.ledger.copy())
    await other.start()
    assert await check(other.engine, other.ledger, Ending(End.KILL, orderly=False)) == []
