"""`cluster import` and `cluster export` are killed at every request to the store and at every call that changes the
disk, also with a loss of power, and each answer of the store is lost. The operator runs the command again, and does
what its error says. Then everything is where it belongs, and nothing was served before it was whole.
"""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from storage import Durability, Engine, TopicConfig
from storage.backup.errors import BackupRefused
from storage.bucket import Driver, Location, NoCluster, Unanswered, newest_head, read_cluster
from storage.cells.exporting import export_cluster
from storage.cells.founding import cell_name, make_cluster
from storage.cells.importing import import_directory
from storage.cells.making import make_set
from storage.errors import OpenError, StorageError
from storage.options import Options
from storage.platform import SystemClock, cell_folder, layout, open_set
from storage.records import TopicType
from tests.conftest import is_soak
from tests.support.crash_run import SMALL, run, until_crash
from tests.support.cut_bucket import CutBucket, How
from tests.support.sim_disk import Loss, SimDisk, When
from tests.support.whole_engine import HOUR_MS, differences, record, whole

HERE = Location("s3", "bucket", "one")
ROOT = "/data"
TTL_S = 0.01
CELLS = pytest.mark.parametrize("cells", [1, 2])
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    # The threads of a process that is killed here find its loop closed.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]
#: How many points of each kind are tried. The soak tier tries all.
SAMPLE = 12

Objects = dict[str, bytes]
Whole = list[dict[str, Any]]


def options(cell: int, cells: int) -> Options:
    return SMALL if cells == 1 else msgspec.structs.replace(SMALL, cell=cell, cells=cells)


def folder(cell: int, cells: int) -> str:
    return ROOT if cells == 1 else cell_folder(ROOT, cell)


async def source(cells: int) -> SimDisk:
    """The directory of a broker that was stopped: sealed segments, records in the log, a lease, and deletions."""
    disk = SimDisk()
    async with Engine.open(ROOT, SMALL, fs=disk) as engine:
        await engine.put_topic("events", TopicConfig(durability=Durability.FSYNC))
        await engine.append("events", [record(n, "x" if n == 3 else None) for n in range(8)], idempotency_key="key")
        await engine.segment_worker.flush_all()
        # Others need not outlive a kill.
        await engine.put_topic("jobs", TopicConfig(type=TopicType.QUEUE, leases_durable=True))
        await engine.append("jobs", [record(n) for n in range(3)])
        await engine.queues.claim("jobs", "worker", lease_ms=HOUR_MS)
        await engine.put_consumer("events", "reader")
        await engine.commit("events", "reader", 2)
    if cells > 1:
        await make_set(disk, ROOT, cells, SMALL)
        async with Engine.open(folder(1, cells), options(1, cells), fs=disk) as engine:
            await engine.put_topic("more", TopicConfig(durability=Durability.FSYNC))
            await engine.append("more", [record(1)])
    return disk.process_kill()


async def content(disk: SimDisk, cells: int) -> Whole:
    """What a broker finds in the directory. Raises OpenError if none starts there."""
    if cells > 1:
        open_set(disk, ROOT, cells)
    found: Whole = []
    for cell in range(cells):
        async with Engine.open(folder(cell, cells), options(cell, cells), fs=disk) as engine:
            found.append(await whole(engine))
    return found


async def content_of_cluster(objects: Objects, cells: int) -> Whole:
    disk = SimDisk()
    await export_cluster(HERE, ROOT, open_store=lambda _: CutBucket(objects), ttl_s=TTL_S, fs=disk)
    return await content(disk, cells)


def _same(found: Whole, expected: Whole) -> None:
    problems = [differences(*each) for each in zip(found, expected, strict=True)]
    assert not any(problems), problems


