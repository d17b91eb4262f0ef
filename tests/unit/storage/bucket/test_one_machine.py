"""Directories of one machine become clusters, and clusters become directories: everything is as a clean stop leaves
it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from storage import Durability, NewRecord, ReadQuery, TagMatch, TopicConfig
from storage.bucket import Candidate, ClockWrong, Driver, Location, keys, read_cluster
from storage.cells.exporting import Exported, export_cluster
from storage.cells.founding import make_cluster
from storage.cells.importing import import_directory
from storage.cells.making import make_set
from storage.cells.owner import CellOwner
from storage.cells.stopped import ClusterDamaged, ClusterInUse
from storage.engine import Engine
from storage.errors import OpenError
from storage.options import Options
from storage.platform import PosixFileSystem, SystemClock, cell_folder, layout, open_set
from storage.records import CompressionType, TopicType
from storage.state import COLD
from tests.support.memory_bucket import MemoryBucket
from tests.support.sim_disk import SimDisk
from tests.support.whole_engine import differences, whole
from tests.support.whole_engine import fill as fill_all

HERE = Location("s3", "bucket", "one")
TTL_S = 0.3
#: Segments are filled, sealed and packed as soon as possible.
SMALL = Options(segment_max_events=10, checkpoint_interval_ms=20, segment_pack_bytes=1)


def record(value: object, tag: str | None = None) -> NewRecord:
    return NewRecord(msgspec.Raw(json.dumps(value).encode()), tag=tag)


class Made(msgspec.Struct):
    """What was written, and the job that a worker has."""

    lease: tuple[int, int]
    heads: dict[str, int] = {}


async def fill(engine: Engine) -> Made:
    """Records of two classes, packed segments, deletions, a consumer's position, keys, and a lease."""
    await engine.put_topic("events", TopicConfig(durability=Durability.FSYNC, compression_type=CompressionType.ZSTD))
    for begin in range(0, 60, 10):
        numbers = range(begin, begin + 10)
        batch = [record({"n": n, "text": "as always " * 30}, "x" if n in (2, 16) else "y") for n in numbers]
        await engine.append("events", batch)
        await engine.segment_worker.flush_all()
    await engine.delete_records("events", match=TagMatch(b"x"))
    await engine.put_topic("disk", TopicConfig(durability=Durability.DISK))
    for number in range(7):
        await engine.append("disk", [record({"n": number})])
    await engine.put_topic("jobs", TopicConfig(type=TopicType.QUEUE, durability=Durability.DISK))
    await engine.append("jobs", [record("a"), record("b")])
    [job] = (await engine.queues.claim("jobs", "worker", lease_ms=3_600_000)).jobs
    return Made((job.record.seq, job.lease_id), {name: topic.log.head for name, topic in engine.catalog.topics.items()})


async def check(engine: Engine, made: Made) -> None:
    """All of it is there, the worker still has its job, and seqs go on."""
    assert {name: topic.log.head for name, topic in engine.catalog.topics.items()} == made.heads
    found = await engine.read("events", ReadQuery(limit=1000))
    assert [each.seq for each in found.records] == [seq for seq in range(1, 61) if seq not in (3, 17)]
    assert [json.loads(each.data)["n"] for each in found.records] == [n for n in range(60) if n + 1 not in (3, 17)]
    disk = await engine.read("disk", ReadQuery(limit=1000))
    assert ([json.loads(each.data)["n"] for each in disk.records], disk.tombstone) == ([*range(7)], None)
    made.heads["disk"] += 1
    written = await engine.append("disk", [record({"n": 7}, "late")])
    assert written.first_seq == made.heads["disk"], "no seq is skipped"
    await engine.delete_records("disk", match=TagMatch(b"late"))
    [other] = (await engine.queues.claim("jobs", "other", max=2)).jobs
    seq, lease = made.lease
    assert other.record.seq != seq, "the worker has it"
    await engine.queues.nack("jobs", "other", [other.record.seq], lease_ids=[other.lease_id])
    assert (await engine.queues.extend("jobs", "worker", [seq], 3_600_000, lease_ids=[lease])).done == [seq]


def opener(bucket: MemoryBucket) -> Callable[[Location], MemoryBucket]:
    return lambda _: bucket


def said(told: list[str]) -> Callable[[str, int, int], None]:
    def progress(what: str, done: int, total: int) -> None:
        assert 0 <= done <= total
        told.append(what)

    return progress


@asynccontextmanager
async def owned(bucket: MemoryBucket, folder: Path, cell: int = 0, cells: int = 1) -> AsyncGenerator[CellOwner]:
    nonce = f"{len(bucket.objects):032x}"
    owner = CellOwner(
        bucket, f"cell-{cell:02d}", str(folder), Candidate("a", nonce), ttl_s=TTL_S,
        options=msgspec.structs.replace(SMALL, cell=cell, cells=cells),
    )  # fmt: skip
    assert await owner.start()
    yield owner
    await owner.close()


