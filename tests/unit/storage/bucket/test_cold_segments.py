"""Segments of a cell that are in the bucket alone: they are read from there, and every owner finds them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from storage import Durability, ReadQuery, TagMatch, TopicConfig
from storage.backup.restoring import restore
from storage.bucket import COLD_FORMAT, IN_BUCKET, Candidate, Driver, Location, Unanswered, read_cluster, revise
from storage.cells.adopting import adopt
from storage.cells.exporting import export_cluster
from storage.cells.founding import make_cluster
from storage.cells.owner import CellOwner
from storage.engine import Engine
from storage.errors import SegmentUnreadable
from storage.options import Options
from storage.platform import PosixFileSystem, SystemClock
from storage.state import COLD, Segment
from tests.support.memory_bucket import MemoryBucket
from tests.unit.storage.bucket.test_one_machine import opener
from tests.unit.storage.bucket.test_owner import record

HERE = Location("s3", "bucket", "one")
CELL = "cell-00"
TTL_S = 0.3
SMALL = Options(
    segment_max_events=10,
    checkpoint_interval_ms=20,
    cold_dir=IN_BUCKET,
    hot_retain_segments=1,
    put_interval_ms=0,
    cell=0,
    cells=1,
)
RECORDS = 65


class Store(MemoryBucket):
    """Counts the bytes of segments that were fetched, and may be away."""

    def __init__(self) -> None:
        super().__init__()
        self.whole: list[str] = []
        self.parts: list[str] = []
        self.is_away = False

    def get(self, key: str) -> bytes | None:
        if "/segments/" in key:
            self.whole.append(key)
        return super().get(key)

    def get_range(self, key: str, offset: int, size: int) -> bytes | None:
        if self.is_away:
            raise Unanswered("away")
        self.parts.append(key)
        return super().get_range(key, offset, size)


@pytest.fixture
def store() -> Store:
    found = Store()
    make_cluster(HERE, 1, open_store=opener(found))
    return found


class Nodes:
    """Makes owners on machines of their own."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self.made: list[CellOwner] = []

    async def start(self, machine: str = "", options: Options = SMALL) -> CellOwner:
        number = len(self.made)
        owner = CellOwner(
            self._store,
            CELL,
            str(self._folder / (machine or f"machine-{number}")),
            Candidate("node", f"{number + 1:032x}"),
            options=options,
            ttl_s=TTL_S,
        )
        self.made.append(owner)
        await owner.start()
        return owner


@pytest.fixture
async def nodes(store: Store, tmp_path: Path) -> AsyncIterator[Nodes]:
    found = Nodes(store, tmp_path)
    yield found
    for each in found.made:
        await each.close()


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.02)


def segments(engine: Engine) -> list[Segment]:
    return engine.topic("events").log.held.manifest.segments


def cold(engine: Engine) -> list[int]:
    return [each.first_seq for each in segments(engine) if each.tier == COLD]


async def filled(owner: CellOwner) -> None:
    """Sealed segments that begin with the seqs 1, 11 … 51, of which all but the newest move to the bucket."""
    engine = owner.engine
    await engine.put_topic("events", TopicConfig(durability=Durability.FSYNC))
    for number in range(RECORDS):
        await engine.append("events", [msgspec.structs.replace(record(number), tag="x" if number in (2, 16) else "y")])
    await engine.segment_worker.flush_all()
    await asyncio.sleep(0.1)
    assert cold(engine) == [], "no base names them yet"
    await owner.put_base()
    await until(lambda: cold(engine) == [1, 11, 21, 31, 41])


async def contents(engine: Engine) -> list[int]:
    found = await engine.read("events", ReadQuery(limit=1000))
    assert found.tombstone is None
    return [json.loads(each.data) for each in found.records]


def local(engine: Engine) -> list[str]:
    return sorted(each.name for each in Path(engine.path).rglob("seg-*.data"))


ALL = [*range(RECORDS)]
LEFT = [number for number in ALL if number not in (2, 16)]


async def test_older_segments_are_read_from_the_objects_that_bases_name(store: Store, nodes: Nodes) -> None:
    owner = await nodes.start()
    await filled(owner)
    await until(lambda: len(local(owner.engine)) == 2)
    before = dict(store.objects)
    assert await contents(owner.engine) == ALL
    assert len({*store.parts}) == 5
    assert owner.engine.store.cold is not None
    assert owner.engine.store.cold.reads >= 5
    created = store.objects.keys() - before.keys()
    assert not any("/segments/" in key for key in created), "nothing is stored twice"


async def test_the_next_owner_fetches_only_segments_that_are_not_cold(store: Store, nodes: Nodes) -> None:
    first = await nodes.start()
    await filled(first)
    await first.put_base()
    await first.engine.delete_records("events", match=TagMatch(b"x"))
    await first.abandon()
    store.whole.clear()
    second = await nodes.start()
    assert len({*store.whole}) == 1
    assert cold(second.engine) == [1, 11, 21, 31, 41]
    assert await contents(second.engine) == LEFT
    # Deletions in cold segments are in the next base, and its redo slot is behind them.
    await second.engine.segment_worker.flush_all()
    await second.put_base()
    await second.put_base()
    await second.abandon()
    third = await nodes.start()
    assert await contents(third.engine) == LEFT
    written = await third.engine.append("events", [record(RECORDS)])
    assert written.first_seq == RECORDS + 1


async def test_a_segment_that_moved_behind_the_newest_base_is_hot_for_the_next_owner(
    store: Store, nodes: Nodes
) -> None:
    first = await nodes.start()
    await filled(first)
    await first.abandon()
    second = await nodes.start(options=msgspec.structs.replace(SMALL, cold_dir=""))
    assert cold(second.engine) == []
    assert len(local(second.engine)) == len(segments(second.engine))
    assert await contents(second.engine) == ALL


