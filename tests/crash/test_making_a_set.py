"""`make_set` is stopped at every call that changes the disk. The same call then completes the set, and no acked write
is missing."""

from __future__ import annotations

import os
import random

import msgspec
import pytest

from storage import ENTRY_KIND, Durability, Engine, ReadQuery, TopicConfig
from storage.cells.making import MadeSet, make_set
from storage.errors import OpenError
from storage.platform import INTENT_FILE, CellsDiffer, cell_folder, home_cell, layout, open_set, read_set
from tests.conftest import is_soak
from tests.support.crash_run import SMALL, run, until_crash
from tests.support.crash_session import ROOT, Session
from tests.support.fake_clock import FakeClock
from tests.support.sim_disk import Loss, SimDisk, When

CELLS = 3
NAMES = [f"orders-{number}" for number in range(6)]
CONFIG = TopicConfig(durability=Durability.FSYNC)
DISK = TopicConfig(durability=Durability.DISK)
#: The calls at which it is stopped. The soak tier visits every call.
SAMPLE = 40


async def _filled(*, cleanly: bool) -> SimDisk:
    """A directory of one engine, closed or killed. If killed, its last records are in the page cache only."""
    session = Session(SimDisk(), SMALL)
    await session.start()
    for name in NAMES:
        await session.append(name, 3, config=CONFIG)
    await session.append("late", 2, config=DISK)
    if cleanly:
        await session.close()
    return session.disk.process_kill()


async def _make(disk: SimDisk) -> MadeSet:
    return await make_set(disk, ROOT, CELLS, SMALL, clock=FakeClock(), threaded=False)


async def _check(disk: SimDisk) -> list[str]:
    """What is wrong with the set."""
    problems: list[str] = []
    homes = {name: home_cell(name, CELLS) for name in (*NAMES, "late")}
    assert {1, 2} <= set(homes.values())
    if disk.exists(layout.join(ROOT, INTENT_FILE)):
        problems.append("the intent is still there")
    open_set(disk, ROOT, CELLS)
    for cell in range(CELLS):
        options = msgspec.structs.replace(SMALL, cell=cell, cells=CELLS)
        engine = Engine(cell_folder(ROOT, cell), options, fs=disk, clock=FakeClock(), threaded=False)
        await engine.start()
        expected = {name for name, home in homes.items() if home == cell} if cell else set(homes)
        entries = {key for key, value in engine.states.items(ENTRY_KIND) if value == b"0"}
        if entries != {name for name in expected if homes[name] != 0}:
            problems.append(f"cell {cell} has entries for {sorted(entries)}")
        for name in homes if cell == 0 else ():
            page = await engine.read(name, ReadQuery(from_seq=0)) if name in engine.catalog.topics else None
            count, losses = (0, True) if page is None else (len(page.records), page.tombstone is not None)
            if losses or count != (2 if name == "late" else 3):
                problems.append(f"{name} has {count} records in cell 0, losses: {losses}")
        await engine.close()
    return problems


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_set_is_completed_after_a_stop_at_any_call(cleanly: bool) -> None:
    before = run(_filled(cleanly=cleanly))
    traced = before.process_kill()
    run(_make(traced))
    points = traced.crash_points()
    rng = random.Random(random.randrange(1 << 30))
    tried = points if is_soak(os.environ) else sorted(rng.sample(points, SAMPLE))
    stopped = 0
    for point in tried:
        disk = before.process_kill()
        disk.crash_at(point, rng.choice(list(When)))
        run(until_crash(disk, _make(disk)))
        stopped += disk.crashed
        # As in an engine, a power cut may take writes of class disk, so the power is only cut on the clean directory.
        found = disk.power_cut(rng.choice(list(Loss)), rng.randrange(1 << 30)) if cleanly else disk.process_kill()
        if read_set(found, ROOT) is None:
            run(_make(found))
        assert run(_check(found)) == [], point
    assert stopped > 0.9 * len(tried)  # the number of calls differs a little from run to run


async def test_anything_but_the_directory_of_one_engine_is_refused_and_unchanged() -> None:
    disk = SimDisk()
    with pytest.raises(OpenError, match="first start of the broker with TOPICS_CELLS=3"):
        await _make(disk)
    assert not disk.is_dir(ROOT)
    disk = await _filled(cleanly=True)
    await _make(disk)
    with pytest.raises(CellsDiffer, match="is a set of 3 cells already"):
        await _make(disk)
    with pytest.raises(CellsDiffer, match="start the broker with TOPICS_CELLS=3"):
        await Session(disk, SMALL).start()


async def test_a_set_that_is_half_made_is_opened_by_nobody() -> None:
    disk = await _filled(cleanly=True)
    disk.crash_on("rename", "*/topics" if disk.is_dir(f"{ROOT}/topics") else "*/wal", when=When.BEFORE)
    assert await until_crash(disk, _make(disk)) is None
    found = disk.process_kill()
    for refused in (Session(found, SMALL).start, lambda: make_set(found, ROOT, 4, SMALL)):
        with pytest.raises(CellsDiffer, match="--cells 3"):
            await refused()
    with pytest.raises(CellsDiffer, match="was not completed"):
        open_set(found, ROOT, CELLS)


async def test_an_error_of_the_start_leaves_the_directory_unchanged() -> None:
    disk = await _filled(cleanly=False)
    disk.fail("pread", "*.log", sticky=True)
    with pytest.raises(OSError, match="Input/output"):
        await _make(disk)
    disk.clear_faults()
    session = Session(disk.process_kill(), SMALL)
    await session.start()
    assert set(session.engine.catalog.topics) == {*NAMES, "late"}