@pytest.mark.parametrize("shards", [1, 3])
async def test_a_directory_becomes_a_cluster_and_a_directory_again(tmp_path: Path, shards: int) -> None:
    bucket, told = MemoryBucket(), list[str]()
    root = str(tmp_path / "data")
    async with Engine.open(root, msgspec.structs.replace(SMALL, wal_shards=shards)) as engine:
        made = await fill(engine)
        segments = engine.topic("events").log.held.manifest.segments
        assert any(each.packed_bytes for each in segments), "some are packed"
    done = await import_directory(root, HERE, said(told), open_store=opener(bucket))
    assert (done.cells, done.topics, done.records) == (1, 3, 67)
    assert told[0] == "checking the store"
    assert "copying cells" in told
    async with owned(bucket, tmp_path / "node") as owner:
        await check(owner.engine, made)
        assert not any(each.packed_bytes for each in owner.engine.topic("events").log.held.manifest.segments)
    back = await export_cluster(HERE, str(tmp_path / "back"), said(told), open_store=opener(bucket), ttl_s=TTL_S)
    assert (back.cells, back.crashed, back.cluster_id) == (1, [], done.cluster_id)
    async with Engine.open(back.directory, SMALL) as engine:
        await check(engine, made)
    # The cluster would not see what is written to the directory. It is still one, as it was, for who wants it.
    made.heads["disk"] = 7
    with pytest.raises(OpenError, match="was imported into the cluster at s3://bucket/one"):
        async with Engine.open(root, SMALL):
            pass
    (tmp_path / "data" / layout.MOVED).unlink()
    async with Engine.open(root, msgspec.structs.replace(SMALL, wal_shards=shards)) as engine:
        await check(engine, made)


async def test_a_set_of_cells_becomes_a_cluster_and_a_set_again(tmp_path: Path) -> None:
    bucket, root = MemoryBucket(), str(tmp_path / "data")
    async with Engine.open(root, SMALL) as engine:
        made = await fill(engine)
    await make_set(PosixFileSystem(), root, 2)
    async with Engine.open(cell_folder(root, 1), msgspec.structs.replace(SMALL, cell=1, cells=2)) as engine:
        await engine.put_topic("more", TopicConfig(durability=Durability.FSYNC))
        await engine.append("more", [record(1)])
        topic_id = engine.topic("more").log.topic_id
    assert (await import_directory(root, HERE, open_store=opener(bucket))).cells == 2
    with pytest.raises(OpenError, match="was imported into the cluster"):
        open_set(PosixFileSystem(), root, 2)
    async with owned(bucket, tmp_path / "node-0", 0, 2) as first, owned(bucket, tmp_path / "node-1", 1, 2) as second:
        await check(first.engine, made)
        assert second.engine.topic("more").log.topic_id == topic_id
        await second.engine.append("more", [record(2)])
    back = await export_cluster(HERE, str(tmp_path / "back"), open_store=opener(bucket), ttl_s=TTL_S)
    for cell, topic in ((0, "disk"), (1, "more")):
        options = msgspec.structs.replace(SMALL, cell=cell, cells=2)
        async with Engine.open(cell_folder(back.directory, cell), options) as engine:
            assert engine.topic(topic).log.head == {"disk": 8, "more": 2}[topic]
    with pytest.raises(OpenError):
        async with Engine.open(back.directory, SMALL):
            pass


async def test_everything_of_a_directory_arrives_in_the_cluster_and_back(tmp_path: Path) -> None:
    bucket, root = MemoryBucket(), str(tmp_path / "data")
    async with Engine.open(root, SMALL) as engine:
        await fill_all(engine)
    async with Engine.open(root, SMALL) as engine:
        before = await whole(engine)
    await import_directory(root, HERE, open_store=opener(bucket))
    async with owned(bucket, tmp_path / "node") as owner:
        assert differences(before, await whole(owner.engine)) == []
    back = await export_cluster(HERE, str(tmp_path / "back"), open_store=opener(bucket), ttl_s=TTL_S)
    async with Engine.open(back.directory, SMALL) as engine:
        assert differences(before, await whole(engine)) == []


async def test_cold_segments_are_refused_with_the_way_round_that(tmp_path: Path) -> None:
    bucket, root = MemoryBucket(), str(tmp_path / "data")
    cold = msgspec.structs.replace(SMALL, cold_dir=str(tmp_path / "cold"), hot_retain_segments=0, segment_pack_bytes=0)
    async with Engine.open(root, cold) as engine:
        await engine.put_topic("events", TopicConfig(durability=Durability.FSYNC))
        await engine.append("events", [record(n) for n in range(30)])
        await engine.segment_worker.flush_all()
        while not any(each.tier == COLD for each in engine.topic("events").log.held.manifest.segments):
            await asyncio.sleep(0.01)
    with pytest.raises(OpenError, match=r"a cold tier, which an import does not read\. Back it up with --include-cold"):
        await import_directory(root, HERE, open_store=opener(bucket))
    async with Engine.open(root, cold) as engine:  # no file MOVED
        assert len((await engine.read("events", ReadQuery(limit=100))).records) == 30


