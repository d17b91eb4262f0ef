"""A backup or restore that ends at any call: earlier backups stay complete, and deleted files do not return."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import islice
from random import Random
from typing import NamedTuple

import pytest

from storage.backup import manifest as files
from storage.backup.errors import BackupRefused
from storage.backup.restoring import restore
from storage.errors import OpenError
from tests.crash.resharding import cut_by, shards, some_of_everything
from tests.crash.workloads import FSYNC
from tests.support.backup_rig import BACKUPS, TARGET, differences, made_of, opened, restored_view
from tests.support.crash_check import End
from tests.support.crash_run import Crashed, CrashPoint, Cut, run, until_crash
from tests.support.crash_session import Session
from tests.support.crash_view import TopicView, view
from tests.support.sim_disk import Loss, SimDisk, When

SAMPLE_POINTS = 25
MAX_FAILURES = 3
SHARDS = 2
#: As many shards as the directory has.
OPTIONS = shards(0)


class BackupStage(NamedTuple):
    """A killed engine's disk with two backups; the contents at the second backup, and the current contents."""

    crashed: Crashed
    first: dict[str, TopicView]
    second: dict[str, TopicView]


def stage() -> BackupStage:
    async def work() -> BackupStage:
        session = Session(SimDisk(), shards(SHARDS))
        await session.start()
        await some_of_everything(session)
        await session.mark_flushed()
        await session.engine.backup(BACKUPS)
        assert any(path.endswith(".zdata") for path in session.disk.tree()), "no segment is packed"
        await session.remove("f", before_seq=3)
        await session.append("e", 4)
        await session.mark_flushed()
        first = await view(session.engine)
        await session.engine.backup(BACKUPS)
        await _change(session)
        return BackupStage(_left(session), first, {})

    found = run(work())
    return found._replace(second=run(_seen(found.crashed)))


async def _change(session: Session) -> None:
    """Deletions in segments that the first backup has, flagged and not; more segments, rewritten and dropped ones."""
    await session.append("f", 9, tag="y", config=FSYNC)
    await session.mark_flushed()
    await session.remove("f", tag="y")
    await session.mark_flushed()
    await session.append("f", 6, tag="w")
    await session.mark_flushed()
    await session.remove("f", tag="w")
    await session.remove("d", before_seq=6)
    await session.drop("again")


def _left(session: Session) -> Crashed:
    session.disk.process_kill()
    return Crashed(session.disk, session.ledger, session.clock, orderly=True)


async def _session(disk: SimDisk, crashed: Crashed) -> Session:
    session = Session(disk, shards(SHARDS), clock=crashed.clock, ledger=crashed.ledger.copy())
    await session.start()
    return session


async def _seen(crashed: Crashed) -> dict[str, TopicView]:
    return await view((await _session(crashed.disk.process_kill(), crashed)).engine)


async def _backed_up(disk: SimDisk, crashed: Crashed, point: CrashPoint | None = None) -> int:
    """A start, and a backup that the disk stops at a point counted from its first call; the calls made before it."""
    session = await _session(disk, crashed)
    before = len(disk.calls)
    if point is not None:
        disk.crash_at(before + point.index, point.when)
    await until_crash(disk, session.engine.backup(BACKUPS))
    return before


def _points(stage: BackupStage) -> list[CrashPoint]:
    disk = stage.crashed.disk.process_kill()
    before = run(_backed_up(disk, stage.crashed))
    return [CrashPoint(index - before, when) for index in disk.crash_points() if index >= before for when in When]


def _failures(stage: BackupStage, tries: Iterable[tuple[CrashPoint, Cut]]) -> Iterator[str]:
    for point, cut in tries:
        disk = stage.crashed.disk.process_kill()
        try:
            run(_backed_up(disk, stage.crashed, point))
            problems = run(_examine(stage, cut.of(disk)))
        except Exception as error:
            error.add_note(f"{point}, {cut}")
            raise
        if problems:
            yield "\n  ".join([f"{point}, {cut}", *problems])


async def _examine(stage: BackupStage, found: SimDisk) -> list[str]:
    """The restored contents are one of the two states; the next backup is complete and leaves no other files."""
    crashed = stage.crashed
    now = await restored_view(found.process_kill(), crashed.clock, OPTIONS)
    problems = differences(stage.first, now)
    if problems:
        problems = differences(stage.second, now)
    for number in _numbers(found):
        made_of(found.process_kill(), crashed.clock, OPTIONS, number=number)
    disk = found.process_kill()
    session = await _session(disk, crashed)
    there = await view(session.engine)
    summary = await session.engine.backup(BACKUPS)
    problems += [f"next: {each}" for each in differences(there, await _restored(disk, crashed))]
    named = _named(disk)
    problems += [f"left behind: {path}" for path in _in_backup(disk) if path not in named]
    return problems if summary.number > 2 else [*problems, f"the next backup is number {summary.number}"]


async def _restored(disk: SimDisk, crashed: Crashed) -> dict[str, TopicView]:
    return await restored_view(disk.power_cut(Loss.DROP), crashed.clock, OPTIONS)


def _in_backup(disk: SimDisk) -> set[str]:
    return {path.removeprefix(BACKUPS + "/") for path in disk.content() if path.startswith(BACKUPS + "/")}


def _numbers(disk: SimDisk) -> list[int]:
    """The complete backups."""
    return sorted(number for name in _in_backup(disk) if (number := files.manifest_number(name)) is not None)


