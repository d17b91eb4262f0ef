"""Segments in the cold tier are moved, read, deleted from, dropped and found again as if they were local."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from storage import Durability, Engine, ReadQuery, TopicConfig
from storage.errors import OpenError, RecordCorrupt, SegmentUnreadable, WalCorrupt
from storage.format import idx_entry
from storage.inspect.directory import DataDirectory
from storage.inspect.verify import Verdict, verify
from storage.inspect.wal import Finding
from storage.records.values import TagMatch
from storage.segments.tiering.directory import DirectoryStore
from storage.segments.tiering.store import ColdError
from storage.state.manifest import COLD, HOT
from tests.support.fake_clock import FakeClock
from tests.support.sim_disk import Loss, SimDisk
from tests.support.slow_store import FailingStore
from tests.unit.storage.machine import DATA, options, record, seqs

MOUNT = "/mnt/cold"
SMALL = options(segment_max_events=10, checkpoint_records=1, hot_retain_segments=1, cold_dir=MOUNT)


class Bench:
    """An engine with a cold tier on the same disk, whose workers run when told to."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.clock = FakeClock()
        self.options = SMALL
        self._make()

    def _make(self) -> None:
        self.store = FailingStore(DirectoryStore(self.disk, MOUNT))
        cold = self.store if self.options.cold_dir else None
        self.engine = Engine(DATA, self.options, fs=self.disk, clock=self.clock, threaded=False, cold=cold)

    async def settle(self) -> None:
        """Flush everything that is due, run the periodic work, and move segments."""
        await self.engine.segment_worker.flush_all()
        await self.engine.relocator.work()

    async def restart(self, how: str = "kill", *, store_down: bool = False, **changes: object) -> None:
        """Stop in one of three ways and start again."""
        if how == "clean":
            await self.engine.close()
        else:
            await self.engine.supervisor.stop()
            self.disk = self.disk.power_cut(Loss.DROP) if how == "power" else self.disk.process_kill()
        self.options = msgspec.structs.replace(self.options, **changes)
        self._make()
        if store_down:
            self.store.fail(times=None)
        await self.engine.start()

    # -- looking at it -----------------------------------------------------------------------------------------------

    @property
    def tiers(self) -> list[str]:
        return [each.tier for each in self.engine.catalog.topics["t"].log.held.manifest.segments]

    def here(self, ext: str) -> list[str]:
        """Names of segment files in the data directory."""
        return [
            path.rpartition("/")[2]
            for path in self.disk.tree()
            if "/topics/" in path and path.startswith(DATA) and path.endswith(ext)
        ]

    def there(self) -> dict[str, bytes]:
        """Objects of log 1 by name."""
        folder = f"{MOUNT}/{self.engine.cluster_id}/topics/{1:016x}/"
        return {
            path.removeprefix(folder): self.disk.read_file(path)
            for path in self.disk.tree()
            if path.startswith(folder) and not path.endswith("/")
        }

    def topic_file(self) -> dict[str, object]:
        return json.loads(self.there()["topic.json"])


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    await bench.engine.start()
    yield bench
    bench.disk.clear_faults()
    bench.store.mend()
    await bench.engine.close()


async def fill(engine: Engine, count: int, *, topic: str = "t", tag: bool = False, **config: Any) -> None:
    for number in range(count):
        await engine.append(
            topic,
            [record({"n": number}, tag=f"tag-{number % 3}" if tag else None)],
            config=TopicConfig(durability=Durability.FSYNC, **config),
        )


def seg(first_seq: int, ext: str) -> str:
    return f"seg-{first_seq:020d}.{ext}"


async def test_older_segments_move_and_are_read_across_every_border(bench: Bench) -> None:
    await fill(bench.engine, 45)
    await bench.settle()
    assert bench.tiers == [COLD] * 3 + [HOT] * 2
    assert bench.here(".data") == [seg(31, "data"), seg(41, "data")]
    assert len(bench.here(".idx")) == 5
    assert sorted(bench.there()) == sorted(
        [seg(first, ext) for first in (1, 11, 21) for ext in ("data", "idx")] + ["topic.json"]
    )
    for begin in range(0, 45, 7):
        assert await seqs(bench.engine, "t", from_seq=begin) == list(range(begin + 1, 46))
    result = await bench.engine.read("t", ReadQuery(limit=1000))
    assert result.cold_segments_read == 3
    assert (await bench.engine.read("t", ReadQuery(from_seq=15, limit=3))).cold_segments_read == 1
    assert (await bench.engine.read("t", ReadQuery(from_seq=30, limit=1000))).cold_segments_read == 0
    assert bench.engine.relocator.relocated == 3