@dataclass
class Machine:
    """What the command runs on."""

    disk: SimDisk
    objects: Objects
    at: int = -1
    how: How = How.BEFORE
    bucket: CutBucket = field(init=False)

    def __post_init__(self) -> None:
        self.bucket = CutBucket(
            self.objects, self.at, self.how, on_kill=self.disk.process_kill, is_dead=lambda: self.disk.crashed
        )

    def made_at(self, point: tuple[int, How | When]) -> str:
        """What is cut there, in a run that was traced."""
        number, how = point
        made = self.bucket.requests[number] if isinstance(how, How) else self.disk.calls[number]
        return f"cut {how} {number}: {made}"

    async def imports(self) -> None:
        await import_directory(ROOT, HERE, open_store=lambda _: self.bucket, fs=self.disk)

    async def exports(self) -> None:
        await export_cluster(HERE, ROOT, open_store=lambda _: self.bucket, ttl_s=TTL_S, fs=self.disk)


def points(trace: Machine, rng: random.Random) -> list[tuple[int, How | When]]:
    """Where a run is cut: at a request, or at a call of the disk."""
    requests: list[tuple[int, How | When]] = []
    for number, request in enumerate(trace.bucket.requests):
        requests += [(number, How.BEFORE), (number, How.REFUSED)]
        if request.changes:
            requests += [(number, How.AFTER), (number, How.LOST)]
    calls: list[tuple[int, How | When]] = [
        (point, rng.choice([When.BEFORE, When.AFTER, When.HALF])) for point in trace.disk.crash_points()
    ]
    if is_soak(os.environ):
        return [*requests, *calls]
    return [*rng.sample(requests, SAMPLE), *rng.sample(calls, SAMPLE)]


@dataclass
class Tally:
    """What became of the runs."""

    whole: int = 0
    again: int = 0
    refused: int = 0


async def cut_run(
    before: SimDisk, objects: Objects, point: tuple[int, How | When], work: Callable[[Machine], Awaitable[None]]
) -> tuple[SimDisk, bool]:
    """The disk afterwards, and whether the command succeeded."""
    number, how = point
    disk = before.process_kill()
    machine = Machine(disk, objects, number, how) if isinstance(how, How) else Machine(disk, objects)
    if isinstance(how, When):
        disk.crash_at(number, how)
    done = False

    async def command() -> None:
        nonlocal done
        try:
            await work(machine)
        except (OpenError, OSError, Unanswered):
            return  # it says so, and that it can be run again
        done = True

    await until_crash(disk, command())
    return disk, done


def _next_start(disk: SimDisk, rng: random.Random) -> SimDisk:
    """What the next process finds, often after a loss of power."""
    if rng.random() < 0.4:
        return disk.process_kill()
    return disk.power_cut(rng.choice(list(Loss)), rng.randrange(1 << 30))


@CELLS
def test_an_import_that_was_cut_anywhere(cells: int) -> None:
    rng = random.Random(random.randrange(1 << 30))
    before = run(source(cells))
    expected = run(content(before.process_kill(), cells))
    trace = Machine(before.process_kill(), {})
    run(trace.imports())
    tally = Tally()
    for point in points(trace, rng):
        objects: Objects = {}
        disk, done = run(cut_run(before, objects, point, Machine.imports))
        try:
            run(_judge_import(_next_start(disk, rng), objects, cells, expected, done=done, tally=tally))
        except Exception as error:
            error.add_note(trace.made_at(point))
            raise
    print(f"import of {cells} cells: {tally}")


async def _judge_import(
    disk: SimDisk, objects: Objects, cells: int, expected: Whole, *, done: bool, tally: Tally
) -> None:
    driver = Driver(CutBucket(objects), SystemClock())
    try:
        driver.run(read_cluster(HERE))
    except NoCluster:
        assert not done
    else:
        _same(await content_of_cluster(objects, cells), expected)
        with pytest.raises(OpenError, match="was imported into the cluster at s3://bucket/one"):
            await content(disk.process_kill(), cells)
        tally.whole += 1
        await _check_source(disk.process_kill(), cells, expected)
        return
    await _check_no_cluster_is_made_of_it(dict(objects), cells)
    # The source is as it was.
    await _check_source(disk.process_kill(), cells, expected)
    # Again.
    again = Machine(disk.process_kill(), objects)
    try:
        await again.imports()
    except OpenError as refused:
        _says("delete", refused)
        tally.refused += 1
        objects.clear()
        _delete_mark(again.disk)
        await again.imports()
    else:
        tally.again += 1
    _same(await content_of_cluster(objects, cells), expected)


