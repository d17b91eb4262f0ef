"""A copy of a cluster's objects becomes a cluster of its own, or is refused with the reason."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from storage import Durability, NewRecord, ReadQuery, TopicConfig
from storage.bucket import Candidate, Driver, Location, keys, read_cell, read_cluster
from storage.cells.adopting import AHEAD, MARK, adopt
from storage.cells.founding import cell_name, make_cluster
from storage.cells.owner import CellOwner
from storage.cells.stopped import ClusterDamaged, ClusterInUse
from storage.errors import OpenError
from storage.options import Options
from storage.platform import SystemClock
from tests.conftest import is_soak
from tests.support.cut_bucket import CutBucket, How, Request
from tests.support.memory_bucket import MemoryBucket
from tests.support.sim_faults import SimCrash

ORIGINAL, COPY = Location("s3", "bucket", "one"), Location("s3", "bucket", "two")
CELLS = 2
TTL_S = 0.3
#: How many cuts are tried. The soak tier tries all.
SAMPLE = 8
SMALL = Options(segment_max_events=10, checkpoint_interval_ms=20)


def record(value: object) -> NewRecord:
    return NewRecord(msgspec.Raw(json.dumps(value).encode()))


def opener(bucket: MemoryBucket) -> Callable[[Location], MemoryBucket]:
    return lambda _: bucket


def owner_of(bucket: MemoryBucket, folder: Path, cell: int, nonce: str) -> CellOwner:
    options = msgspec.structs.replace(SMALL, cell=cell, cells=CELLS)
    return CellOwner(bucket, cell_name(cell), str(folder / nonce), Candidate("a", nonce), options=options, ttl_s=TTL_S)


async def original(folder: Path) -> tuple[MemoryBucket, dict[int, int]]:
    """A cluster with records in segments and in slots; the first cell was killed. And the epoch of each topic."""
    bucket, epochs = MemoryBucket(), dict[int, int]()
    make_cluster(ORIGINAL, CELLS, open_store=opener(bucket))
    for cell in range(CELLS):
        owner = owner_of(bucket, folder, cell, f"{cell:032x}")
        await owner.start()
        await owner.engine.put_topic("events", TopicConfig(durability=Durability.FSYNC))
        for begin in (0, 10, 20):
            await owner.engine.append("events", [record(number) for number in range(begin, begin + 10)])
            await owner.engine.segment_worker.flush_all()
        await owner.put_base()
        await owner.engine.append("events", [record(30)])
        epochs[cell] = owner.engine.topic("events").log.epoch
        await (owner.close() if cell else owner.abandon())
    return bucket, epochs


async def check(bucket: MemoryBucket, folder: Path, epochs: dict[int, int], generations: list[int]) -> None:
    """A node starts on it, finds everything, and readers of the original are told."""
    driver = Driver(bucket, SystemClock())
    record_ = driver.run(read_cluster(COPY))
    driver.close()
    assert (record_.cells, record_.url) == (CELLS, str(COPY))
    for cell in range(CELLS):
        owner = owner_of(bucket, folder, cell, f"{cell + 16:032x}")
        assert await owner.start(wait=False), "nobody has to be waited for"
        found = await owner.engine.read("events", ReadQuery(limit=1000))
        assert [json.loads(each.data) for each in found.records] == [*range(31)]
        assert owner.engine.topic("events").log.epoch > epochs[cell]
        assert owner.generation > generations[cell] + AHEAD
        await owner.close()


def generations(bucket: MemoryBucket) -> list[int]:
    driver = Driver(bucket, SystemClock())
    found = [driver.run(read_cell(cell_name(cell))).owner.generation for cell in range(CELLS)]
    driver.close()
    return found


async def test_a_copy_becomes_a_cluster_of_its_own(tmp_path: Path) -> None:
    bucket, epochs = await original(tmp_path)
    copy, told = MemoryBucket(), list[str]()
    copy.objects = dict(bucket.objects)
    with pytest.raises(OpenError, match=r"a copy of the cluster at s3://bucket/one.*cluster adopt s3://bucket/two"):
        Driver(copy, SystemClock()).run(read_cluster(COPY))
    done = await adopt(
        COPY, str(tmp_path / "work"), lambda what, done, total: told.append(what), open_store=opener(copy), ttl_s=TTL_S
    )
    assert (done.url, done.cells, done.topics) == (str(COPY), CELLS, CELLS)
    assert done.cluster_id != done.original_cluster_id
    assert dict.fromkeys(told) == dict.fromkeys(
        ["checking the store", "reading logs", "waiting for signs of life", "adopting cells"]
    )
    await check(copy, tmp_path, epochs, generations(bucket))
    # The same command says what there is, and the original is as it was.
    again = await adopt(COPY, str(tmp_path / "work"), open_store=opener(copy), ttl_s=TTL_S)
    assert again.cluster_id == done.cluster_id
    assert Driver(bucket, SystemClock()).run(read_cluster(ORIGINAL)).cluster_id == done.original_cluster_id
    # A copy of the copy is adopted like any other.
    third = MemoryBucket()
    third.objects = dict(copy.objects)
    place = Location("s3", "bucket", "three")
    assert (
        await adopt(place, str(tmp_path / "work"), open_store=opener(third), ttl_s=TTL_S)
    ).original_cluster_id == done.cluster_id


async def test_the_cluster_itself_is_not_adopted(tmp_path: Path) -> None:
    bucket, _ = await original(tmp_path)
    with pytest.raises(OpenError, match="is not a copy"):
        await adopt(ORIGINAL, str(tmp_path / "work"), open_store=opener(bucket), ttl_s=TTL_S)


@pytest.mark.parametrize("sign", [keys.sign("0" * 32), f"{keys.NODES}other", f"{keys.MEMBERS}node-1"])
async def test_a_copy_on_which_something_runs_is_refused(tmp_path: Path, sign: str) -> None:
    copy, _ = await original(tmp_path)
    before = {key for key in copy.objects if not key.startswith("probe")}

    async def live() -> None:
        number = 0
        while True:
            number += 1
            copy.put(sign, b"%d" % number)
            await asyncio.sleep(TTL_S / 10)

    living = asyncio.create_task(live())
    adopting = asyncio.to_thread(asyncio.run, adopt(COPY, str(tmp_path / "work"), open_store=opener(copy), ttl_s=1.0))
    with pytest.raises(ClusterInUse, match=f"{sign} changed within"):
        await adopting
    living.cancel()
    assert set(copy.objects) - {sign} == before - {sign}


async def test_what_is_missing_in_a_copy_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    bucket, epochs = await original(tmp_path)
    copy = MemoryBucket()
    slots = sorted(key for key in bucket.objects if key.startswith("cell-00/log/"))
    segment = next(key for key in bucket.objects if key.startswith("cell-01/segments/"))
    head = sorted(key for key in bucket.objects if key.startswith("cell-01/base/"))[0]
    for missing, told in (
        ({slots[-2]}, f"cell-00: {slots[-2]} is missing, and 1 slots behind it exist"),
        ({segment}, f"cell-01: {segment} is missing"),
        ({head, keys.slot("cell-01", 0)}, "cell-01: cell-01 was not initialised"),
        ({head}, "cell-01: cell-01 has a log and no base"),
    ):
        copy.objects = {key: data for key, data in bucket.objects.items() if key not in missing}
        before = dict(copy.objects)
        with pytest.raises(ClusterDamaged, match=told):
            await adopt(COPY, str(tmp_path / "work"), open_store=opener(copy), ttl_s=TTL_S)
        assert copy.objects == before
    # When the rest is there, the same command works.
    copy.objects = dict(bucket.objects)
    await adopt(COPY, str(tmp_path / "work"), open_store=opener(copy), ttl_s=TTL_S)
    await check(copy, tmp_path, epochs, generations(bucket))


async def adopt_on(bucket: MemoryBucket, folder: Path) -> None:
    await adopt(COPY, str(folder), open_store=opener(bucket), ttl_s=TTL_S)


def cuts(requests: list[Request]) -> list[tuple[int, How]]:
    """Each request, and what may happen to it."""
    return [
        (number, how) for number, each in enumerate(requests) for how in How
        if each.changes or how in (How.BEFORE, How.REFUSED)
    ]  # fmt: skip


# The threads of a process that is killed here go on, and find its log as it was.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_an_adoption_that_was_cut_at_any_request_is_completed_by_the_same_command(tmp_path: Path) -> None:
    bucket, epochs = await original(tmp_path)
    before, work = generations(bucket), tmp_path / "work"
    trace = CutBucket(dict(bucket.objects))
    await adopt_on(trace, work)
    points, done, rng = cuts(trace.requests), 0, random.Random(random.randrange(1 << 30))
    for number, how in points if is_soak(os.environ) else rng.sample(points, SAMPLE):
        cut = CutBucket(dict(bucket.objects), number, how)
        try:
            await adopt_on(cut, work)
            done += 1
        except (Exception, SimCrash):  # whatever a part makes of the end of the process
            pass
        copy = MemoryBucket()
        copy.objects = dict(cut.objects)
        if keys.cluster(1) not in copy.objects:
            with pytest.raises(OpenError):
                Driver(copy, SystemClock()).run(read_cluster(COPY))
        await adopt_on(copy, work)
        assert not work.exists()
        folder = tmp_path / f"after-{number}-{how}"
        folder.mkdir()
        await check(copy, folder, epochs, before)
        shutil.rmtree(folder)
    print(f"{len(points)} points, {done} runs completed")


async def test_what_a_killed_run_has_left_in_its_folder_is_replaced(tmp_path: Path) -> None:
    copy, _ = await original(tmp_path)
    work = tmp_path / "work"
    left = work / "cell-01" / "wal"
    left.mkdir(parents=True)
    with pytest.raises(OpenError, match="is not empty"):
        await adopt_on(copy, work)
    assert left.exists()
    (work / MARK).touch()
    await adopt_on(copy, work)
    assert not work.exists()