async def test_the_topic_file_has_identity_settings_and_segments(bench: Bench) -> None:
    await fill(bench.engine, 45)
    await bench.settle()
    assert bench.topic_file() == {
        "cluster_id": bench.engine.cluster_id,
        "name": "t",
        "topic": bench.engine.catalog.topics["t"].topic_id,
        "partition": 0,
        "partitions": 1,
        "epoch": 1,
        "floors": {},
        "loss": [],
        "segments": [{"first_seq": first, "end_seq": first + 10, "gen": 0} for first in (1, 11, 21)],
        "end_seq": 31,
    }
    bench.engine.catalog.topics["t"].log.renew(9, 45)
    await bench.engine.delete_records("t", before_seq=12)
    await bench.settle()
    after = bench.topic_file()
    assert (after["floors"], after["epoch"], after["renewals"]) == ({"delete": 12}, 9, [[9, 45]])
    assert after["segments"] == [{"first_seq": first, "end_seq": first + 10, "gen": 0} for first in (11, 21)]


async def test_the_stricter_of_the_hot_retention_bounds_applies(bench: Bench) -> None:
    await fill(bench.engine, 45)
    await bench.engine.segment_worker.flush_all()
    size = bench.engine.catalog.topics["t"].log.held.manifest.segments[0].data_bytes
    await bench.restart(hot_retain_segments=4, hot_retain_bytes=2 * size + 30)  # later numbers have two digits
    await bench.settle()
    assert bench.tiers == [COLD] * 2 + [HOT] * 3
    await bench.restart(hot_retain_segments=1)
    await bench.settle()
    assert bench.tiers == [COLD] * 3 + [HOT] * 2
    await bench.restart(hot_retain_segments=0)
    await bench.settle()
    assert bench.tiers == [COLD] * 4 + [HOT]


@pytest.mark.parametrize("how", ["kill", "power", "clean"])
async def test_a_restart_finds_all_cold_records(bench: Bench, how: str) -> None:
    await fill(bench.engine, 45, tag=True)
    await bench.settle()
    before = bench.engine.state("t")
    for _ in range(2):
        await bench.restart(how)
        assert bench.tiers == [COLD] * 3 + [HOT] * 2
        assert await seqs(bench.engine, "t") == list(range(1, 46))
        after = bench.engine.state("t")
        assert (after.count, after.bytes) == (before.count, before.bytes)
        await bench.settle()


@pytest.mark.parametrize("how", ["kill", "power", "clean"])
@pytest.mark.parametrize("settled", [False, True])
async def test_deletes_reach_cold_segments_and_are_never_undone(bench: Bench, how: str, settled: bool) -> None:
    await fill(bench.engine, 45, tag=True)
    await bench.settle()
    objects = {name: content for name, content in bench.there().items() if name.endswith(".data")}
    bench.store.calls.clear()
    done = await bench.engine.delete_records("t", match=TagMatch(b"tag-1"))
    assert bench.store.calls == []  # a delete needs no file of the cold tier
    wanted = [seq for seq in range(1, 46) if (seq - 1) % 3 != 1]
    assert done.deleted == 45 - len(wanted)
    if settled:
        await bench.settle()
    for _ in range(2):
        assert await seqs(bench.engine, "t") == wanted
        await bench.restart(how)
        state = bench.engine.state("t")
        assert (state.count, state.bytes) == (len(wanted), done.bytes)
        await bench.settle()
    assert {name: content for name, content in bench.there().items() if name.endswith(".data")} == objects
    for first in (1, 11, 21):
        here = bench.disk.read_file(f"{DATA}/topics/{1:016x}/{seg(first, 'idx')}")
        assert bench.there()[seg(first, "idx")] == here
        gone = {first + number for number, entry in enumerate(idx_entry.parse(here)) if entry.flags & idx_entry.DELETED}
        assert gone == set(range(first, first + 10)) - set(wanted)