async def test_a_cell_of_a_set_is_not_imported_alone(tmp_path: Path) -> None:
    bucket, root = MemoryBucket(), str(tmp_path / "data")
    async with Engine.open(root, SMALL) as engine:
        await fill(engine)
    await make_set(PosixFileSystem(), root, 2)
    with pytest.raises(OpenError, match=f"one of the 2 cells of a set. Import the set: {root}"):
        await import_directory(cell_folder(root, 0), HERE, open_store=opener(bucket))
    assert bucket.objects == {}


async def test_a_cluster_that_was_never_used_was_stopped_cleanly(tmp_path: Path) -> None:
    bucket = MemoryBucket()
    make_cluster(HERE, 2, open_store=opener(bucket))
    back = await export_cluster(HERE, str(tmp_path / "back"), open_store=opener(bucket), ttl_s=TTL_S)
    assert (back.cells, back.crashed) == (2, [])


async def test_an_export_onto_a_full_disk_leaves_the_directory_empty(tmp_path: Path) -> None:
    bucket, root = MemoryBucket(), str(tmp_path / "data")
    async with Engine.open(root, SMALL) as engine:
        await fill(engine)
    await import_directory(root, HERE, open_store=opener(bucket))
    disk = SimDisk(capacity_bytes=8192)
    with pytest.raises(OSError, match="No space left"):
        await export_cluster(HERE, "/back", open_store=opener(bucket), ttl_s=TTL_S, fs=disk)
    assert disk.listdir("/back") == []


async def test_an_interrupted_export_ends_before_the_rest_of_the_cell_is_copied(tmp_path: Path) -> None:
    bucket, root, told = MemoryBucket(), str(tmp_path / "data"), list[int]()
    async with Engine.open(root, SMALL) as engine:
        await fill(engine)
    await import_directory(root, HERE, open_store=opener(bucket))

    def interrupt(what: str, done: int, total: int) -> None:
        if what == "copying":
            told.append(done)
            exporting.cancel()  # as Ctrl-C does

    exporting = asyncio.ensure_future(
        export_cluster(HERE, str(tmp_path / "back"), interrupt, open_store=opener(bucket), ttl_s=TTL_S)
    )
    with pytest.raises(asyncio.CancelledError):
        await exporting
    assert len(told) == 1
    assert [*(tmp_path / "back").iterdir()] == []


async def test_the_file_of_an_import_that_succeeded_says_where_the_data_is(tmp_path: Path) -> None:
    bucket, root = MemoryBucket(), str(tmp_path / "data")
    async with Engine.open(root, SMALL) as engine:
        await fill(engine)
    await import_directory(root, HERE, open_store=opener(bucket))
    with pytest.raises(OpenError, match=r"MOVED says that the directory was imported there\. Start the nodes"):
        await import_directory(root, HERE, open_store=opener(bucket))
    # A run that was killed before its last request.
    del bucket.objects[keys.CLUSTER]
    with pytest.raises(OpenError, match=rf"delete everything below {HERE} first\. Delete {root}/MOVED, too"):
        await import_directory(root, HERE, open_store=opener(bucket))


async def test_a_cluster_that_another_process_made_meanwhile_is_not_the_import(tmp_path: Path) -> None:
    class Taken(MemoryBucket):
        def create(self, key: str, data: bytes) -> bool:
            if key == keys.CLUSTER:
                super().create(key, data.replace(b'"cluster_id":"', b'"cluster_id":"x'))
            return super().create(key, data)

    bucket, root = Taken(), str(tmp_path / "data")
    async with Engine.open(root, SMALL) as engine:
        made = await fill(engine)
    with pytest.raises(OpenError, match="was made a cluster by another process meanwhile"):
        await import_directory(root, HERE, open_store=opener(bucket))
    async with Engine.open(root, SMALL) as engine:
        await check(engine, made)


async def test_what_is_used_already_is_not_imported_into(tmp_path: Path) -> None:
    bucket, root = MemoryBucket(), str(tmp_path / "data")
    async with Engine.open(root, SMALL) as engine:
        await fill(engine)
    with pytest.raises(OpenError, match="no file named FORMAT"):
        await import_directory(str(tmp_path), HERE, open_store=opener(bucket))
    await import_directory(root, HERE, open_store=opener(bucket))
    (tmp_path / "data" / layout.MOVED).unlink()
    with pytest.raises(OpenError, match=r"a cluster of 1 cells already\. Use another prefix"):
        await import_directory(root, HERE, open_store=opener(bucket))
    del bucket.objects[keys.CLUSTER]
    with pytest.raises(OpenError, match="an import that was interrupted"):
        await import_directory(root, HERE, open_store=opener(bucket))