async def test_nothing_moves_before_the_cluster_is_finalized_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store()
    with monkeypatch.context() as before:
        before.setattr("storage.bucket.cluster.FORMATS", (1,))
        make_cluster(HERE, 1, open_store=opener(store))
    monkeypatch.setattr("storage.cells.owner.CHECK_S", 0.02)
    owner = await Nodes(store, tmp_path).start()
    try:
        await owner.engine.put_topic("events", TopicConfig(durability=Durability.FSYNC))
        for number in range(RECORDS):
            await owner.engine.append("events", [record(number)])
        await owner.engine.segment_worker.flush_all()
        await owner.put_base()
        await asyncio.sleep(0.2)
        assert cold(owner.engine) == []
        driver = Driver(store, SystemClock())
        cluster = driver.run(read_cluster(HERE))
        assert cluster.format == 1
        assert driver.run(revise(cluster, format=COLD_FORMAT)) is not None
        driver.close()
        await until(lambda: len(cold(owner.engine)) == 5)
        assert await contents(owner.engine) == ALL
    finally:
        await owner.close()


async def test_a_process_that_starts_again_in_the_same_directory_finds_them(store: Store, nodes: Nodes) -> None:
    first = await nodes.start("one")
    await filled(first)
    await first.abandon()
    second = await nodes.start("one")
    assert cold(second.engine) == [1, 11, 21, 31, 41]
    assert await contents(second.engine) == ALL


async def test_cold_segments_stay_readable_when_no_more_of_them_move(store: Store, nodes: Nodes) -> None:
    first = await nodes.start()
    await filled(first)
    await first.close()
    second = await nodes.start(options=msgspec.structs.replace(SMALL, cold_dir=""))
    assert cold(second.engine) == [1, 11, 21, 31, 41]
    assert await contents(second.engine) == ALL
    for number in range(30):
        await second.engine.append("events", [record(RECORDS + number)])
    await second.engine.segment_worker.flush_all()
    await second.put_base()
    await asyncio.sleep(0.2)
    assert cold(second.engine) == [1, 11, 21, 31, 41]


async def test_objects_of_dropped_segments_are_deleted_and_others_stay(store: Store, nodes: Nodes) -> None:
    owner = await nodes.start()
    await filled(owner)
    await owner.engine.delete_records("events", before_seq=31)
    await until(lambda: cold(owner.engine) == [31, 41])
    for _ in range(3):
        await owner.put_base()

    def stored() -> int:
        return sum("/segments/" in key for key in store.objects)

    while stored() != len([each for each in segments(owner.engine) if each.sealed]):
        await owner.trim()
        await asyncio.sleep(0.05)
    assert await contents(owner.engine) == ALL[30:]


async def test_a_store_that_does_not_answer_fails_reads_of_cold_records_alone(store: Store, nodes: Nodes) -> None:
    owner = await nodes.start(options=msgspec.structs.replace(SMALL, cold_timeout_s=0.2))
    await filled(owner)
    store.is_away = True
    with pytest.raises(SegmentUnreadable) as raised:
        await owner.engine.read("events", ReadQuery())
    assert raised.value.detail["tier"] == COLD
    found = await owner.engine.read("events", ReadQuery(from_seq=51))
    assert [each.seq for each in found.records] == [*range(52, RECORDS + 1)]
    store.is_away = False
    assert await contents(owner.engine) == ALL


async def test_a_damaged_object_is_reported_and_not_returned(store: Store, nodes: Nodes) -> None:
    owner = await nodes.start()
    await filled(owner)
    [key] = [key for key, data in store.objects.items() if "/segments/" in key and b"16" in data]
    data = store.objects[key]
    at = data.index(b"16")
    store.objects[key] = data[:at] + b"17" + data[at + 2 :]
    found = await owner.engine.read("events", ReadQuery(limit=1000, skip_corrupt=True))
    assert found.corrupt_seqs == [17]
    assert [each.seq for each in found.records] == [seq for seq in range(1, RECORDS + 1) if seq != 17]


async def test_an_exported_directory_has_all_of_them(store: Store, nodes: Nodes, tmp_path: Path) -> None:
    owner = await nodes.start()
    await filled(owner)
    await owner.engine.delete_records("events", match=TagMatch(b"x"))
    await owner.close()
    await export_cluster(HERE, str(tmp_path / "out"), open_store=opener(store), ttl_s=TTL_S)
    async with Engine.open(str(tmp_path / "out")) as engine:
        assert cold(engine) == []
        assert await contents(engine) == LEFT


async def test_an_adopted_copy_has_all_of_them(store: Store, nodes: Nodes, tmp_path: Path) -> None:
    owner = await nodes.start()
    await filled(owner)
    await owner.close()
    there = Location("s3", "bucket", "two")
    await adopt(there, str(tmp_path / "work"), open_store=opener(store), ttl_s=TTL_S)
    adopted = await nodes.start()
    assert cold(adopted.engine) == [1, 11, 21, 31, 41]
    assert await contents(adopted.engine) == ALL


async def test_a_backup_contains_them(store: Store, nodes: Nodes, tmp_path: Path) -> None:
    owner = await nodes.start()
    await filled(owner)
    await owner.engine.delete_records("events", match=TagMatch(b"x"))
    done = await owner.engine.backup(str(tmp_path / "backup"))
    assert done.referenced_segments == 0
    await asyncio.to_thread(restore, PosixFileSystem(), str(tmp_path / "backup"), str(tmp_path / "restored"))
    async with Engine.open(str(tmp_path / "restored")) as engine:
        assert cold(engine) == []
        assert await contents(engine) == LEFT