@pytest.mark.parametrize("how", ["kill", "power", "clean"])
async def test_a_start_makes_no_request_to_the_store(bench: Bench, how: str) -> None:
    await fill(bench.engine, 45, tag=True)
    await bench.settle()
    done = await bench.engine.delete_records("t", match=TagMatch(b"tag-1"))
    await bench.engine.delete_records("t", before_seq=4)
    await bench.restart(how, store_down=True)
    assert bench.store.calls == []
    state = bench.engine.state("t")
    assert (state.count, state.earliest_seq) == (done.count - 2, 4)
    await fill(bench.engine, 3)
    assert await seqs(bench.engine, "t", from_seq=45) == [46, 47, 48]


async def test_a_failed_index_upload_is_repeated_after_a_restart(bench: Bench) -> None:
    await fill(bench.engine, 35, tag=True)
    await bench.settle()
    await bench.engine.delete_records("t", match=TagMatch(b"tag-1"))
    bench.store.fail("put_bytes", "*.idx", times=None)
    await bench.engine.segment_worker.flush_all()
    with pytest.raises(ColdError):
        await bench.engine.relocator.work()
    path = f"{DATA}/topics/{1:016x}/{seg(1, 'idx')}"
    assert bench.there()[seg(1, "idx")] != bench.disk.read_file(path)
    await bench.engine.snapshotter.take()
    await bench.restart("clean")
    await bench.settle()
    assert bench.there()[seg(1, "idx")] == bench.disk.read_file(path)


async def test_a_dropped_segment_is_deleted_in_both_tiers(bench: Bench) -> None:
    await fill(bench.engine, 45, tag=True)
    await bench.settle()
    await bench.engine.delete_records("t", before_seq=25)
    await bench.settle()
    assert sorted(bench.there()) == [seg(21, "data"), seg(21, "idx"), "topic.json"]
    assert not {name for ext in (".data", ".idx", ".tag", ".len") for name in bench.here(ext) if name < seg(21, "")}
    assert await seqs(bench.engine, "t", from_seq=24) == list(range(25, 46))


@pytest.mark.parametrize("how", ["kill", "power", "clean"])
async def test_failed_object_deletions_are_repeated_after_a_restart(bench: Bench, how: str) -> None:
    await fill(bench.engine, 45)
    await bench.settle()
    bench.store.fail("delete", times=None)
    await bench.engine.delete_records("t", before_seq=25)
    await bench.engine.segment_worker.flush_all()
    with pytest.raises(ColdError):
        await bench.engine.relocator.work()
    assert seg(1, "data") in bench.there()
    await bench.restart(how)
    await bench.settle()
    assert sorted(bench.there()) == [seg(21, "data"), seg(21, "idx"), "topic.json"]


@pytest.mark.parametrize("how", ["kill", "power", "clean"])
async def test_a_deleted_topic_leaves_no_file_in_either_tier(bench: Bench, how: str) -> None:
    await fill(bench.engine, 45)
    await bench.settle()
    bench.store.fail("delete", times=None)
    await bench.engine.delete_topic("t")
    await bench.engine.segment_worker.flush_all()
    with pytest.raises(ColdError):
        await bench.engine.relocator.work()
    assert bench.engine.catalog.pending_deletes == {1}
    for _ in range(3):
        await bench.engine.snapshotter.take()  # the Delete frame may be gone by now
    await bench.restart(how)
    await bench.settle()
    assert bench.there() == {}
    assert bench.engine.catalog.pending_deletes == set()
    assert not [name for name in bench.here("") if name]


async def test_a_failing_store_is_reported_and_never_an_empty_answer(bench: Bench) -> None:
    await fill(bench.engine, 45)
    await bench.settle()
    bench.store.fail("get_range", times=None)
    with pytest.raises(SegmentUnreadable) as caught:
        await bench.engine.read("t", ReadQuery())
    assert caught.value.detail["segment"] == seg(1, "data")
    assert caught.value.code == "storage_failed"
    assert await seqs(bench.engine, "t", from_seq=30) == list(range(31, 46))
    bench.store.mend()
    assert await seqs(bench.engine, "t") == list(range(1, 46))
    bench.disk.remove_file(f"{MOUNT}/{bench.engine.cluster_id}/topics/{1:016x}/{seg(11, 'data')}")
    with pytest.raises(SegmentUnreadable):
        await bench.engine.read("t", ReadQuery(from_seq=10))