async def _check_source(disk: SimDisk, cells: int, expected: Whole) -> None:
    _delete_mark(disk)
    _same(await content(disk, cells), expected)


def _says(what_to_do: str, refused: StorageError) -> None:
    assert what_to_do in refused.message, refused.message


def _delete_mark(disk: SimDisk) -> None:
    if disk.exists(f"{ROOT}/{layout.MOVED}"):
        disk.unlink(f"{ROOT}/{layout.MOVED}")


async def _check_no_cluster_is_made_of_it(objects: Objects, cells: int) -> None:
    """`cluster init`, which a chart may run at any time, makes no cluster of a part of the data."""
    for count in (1, cells):
        there = dict(objects)
        try:
            make_cluster(HERE, count, if_not_exists=True, open_store=lambda _, there=there: CutBucket(there))
        except OpenError as refused:
            _says("delete", refused)
        else:
            driver = Driver(CutBucket(there), SystemClock())
            for cell in range(count):
                head = driver.run(newest_head(cell_name(cell)))
                assert head is not None
                assert head.number == 0, "there is data of the import"
            driver.close()


@CELLS
def test_an_export_that_was_cut_anywhere(cells: int) -> None:
    rng = random.Random(random.randrange(1 << 30))
    before = run(source(cells))
    expected = run(content(before.process_kill(), cells))
    cluster = Machine(before.process_kill(), {})
    run(cluster.imports())
    empty = SimDisk()
    trace = Machine(empty.process_kill(), dict(cluster.objects))
    run(trace.exports())
    tally = Tally()
    for point in points(trace, rng):
        objects = dict(cluster.objects)
        disk, done = run(cut_run(empty, objects, point, Machine.exports))
        assert objects == cluster.objects
        try:
            run(_judge_export(_next_start(disk, rng), objects, cells, expected, done=done, tally=tally))
        except Exception as error:
            error.add_note(trace.made_at(point))
            raise
    print(f"export of {cells} cells: {tally}")


def test_the_mark_of_an_export_goes_when_the_rest_is_durable() -> None:
    cluster = Machine(run(source(1)), {})
    run(cluster.imports())
    trace = Machine(SimDisk(), cluster.objects)
    run(trace.exports())
    calls = [each for each in trace.disk.calls if each.op in ("rename", "unlink", "rmdir", "sync_dir")]
    mark = next(number for number, each in enumerate(calls) if each[1:3] == ("unlink", f"{ROOT}/{layout.RESTORING}"))
    assert calls[mark - 1][1:3] == ("sync_dir", ROOT)
    assert calls[mark + 1][1:3] == ("sync_dir", ROOT)


async def _judge_export(
    disk: SimDisk, objects: Objects, cells: int, expected: Whole, *, done: bool, tally: Tally
) -> None:
    # Without the mark there is nothing yet.
    began = disk.exists(ROOT) and {*disk.listdir(ROOT)} - {layout.LOCK, f"{layout.RESTORING}.tmp"}
    if began:
        try:
            found = await content(disk.process_kill(), cells)
        except OpenError:
            assert not done
        else:
            _same(found, expected)
            tally.whole += 1
            return
    assert not done
    again = Machine(disk.process_kill(), objects)
    try:
        await again.exports()
    except BackupRefused as refused:
        _says("empty the directory", refused)
        tally.refused += 1
        again = Machine(SimDisk(), objects)
        await again.exports()
    else:
        tally.again += 1
    _same(await content(again.disk, cells), expected)