def _named(disk: SimDisk) -> set[str]:
    """Files that the manifests name, and the fixed files."""
    found = {".lock", files.MARKER}
    numbers = _numbers(disk)
    assert len(numbers) <= 2
    for number in numbers:
        name = files.manifest_name(number)
        found |= {name, files.state_name(number)}
        found |= {each.file for each in files.decode(disk.read_file(f"{BACKUPS}/{name}")).shared}
    return found


@pytest.fixture(scope="module")
def staged() -> BackupStage:
    return stage()


def test_two_backups_hold_the_states_of_their_times(staged: BackupStage) -> None:
    disk = staged.crashed.disk.process_kill()
    run(_backed_up(disk, staged.crashed))
    newest = run(restored_view(disk.process_kill(), staged.crashed.clock, OPTIONS))
    before = run(restored_view(disk.process_kill(), staged.crashed.clock, OPTIONS, number=2))
    assert differences(staged.second, newest) == []
    assert differences(staged.first, before) == []
    assert differences(staged.first, newest) != []


def test_a_backup_stopped_at_sampled_calls_is_whole_or_leaves_the_previous_backup(staged: BackupStage) -> None:
    rng = Random(random.getrandbits(32))
    points = _points(staged)
    sample = rng.sample(points, min(SAMPLE_POINTS, len(points)))
    assert list(islice(_failures(staged, ((point, cut_by(rng)) for point in sample)), MAX_FAILURES)) == []


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_backup_stopped_at_any_call_is_whole_or_leaves_the_previous_backup(staged: BackupStage) -> None:
    rng = Random(random.getrandbits(32))
    cuts = [Cut(End.KILL), *(Cut(End.POWER, loss, rng.randrange(1 << 30)) for loss in (*Loss, Loss.TORN))]
    tries = ((point, cut) for point in _points(staged) for cut in cuts)
    assert list(islice(_failures(staged, tries), MAX_FAILURES)) == []


# -- restores ----------------------------------------------------------------------------------------------------------


async def _restore_stopped(disk: SimDisk, crashed: Crashed, point: CrashPoint | None) -> None:
    async def work() -> None:
        made_of(disk, crashed.clock, OPTIONS)

    if point is not None:
        disk.crash_at(point.index, point.when)
    await until_crash(disk, work())


async def _what_became_of_it(found: SimDisk, stage: BackupStage) -> list[str]:
    """The restore is refused, or as if it had never begun, or complete. The backup is unchanged."""
    clock = stage.crashed.clock
    try:
        engine = await opened(found.process_kill(), clock, OPTIONS)
    except OpenError as error:
        if "restore" not in str(error).lower():
            return [f"refused, but for another reason: {error}"]
        with pytest.raises(BackupRefused, match="was interrupted"):
            made_of(found.process_kill(), clock, OPTIONS)
    else:
        there = await view(engine)
        if there and (problems := differences(stage.first, there)):
            return problems
    other = found.process_kill()
    for path in [path for path in other.tree() if path.startswith(TARGET + "/")]:
        if path in other.content():
            other.remove_file(path)
    clean = "/another/place"
    restore(other, BACKUPS, clean, options=OPTIONS, clock=clock)
    return []


def _restore_failures(stage: BackupStage, tries: Iterable[tuple[CrashPoint, Cut]]) -> Iterator[str]:
    for point, cut in tries:
        disk = stage.crashed.disk.process_kill()
        try:
            run(_restore_stopped(disk, stage.crashed, point))
            problems = run(_what_became_of_it(cut.of(disk), stage))
        except Exception as error:
            error.add_note(f"{point}, {cut}")
            raise
        if problems:
            yield "\n  ".join([f"{point}, {cut}", *problems])


def _restore_points(stage: BackupStage) -> list[CrashPoint]:
    disk = stage.crashed.disk.process_kill()
    run(_restore_stopped(disk, stage.crashed, None))
    return [CrashPoint(index, when) for index in disk.crash_points() for when in When]


def test_a_restore_stopped_at_some_calls_is_refused_or_whole(staged: BackupStage) -> None:
    rng = Random(random.getrandbits(32))
    points = _restore_points(staged)
    sample = [*rng.sample(points, min(SAMPLE_POINTS, len(points))), *points[-6:]]
    assert list(islice(_restore_failures(staged, ((point, cut_by(rng)) for point in sample)), MAX_FAILURES)) == []


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_restore_stopped_at_any_call_is_refused_or_whole(staged: BackupStage) -> None:
    rng = Random(random.getrandbits(32))
    cuts = [Cut(End.KILL), *(Cut(End.POWER, loss, rng.randrange(1 << 30)) for loss in (*Loss, Loss.TORN))]
    tries = ((point, cut) for point in _restore_points(staged) for cut in cuts)
    assert list(islice(_restore_failures(staged, tries), MAX_FAILURES)) == []


def test_the_engine_recovers_after_an_interrupted_backup(staged: BackupStage) -> None:
    """Pins are in memory only: the next start finds no trace of the backup."""
    rng = Random(random.getrandbits(32))
    for point in rng.sample(_points(staged), 5):
        disk = staged.crashed.disk.process_kill()
        run(_backed_up(disk, staged.crashed, point))
        left = Crashed(disk.process_kill(), staged.crashed.ledger, staged.crashed.clock, orderly=True)
        assert differences(staged.second, run(_seen(left))) == []