async def test_a_damaged_object_is_never_served(bench: Bench) -> None:
    await fill(bench.engine, 45)
    await bench.settle()
    path = f"{MOUNT}/{bench.engine.cluster_id}/topics/{1:016x}/{seg(11, 'data')}"
    content = bytearray(bench.disk.read_file(path))
    content[45] ^= 1
    bench.disk.write_file(path, bytes(content))
    with pytest.raises(RecordCorrupt) as caught:
        await bench.engine.read("t", ReadQuery(from_seq=10))
    assert caught.value.detail["seq"] == 11
    result = await bench.engine.read("t", ReadQuery(limit=1000, skip_corrupt=True))
    assert (result.corrupt_seqs, [each.seq for each in result.records]) == (
        [11],
        [seq for seq in range(1, 46) if seq != 11],
    )


async def test_a_segment_uploaded_with_damage_stays_hot(bench: Bench) -> None:
    await fill(bench.engine, 25)
    await bench.engine.segment_worker.flush_all()

    def lie(key: str, offset: int, size: int) -> bytes:
        return bytes(size)

    bench.store.get_range = lie  # type: ignore[method-assign]
    with pytest.raises(ColdError):
        await bench.engine.relocator.work()
    assert bench.tiers == [HOT] * 3
    assert await seqs(bench.engine, "t") == list(range(1, 26))


async def test_a_cold_segment_with_local_data_is_read_locally(bench: Bench) -> None:
    await fill(bench.engine, 25)
    await bench.engine.segment_worker.flush_all()
    bench.disk.fail("unlink", "*.data", errno=5)
    with pytest.raises(OSError, match=r"Errno 5"):
        await bench.engine.relocator.work()
    assert bench.tiers[0] == COLD
    bench.store.fail("get_range", times=None)
    assert await seqs(bench.engine, "t") == list(range(1, 26))
    bench.store.mend()
    await bench.engine.relocator.work()
    assert bench.here(".data") == [seg(11, "data"), seg(21, "data")]
    assert await seqs(bench.engine, "t") == list(range(1, 26))


async def test_a_cap_evicts_from_cold_segments_exactly_without_asking_the_store(bench: Bench) -> None:
    await fill(bench.engine, 45)
    await bench.settle()
    await bench.restart()
    bench.store.fail(times=None)
    await bench.engine.put_topic("t", TopicConfig(durability=Durability.FSYNC, cap_records=33))
    for number in range(12):
        await fill(bench.engine, 1)
        state = bench.engine.state("t")
        assert (state.count, state.earliest_seq) == (33, 14 + number)
    await bench.engine.segment_worker.flush_all()
    bench.store.mend()
    await bench.settle()
    assert await seqs(bench.engine, "t", from_seq=24) == list(range(25, 58))


async def test_ttl_expires_cold_segments_without_asking_the_store(bench: Bench) -> None:
    for _ in range(45):
        await fill(bench.engine, 1, ttl_ms=10_000)
        bench.clock.tick(100)
    await bench.settle()
    await bench.restart()
    bench.store.fail(times=None)
    bench.clock.tick(10_000 - 30 * 100 - 50)
    await bench.engine.expiry.tick()
    count = bench.engine.state("t").count
    assert 0 < count < 35
    first = 46 - count
    assert (await bench.engine.read("t", ReadQuery(from_seq=30))).records[0].seq == 31
    bench.store.mend()
    assert await seqs(bench.engine, "t", from_seq=first - 1) == list(range(first, 46))


async def test_a_lost_or_damaged_index_is_fetched_from_the_cold_tier(bench: Bench) -> None:
    await fill(bench.engine, 45, tag=True)
    await bench.settle()
    await bench.engine.delete_records("t", match=TagMatch(b"tag-1"))
    await bench.settle()
    wanted = await seqs(bench.engine, "t")
    folder = f"{DATA}/topics/{1:016x}"
    content = bytearray(bench.disk.read_file(f"{folder}/{seg(11, 'idx')}"))
    content[5] ^= 1
    bench.disk.remove_file(f"{folder}/{seg(1, 'idx')}")
    bench.disk.write_file(f"{folder}/{seg(11, 'idx')}", bytes(content))
    bench.disk.write_file(f"{folder}/{seg(21, 'idx')}", b"short")
    await bench.restart()
    assert await seqs(bench.engine, "t") == wanted
    content[5] ^= 1
    assert bench.disk.read_file(f"{folder}/{seg(11, 'idx')}") == bytes(content)


