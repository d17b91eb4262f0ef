"""`verify` of a directory in which a change of the shard count was interrupted at any of its steps."""

from __future__ import annotations

import random
from random import Random

import pytest

from storage.inspect.directory import DataDirectory
from storage.inspect.verify import Verdict, verify
from storage.inspect.wal import Finding
from storage.platform import layout
from storage.snapshot import contents as snapshot
from tests.crash.resharding import CHANGES, crashed_with, cut_by, filled, log_folders, points_of, shards, stopped
from tests.support.crash_check import End
from tests.support.crash_run import Crashed, CrashPoint, Cut, run, succeed
from tests.support.crash_session import ROOT
from tests.support.sim_disk import SimDisk

SAMPLE_POINTS = 40


def verified(disk: SimDisk) -> tuple[Verdict, list[Finding]]:
    found: list[Finding] = []
    return verify(DataDirectory(disk, ROOT), found.append), found


def said_of_changes(found: list[Finding]) -> list[str]:
    return [each.text for each in found if "change of the shard count" in each.text]


def problems(found: list[Finding]) -> list[Finding]:
    """The problems, except half-written flags of an entry: only the simulated disk splits a sector."""
    torn_flags = "The index can be rebuilt from .data."
    return [each for each in found if each.problem and not (each.offset is not None and each.text.endswith(torn_flags))]


def expected(disk: SimDisk, before: int, after: int) -> str | None:
    """The expected note about the change, from the names of the files; None: no note."""
    paths = [path for path in disk.tree() if "/meta/snapshot-" in path and path.endswith(".bin")]
    bodies = [snapshot.decode(disk.read_file(path)) for path in sorted(paths)][-2:]
    if not bodies or bodies[-1].shards == before:
        return None
    if len(bodies) == 1 or bodies[0].shards == before:
        return f"to {after} was interrupted or is in progress. The next start repeats it."
    first = bodies[-1].redo_from[0][0]
    there = log_folders(disk)
    due = {layout.shard_dir("", shard, after).lstrip("/") for shard in range(after)}
    numbers = [number for names in there.values() for number in layout.wal_numbers(names)]
    if due != set(there) or min(numbers) < first:
        return f"to {after} was interrupted or is in progress. The next start finishes it."
    return None


def _check(before: int, after: int, crashed: Crashed, points: list[CrashPoint], rng: Random) -> set[str | None]:
    """Stop at each point. Returns the different notes that were expected."""
    seen: set[str | None] = set()
    for point in points:
        disk = crashed.disk.process_kill()
        disk.crash_at(point.index, point.when)
        run(stopped(disk, after, crashed))
        for cut in (Cut(End.KILL), cut_by(rng)):
            left = cut.of(disk)
            found = verified(left)[1]
            where = f"{before} to {after}, {point}, {cut}"
            assert problems(found) == [], where
            wanted, said = expected(left, before, after), said_of_changes(found)
            assert len(said) == (wanted is not None), f"{where}: {said}, {wanted}"
            assert wanted is None or wanted in said[0], where
            seen.add(wanted)
    return seen


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_an_interrupted_change_is_no_problem(before: int, after: int) -> None:
    rng = Random(random.getrandbits(32))
    crashed = crashed_with(before)
    points = points_of(crashed, after)
    _check(before, after, crashed, rng.sample(points, SAMPLE_POINTS), rng)
    # All steps after the first snapshot of the new count are among the last calls.
    assert len(_check(before, after, crashed, points[len(points) // 2 :: 5], rng)) == 3


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_no_step_of_a_change_is_a_problem(before: int, after: int) -> None:
    crashed = crashed_with(before)
    assert len(_check(before, after, crashed, points_of(crashed, after), Random(random.getrandbits(32)))) == 3


def _amid(before: int, after: int, wanted: str) -> SimDisk:
    """A directory with this note about an interrupted change."""
    crashed = crashed_with(before)
    for point in points_of(crashed, after)[::-3]:
        disk = crashed.disk.process_kill()
        disk.crash_at(point.index, point.when)
        run(stopped(disk, after, crashed))
        left = disk.process_kill()
        if wanted in (expected(left, before, after) or "") and len({*log_folders(left)}) >= before:
            return left
    raise AssertionError(wanted)


@pytest.mark.parametrize("wanted", ["repeats it", "finishes it"])
@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_verify_finds_damage_in_the_current_layout_of_an_interrupted_resharding(
    before: int, after: int, wanted: str
) -> None:
    disk = _amid(before, after, wanted)
    newest = max(path for path in disk.tree() if "/meta/snapshot-" in path and path.endswith(".bin"))
    record = next(path for path in disk.tree() if path.endswith(".data"))
    for path in (newest, record):
        damaged = disk.process_kill()
        damaged.flip_byte(path, 60)
        verdict, found = verified(damaged)
        assert verdict.wrong
        assert path.removeprefix(f"{ROOT}/") in {each.path for each in found if each.problem}


async def test_a_log_missing_after_a_change_is_a_problem() -> None:
    session = await filled(1)
    session = await succeed(session, Cut(End.KILL), options=shards(3))
    await session.append("f", 3)
    await session.append("d", 3)
    used = [folder for folder in log_folders(session.disk) if _used(session.disk, folder)]
    [bare] = {f"wal/shard-{shard:02d}" for shard in range(3)} - set(used) or {used.pop()}
    disk = session.disk.process_kill()
    assert not verified(disk)[0].wrong
    for path in [path for path in disk.content() if path.startswith(f"{ROOT}/{bare}/")]:
        disk.remove_file(path)
    verdict, found = verified(disk)
    assert verdict.wrong
    assert (bare, "The log of this shard is missing.") in {(each.path, each.text) for each in found}
    assert said_of_changes(found) == []


def _used(disk: SimDisk, folder: str) -> bool:
    paths = [path for path in disk.tree() if path.startswith(f"{ROOT}/{folder}/wal-")]
    return any(disk.read_file(path).strip(b"\0") for path in paths)


async def test_a_stray_log_of_no_change_is_a_problem() -> None:
    session = await filled(3)
    await session.snapshot()
    await session.snapshot()
    disk = session.disk.process_kill()
    assert not verified(disk)[0].wrong
    disk.mkdir(f"{ROOT}/wal/shard-07")
    file = disk.open(f"{ROOT}/wal/shard-07/{layout.wal_name(1)}", create=True)
    file.close()
    verdict, found = verified(disk)
    assert verdict.wrong
    assert ("wal/shard-07", "There are 3 shards, but this folder belongs to none of them.") in {
        (each.path, each.text) for each in found if each.problem
    }
