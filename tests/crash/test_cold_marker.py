"""A file system that is not mounted is never taken for the cold store, at a start or later."""

from __future__ import annotations

import msgspec
import pytest

from storage.errors import OpenError
from storage.platform import layout
from storage.segments.tiering.directory import MARKER
from storage.state.manifest import COLD
from tests.crash.cold_view import MOUNT, objects, tier_problems
from tests.crash.cold_workloads import COLD as COLD_OPTIONS
from tests.crash.workloads import FSYNC
from tests.support.crash_check import End, Ending, check
from tests.support.crash_run import CrashPoint, Cut, Workload, run, run_until, succeed, trace
from tests.support.crash_session import ROOT, Session
from tests.support.sim_disk import Loss, SimDisk, When

OPTIONS = msgspec.structs.replace(COLD_OPTIONS, hot_retain_segments=0)


async def moving(s: Session) -> None:
    """Segments move, the first time and later."""
    for _ in range(2):
        await s.append("f", 8, config=FSYNC)
        await s.mark_flushed()
        await s.relocate()


def unmounted(disk: SimDisk, *, keep_root: bool = True) -> SimDisk:
    """The same disk with an empty directory in the store's place, or without that directory."""
    bare = disk.process_kill()
    for path in sorted((path for path in bare.tree() if path.startswith(f"{MOUNT}/")), reverse=True):
        if not path.endswith("/"):
            bare.remove_file(path)
        elif path != f"{MOUNT}/" or not keep_root:
            bare.rmdir(path.rstrip("/"))
    return bare


def tiers(session: Session) -> set[str]:
    return {
        segment.tier for topic in session.engine.catalog.topics.values() for segment in topic.log.held.manifest.segments
    }


async def moved() -> Session:
    session = Session(SimDisk(), OPTIONS)
    await session.start()
    await moving(session)
    assert COLD in tiers(session)
    return session


@pytest.mark.parametrize("keep_root", [True, False])
async def test_a_start_without_the_mounted_cold_store_is_refused_and_changes_no_file(keep_root: bool) -> None:
    session = await moved()
    bare = unmounted(session.disk, keep_root=keep_root)
    before = bare.content()
    with pytest.raises(OpenError, match="Is its file system mounted"):
        await Session(bare, OPTIONS, clock=session.clock).start()
    after = bare.content()
    assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} <= {f"{ROOT}/.lock"}
    again = await succeed(session, Cut(End.KILL))
    assert tier_problems(again) == []


async def test_a_start_with_another_cold_store_is_refused() -> None:
    session = await moved()
    other = msgspec.structs.replace(OPTIONS, cold_dir="/mnt/other")
    with pytest.raises(OpenError, match=f"/mnt/other/{session.engine.cluster_id}/{MARKER} is not there"):
        await Session(session.disk.process_kill(), other, clock=session.clock).start()


async def test_a_start_with_an_unused_cold_store_needs_no_marker() -> None:
    session = Session(SimDisk(), OPTIONS)
    await session.start()
    await session.append("f", 1, config=FSYNC)
    await Session(unmounted(session.disk), OPTIONS, clock=session.clock).start()


async def test_a_store_unmounted_at_run_time_is_unavailable() -> None:
    session = await moved()
    disk = session.disk
    kept = {path: disk.read_file(path) for path in disk.tree() if path.startswith(f"{MOUNT}/") and path[-1] != "/"}
    folders = [path for path in disk.tree() if path.startswith(f"{MOUNT}/") and path[-1] == "/" and path != f"{MOUNT}/"]
    for path in kept:
        disk.remove_file(path)
    for path in reversed(folders):
        disk.rmdir(path.rstrip("/"))
    await session.append("f", 8)
    await session.mark_flushed()
    await session.relocate()
    assert "is the file system mounted?" in str(session.refusals[-1])
    assert [path for path in disk.tree() if path.startswith(f"{MOUNT}/")] == [f"{MOUNT}/"]
    with pytest.raises(Exception, match="is the file system mounted"):
        await session.engine.read_one("f", 1)
    for path in folders:
        disk.mkdir(path.rstrip("/"))
    for path, content in kept.items():
        disk.write_file(path, content)
    await session.relocate()
    await session.relocate()
    assert tier_problems(session) == []
    assert await check(session.engine, session.ledger, Ending(End.KILL)) == []


async def test_segments_moved_before_markers_existed_are_found() -> None:
    session = await moved()
    disk = session.disk.process_kill()
    for path in [path for path in disk.content() if path.endswith((MARKER, f"/{layout.COLD_STORE}"))]:
        disk.remove_file(path)
    bare = Session(unmounted(disk), OPTIONS, clock=session.clock)
    await bare.start()
    await bare.relocate()
    assert "is the file system mounted?" in str(bare.refusals[-1])
    assert objects(bare.disk) == {}
    again = Session(disk.process_kill(), OPTIONS, clock=session.clock, ledger=session.ledger)
    await again.start()
    await again.relocate()
    assert tier_problems(again) == []
    with pytest.raises(OpenError):
        await Session(unmounted(again.disk), OPTIONS, clock=session.clock).start()


def test_a_start_without_the_cold_store_after_any_crash_is_refused_or_complete() -> None:
    """It is refused, or no segment is in the store."""
    workload = Workload("moving", moving, OPTIONS)
    outcomes: set[bool] = set()
    for index in trace(workload).disk.crash_points()[::2]:
        for when in When:
            crashed = run_until(workload, CrashPoint(index, when))
            for cut in (Cut(End.KILL), Cut(End.POWER, Loss.DROP), Cut(End.POWER, Loss.TORN, index)):
                outcomes.add(run(_judge(unmounted(cut.of(crashed.disk)), cut)))
    assert outcomes == {True, False}


async def _judge(bare: SimDisk, cut: Cut) -> bool:
    """Whether it starts."""
    session = Session(bare, OPTIONS)
    try:
        await session.start()
    except OpenError:
        return False
    assert COLD not in tiers(session), cut
    return True