async def test_an_index_lost_in_both_tiers_refuses_to_start(bench: Bench) -> None:
    await fill(bench.engine, 25)
    await bench.settle()
    bench.disk.remove_file(f"{DATA}/topics/{1:016x}/{seg(1, 'idx')}")
    bench.disk.remove_file(f"{MOUNT}/{bench.engine.cluster_id}/topics/{1:016x}/{seg(1, 'idx')}")
    with pytest.raises(WalCorrupt, match="idx"):
        await bench.restart()


async def test_lost_sidecars_are_rebuilt_from_the_store(bench: Bench) -> None:
    await fill(bench.engine, 45, tag=True)
    await bench.settle()
    size = bench.engine.state("t").bytes
    folder = f"{DATA}/topics/{1:016x}"
    for first in (1, 11):
        bench.disk.remove_file(f"{folder}/{seg(first, 'len')}")
        bench.disk.remove_file(f"{folder}/{seg(first, 'tag')}")
    await bench.engine.delete_records("t", match=TagMatch(b"tag-1"))
    left = await bench.engine.delete_records("t", match=TagMatch(b"tag-2"))
    assert (left.count, left.bytes) == (15, size // 3)
    assert seg(1, "len") in bench.here(".len")
    assert seg(1, "tag") in bench.here(".tag")


async def test_a_data_directory_with_cold_segments_does_not_start_without_the_tier(bench: Bench) -> None:
    await fill(bench.engine, 25)
    await bench.settle()
    with pytest.raises(OpenError, match="TOPICS_COLD_DIR"):
        await bench.restart(cold_dir="")
    await bench.restart(cold_dir=MOUNT)
    assert await seqs(bench.engine, "t") == list(range(1, 26))


async def test_a_log_that_cannot_be_moved_does_not_delay_other_logs(bench: Bench) -> None:
    for topic in ("t", "u"):
        await fill(bench.engine, 25, topic=topic)
    bench.store.fail("put", f"*/{1:016x}/*", times=None)
    await bench.engine.segment_worker.flush_all()
    for _ in range(2):
        with pytest.raises(ColdError):
            await bench.engine.relocator.work()
    assert [each.tier for each in bench.engine.catalog.topics["u"].log.held.manifest.segments] == [COLD, HOT, HOT]
    assert bench.engine.store.cold is not None
    assert bench.engine.store.cold.errors >= 2


async def test_a_half_dead_segment_is_rewritten_before_the_move(bench: Bench) -> None:
    await fill(bench.engine, 25, tag=True)
    await bench.engine.segment_worker.flush_all()
    for tag in (b"tag-1", b"tag-2"):
        await bench.engine.delete_records("t", match=TagMatch(tag))
    await bench.engine.relocator.work()
    assert bench.tiers == [HOT] * 3
    for _ in range(3):
        await bench.settle()
    assert bench.tiers == [COLD, HOT, HOT]
    assert bench.engine.housekeeping.rewritten == 2
    assert f"seg-{1:020d}.1.data" in bench.there()
    assert await seqs(bench.engine, "t") == [seq for seq in range(1, 26) if (seq - 1) % 3 == 0]


async def test_verify_checks_the_local_files_of_cold_segments(bench: Bench) -> None:
    await fill(bench.engine, 35, tag=True)
    await bench.settle()
    assert bench.tiers[:2] == [COLD, COLD]
    await bench.engine.delete_records("t", match=TagMatch(b"tag-1"))
    await bench.settle()
    await bench.engine.close()

    def found() -> tuple[Verdict, list[Finding]]:
        findings: list[Finding] = []
        return verify(DataDirectory(bench.disk, DATA), findings.append), findings

    verdict, findings = found()
    assert findings == []
    assert verdict.cold_segments == bench.tiers.count(COLD)
    assert verdict.summary().endswith(f"{verdict.cold_segments} of them in the cold tier (only the index is checked)")
    path = f"{DATA}/topics/{1:016x}/{seg(1, 'idx')}"
    for offset in range(bench.disk.file_size(path)):
        bench.disk.flip_byte(path, offset)
        assert [each.path for each in found()[1] if each.problem] == [path.removeprefix(f"{DATA}/")], offset
        bench.disk.flip_byte(path, offset)
    bench.disk.unlink(path)
    assert [each.text for each in found()[1]] == [
        "The file is missing. The next start fetches the index from the cold tier."
    ]