def files_in(folder: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}


async def test_an_import_with_a_wrong_clock_expires_nothing(tmp_path: Path) -> None:
    class Old(MemoryBucket):
        def stored_at(self, key: str) -> float | None:
            found = super().stored_at(key)
            return None if found is None else found - 3600

    root = str(tmp_path / "data")
    async with Engine.open(root, SMALL) as engine:
        await fill(engine)
    before, bucket = files_in(tmp_path), Old()
    with pytest.raises(ClockWrong):
        await import_directory(root, HERE, open_store=opener(bucket))
    assert files_in(tmp_path) == before
    assert bucket.objects == {}


class Killed(Exception):
    """The process has ended."""


class Dying(MemoryBucket):
    """The process is killed at a write, before or after it is carried out."""

    def __init__(self, objects: dict[str, bytes], left: int, *, after: bool) -> None:
        super().__init__()
        self.objects = objects
        self.left = left
        self._after = after

    def create(self, key: str, data: bytes) -> bool:
        self.left -= 1
        if self.left == 0 and not self._after:
            raise Killed
        done = super().create(key, data)
        if self.left <= 0:
            raise Killed
        return done


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_no_node_starts_on_an_import_that_was_killed(tmp_path: Path, after: bool) -> None:
    root, writes = str(tmp_path / "data"), 0
    async with Engine.open(root, SMALL) as engine:
        await engine.put_topic("events", TopicConfig(durability=Durability.FSYNC))
        await engine.append("events", [record(1)])
    while True:
        writes += 1
        bucket = MemoryBucket()
        dying = Dying(bucket.objects, writes + 40, after=after)  # the check of the store makes some writes
        try:
            await import_directory(root, HERE, open_store=lambda _, dying=dying: dying)
        except Killed:
            driver = Driver(bucket, SystemClock())
            is_cluster = keys.CLUSTER in bucket.objects
            mark = tmp_path / "data" / layout.MOVED
            assert mark.exists() or not is_cluster, "a broker would start on a directory that a cluster has taken over"
            mark.unlink(missing_ok=True)
            if not (after and is_cluster):
                with pytest.raises(OpenError):
                    driver.run(read_cluster(HERE))
            driver.close()
        else:
            break
    assert writes > 5


async def test_a_cluster_that_runs_is_not_exported(tmp_path: Path) -> None:
    bucket, root = MemoryBucket(), str(tmp_path / "data")
    async with Engine.open(root, SMALL) as engine:
        made = await fill(engine)
    await import_directory(root, HERE, open_store=opener(bucket))

    async def export(to: str) -> Exported:
        # Long enough for the owner to write its sign, whatever else the machine does.
        return await export_cluster(HERE, str(tmp_path / to), open_store=opener(bucket), ttl_s=1.0)

    async with owned(bucket, tmp_path / "node") as owner:
        with pytest.raises(ClusterInUse, match=r"Something runs on the cluster.*nodes/"):
            await export("one")
        await owner.engine.append("events", [record({"n": 60})])
        await owner.abandon()
        made.heads["events"] += 1
        done = await export("two")
        assert done.crashed == [0]
    async with Engine.open(done.directory, SMALL) as engine:
        assert engine.topic("events").log.head == 61


async def test_what_is_missing_is_named_and_no_directory_is_made(tmp_path: Path) -> None:
    bucket, root = MemoryBucket(), str(tmp_path / "data")
    async with Engine.open(root, SMALL) as engine:
        await fill(engine)
    await import_directory(root, HERE, open_store=opener(bucket))
    segment = next(key for key in bucket.objects if "/segments/" in key)
    whole = dict(bucket.objects)
    del bucket.objects[segment]
    with pytest.raises(ClusterDamaged, match=f"{segment} is missing"):
        await export_cluster(HERE, str(tmp_path / "back"), open_store=opener(bucket), ttl_s=TTL_S)
    bucket.objects[segment] = bytes(len(whole[segment]))
    with pytest.raises(OSError, match="missing or damaged"):
        await export_cluster(HERE, str(tmp_path / "back"), open_store=opener(bucket), ttl_s=TTL_S)
    assert [*(tmp_path / "back").iterdir()] == []
    bucket.objects[segment] = whole[segment]
    bucket.objects[keys.slot("cell-00", 9)] = b"behind a slot that is missing"
    with pytest.raises(ClusterDamaged, match="is missing, and 1 slots behind it exist"):
        await export_cluster(HERE, str(tmp_path / "back"), open_store=opener(bucket), ttl_s=TTL_S)
