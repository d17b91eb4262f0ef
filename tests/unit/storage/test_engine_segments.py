"""Records in segments are read, evicted, deleted, expired and counted as if they were still in the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from storage import Durability, Engine, ReadQuery, TopicConfig
from storage.errors import StorageFull
from storage.format import control
from storage.format.wal_frame import FrameType
from storage.log.reader import FrameStream
from storage.platform import layout
from storage.records.values import TagMatch
from storage.segments import flusher, names
from storage.segments.store import id_of
from tests.support.fake_clock import FakeClock
from tests.support.sim_disk import Loss, SimDisk
from tests.unit.storage.machine import DATA, Machine, options, record, seqs

SMALL = options(segment_max_events=10, checkpoint_records=1, wal_shards=2)


class Bench:
    """An engine that flushes when told to, and is restarted."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.clock = FakeClock()
        self.engine = Engine(DATA, SMALL, fs=self.disk, clock=self.clock, threaded=False)

    async def mark_flushed(self) -> None:
        await self.engine.segment_worker.flush_all()

    async def restart(self, *, power: bool = False, clean: bool = False) -> None:
        """Stop in one of three ways and start again."""
        if clean:
            await self.engine.close()
            disk = self.disk
        else:
            await self.engine.supervisor.stop()
            disk = self.disk.power_cut(Loss.DROP) if power else self.disk.process_kill()
        self.disk = disk
        self.engine = Engine(DATA, SMALL, fs=disk, clock=self.clock, threaded=False)
        await self.engine.start()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    await bench.engine.start()
    yield bench
    await bench.engine.close()


async def fill(engine: Engine, count: int, *, topic: str = "t", tag: bool = False, **config: object) -> None:
    for number in range(count):
        await engine.append(
            topic,
            [record({"n": number}, tag=f"tag-{number % 3}" if tag else None)],
            config=TopicConfig(durability=Durability.FSYNC, **config),
        )


async def test_flushed_records_are_read_across_segment_borders(bench: Bench) -> None:
    await fill(bench.engine, 25)
    await bench.mark_flushed()
    await fill(bench.engine, 5)
    log = bench.engine.catalog.topics["t"].log
    assert log.held.flushed == 25
    assert [(each.first_seq, each.end_seq, each.sealed) for each in log.held.manifest.segments] == [
        (1, 11, True),
        (11, 21, True),
        (21, 26, False),
    ]
    for begin in range(30):
        assert await seqs(bench.engine, "t", from_seq=begin) == list(range(begin + 1, 31))
    assert bench.engine.state("t").count == 30


@pytest.mark.parametrize("how", ["kill", "power", "clean"])
async def test_flushed_records_survive_a_restart(bench: Bench, how: str) -> None:
    await fill(bench.engine, 25, tag=True)
    await bench.mark_flushed()
    before = bench.engine.state("t")
    for _ in range(2):
        await bench.restart(power=how == "power", clean=how == "clean")
        assert await seqs(bench.engine, "t") == list(range(1, 26))
        after = bench.engine.state("t")
        assert (after.count, after.bytes, after.head_seq) == (before.count, before.bytes, before.head_seq)
    await fill(bench.engine, 3)
    await bench.mark_flushed()
    assert await seqs(bench.engine, "t") == list(range(1, 29))


@pytest.mark.parametrize("absorb_after", [False, True])
@pytest.mark.parametrize("how", ["kill", "power", "clean"])
async def test_deletes_by_tag_reach_segments_and_are_never_undone(bench: Bench, how: str, absorb_after: bool) -> None:
    await fill(bench.engine, 25, tag=True)
    await bench.mark_flushed()
    await fill(bench.engine, 5, tag=True)
    size = bench.engine.state("t").bytes
    done = await bench.engine.delete_records("t", match=TagMatch(b"tag-1"))
    wanted = [seq for seq in range(1, 31) if (seq - 1 if seq <= 25 else seq - 26) % 3 != 1]
    assert done.deleted == 30 - len(wanted)
    assert done.bytes < size
    for _ in range(3):
        assert await seqs(bench.engine, "t") == wanted
        state = bench.engine.state("t")
        assert (state.count, state.bytes) == (len(wanted), done.bytes)
        if absorb_after:
            await bench.mark_flushed()
            assert await seqs(bench.engine, "t") == wanted
        await bench.restart(power=how == "power", clean=how == "clean")
    assert (await bench.engine.delete_records("t", match=TagMatch(b"tag-", True))).deleted == len(wanted)
    assert await seqs(bench.engine, "t") == []


async def test_a_cap_evicts_from_segments_exactly(bench: Bench) -> None:
    await fill(bench.engine, 25)
    await bench.mark_flushed()
    await bench.engine.put_topic("t", TopicConfig(durability=Durability.FSYNC, cap_records=13))
    assert bench.engine.state("t").count == 13
    for number in range(30):
        await fill(bench.engine, 1)
        state = bench.engine.state("t")
        assert (state.count, state.earliest_seq, state.evict_floor) == (13, 14 + number, 14 + number)
        if number % 4 == 0:
            await bench.mark_flushed()
            sizes = len(record({"n": 0}).data)
            assert state.bytes == pytest.approx(13 * sizes, abs=26)
    await bench.restart()
    assert await seqs(bench.engine, "t", from_seq=42) == list(range(43, 56))


async def test_a_byte_cap_is_exact_in_segments(bench: Bench) -> None:
    await fill(bench.engine, 25)
    await bench.mark_flushed()
    size = len(record({"n": 1}).data)
    await bench.engine.put_topic("t", TopicConfig(durability=Durability.FSYNC, cap_bytes=10 * size))
    for _ in range(20):
        await bench.engine.append("t", [record({"n": 5})])
        held = await bench.engine.read("t", ReadQuery(from_seq=bench.engine.state("t").earliest_seq - 1, limit=1000))
        total = sum(len(each.body) - len(b'{"data":}') for each in held.records)
        state = bench.engine.state("t")
        assert (total, len(held.records)) == (state.bytes, state.count)
        assert 10 * size - size - 1 <= total <= 10 * size
        await bench.mark_flushed()


async def test_records_in_segments_expire_by_ttl(bench: Bench) -> None:
    for _ in range(30):
        await fill(bench.engine, 1, ttl_ms=1000)
        bench.clock.tick(50)
    await bench.mark_flushed()
    for _ in range(30):
        now = bench.engine.now_ms()
        result = await bench.engine.read("t", ReadQuery(limit=1000))
        assert all(now - each.ts <= 1000 for each in result.records)
        assert result.tombstone is None or result.tombstone.reason == "ttl"
        assert len(result.records) == bench.engine.state("t").count
        bench.clock.tick(50)
    bench.clock.tick(2000)
    await bench.engine.expiry.tick()
    assert bench.engine.state("t").count == 0


async def test_dead_segments_are_dropped_and_half_dead_segments_rewritten(bench: Bench) -> None:
    await fill(bench.engine, 40, tag=True)
    await bench.mark_flushed()
    await bench.engine.delete_records("t", before_seq=11)
    await bench.engine.delete_records("t", match=TagMatch(b"tag-1"))
    await bench.engine.delete_records("t", match=TagMatch(b"tag-2"))
    await bench.mark_flushed()
    folder = [name for path in bench.disk.tree() if "/topics/" in path and (name := path.rpartition("/")[2])]
    assert not any(name.startswith("seg-" + "1".zfill(20)) for name in folder)
    assert any(".1.data" in name for name in folder)
    wanted = [seq for seq in range(11, 41) if (seq - 1) % 3 == 0]
    assert await seqs(bench.engine, "t") == wanted
    await bench.restart()
    assert await seqs(bench.engine, "t") == wanted
    assert bench.engine.state("t").count == len(wanted)


async def test_a_deleted_topic_leaves_no_folder(bench: Bench) -> None:
    await fill(bench.engine, 15)
    await bench.mark_flushed()
    await bench.engine.delete_topic("t")
    await fill(bench.engine, 2)
    await bench.mark_flushed()
    assert {path for path in bench.disk.tree() if "/topics/0000000000000001" in path} == set()
    await bench.restart()
    assert await seqs(bench.engine, "t") == [1, 2]


async def test_the_log_is_trimmed_behind_the_marks(bench: Bench) -> None:
    for _ in range(60):
        await bench.engine.append("t", [record("x" * 5000)], config=TopicConfig(durability=Durability.FSYNC))
    await bench.mark_flushed()
    shard = bench.engine.catalog.topics["t"].log.shard
    for _ in range(3):
        await bench.engine.append("t", [record("x" * 5000)])
        await bench.engine.snapshotter.take()
    assert f"{DATA}/wal/shard-{shard:02d}/wal-{1:016d}.log" not in bench.disk.tree()
    assert bench.engine.snapshotter.trimmed_files >= 2
    await bench.restart()
    assert await seqs(bench.engine, "t") == list(range(1, 64))


async def test_a_batch_beyond_the_end_of_a_segment_begins_the_next_segment(bench: Bench) -> None:
    await fill(bench.engine, 8)
    await bench.mark_flushed()
    await bench.engine.append("t", [record(number) for number in range(5)])
    await bench.mark_flushed()
    log = bench.engine.catalog.topics["t"].log
    assert [(each.first_seq, each.end_seq, each.sealed) for each in log.held.manifest.segments] == [
        (1, 9, True),
        (9, 14, False),
    ]


@pytest.mark.parametrize("steps", range(0, 60, 3))
async def test_a_delete_during_a_flush_deletes_matching_records_in_log_and_segments(bench: Bench, steps: int) -> None:
    await fill(bench.engine, 8, tag=True)
    await bench.mark_flushed()
    await fill(bench.engine, 9, tag=True)
    absorbing = asyncio.create_task(bench.mark_flushed())
    for _ in range(steps):
        await asyncio.sleep(0)
    done = await bench.engine.delete_records("t", match=TagMatch(b"tag-1"))
    await absorbing
    wanted = [seq for seq in range(1, 18) if (seq - 1 if seq <= 8 else seq - 9) % 3 != 1]
    assert done.deleted == 17 - len(wanted)
    for _ in range(2):
        assert await seqs(bench.engine, "t") == wanted
        assert bench.engine.state("t").count == len(wanted)
        await bench.restart(power=True)


async def test_many_old_segments_are_sealed_with_few_syncs(machine: Machine) -> None:
    engine = await machine.start(segment_max_age_ms=60_000, wal_file_bytes=1 << 20)
    for number in range(200):
        await engine.append(f"t{number}", [record()])
    await engine.segment_worker.flush_all()
    await machine.clock.advance(50_000)
    groups = engine.shards[0].log.stats.groups
    await machine.clock.advance(15_000)
    assert engine.flusher.sealed == 200
    assert engine.shards[0].log.stats.groups - groups < 50


async def test_sealing_of_old_segments_yields_to_waiting_work_and_resumes(machine: Machine) -> None:
    engine = await machine.start(segment_max_age_ms=60_000, wal_file_bytes=1 << 20)
    for number in range(200):
        await engine.append(f"t{number}", [record()])
    await engine.segment_worker.flush_all()
    machine.clock.tick(61_000)
    round = asyncio.ensure_future(engine.segment_worker.tick())
    while not engine.flusher.sealed:
        await asyncio.sleep(0)
    async with engine.segment_worker.paused():
        assert 0 < engine.flusher.sealed < 200
    await round
    await engine.segment_worker.tick()
    assert engine.flusher.sealed == 200


@pytest.mark.parametrize(("run", "units"), [(1, lambda segments: segments), (3, lambda segments: -(-segments // 3))])
@pytest.mark.parametrize(("batch", "segments"), [(1, [10] * 6), (4, [8] * 7 + [4])])
async def test_sealing_a_segment_and_opening_the_next_takes_a_single_sync(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    batch: int,
    segments: list[int],
    run: int,
    units: Callable[[int], int],
) -> None:
    monkeypatch.setattr(flusher, "_RUN_SEGMENTS", run)
    engine = bench.engine
    for _ in range(60 // batch):
        await engine.append("t", [record()] * batch, config=TopicConfig(durability=Durability.FSYNC))
    log = engine.catalog.topics["t"].log
    stats = engine.shards[log.shard].log.stats
    groups = stats.groups
    await bench.mark_flushed()
    # The first one is opened beforehand. Then each round describes a run in one unit.
    assert stats.groups - groups == 1 + units(len(segments))
    assert [each.count for each in log.held.manifest.segments] == segments
    ended = [each.sealed for each in log.held.manifest.segments]
    assert ended == [count > 4 for count in segments]
    assert (engine.flusher.opened, engine.flusher.sealed) == (len(segments), sum(ended))


async def test_the_frame_of_a_sealed_segment_matches_its_content(bench: Bench) -> None:
    await fill(bench.engine, 30, tag=True)
    await bench.engine.delete_records("t", match=TagMatch(b"tag-1"))
    await bench.mark_flushed()
    log = bench.engine.catalog.topics["t"].log
    path = layout.join(bench.engine.wal_directory(log.shard), layout.wal_name(1))
    said = [
        control.decode_control(frame[8], chunk.bytes[frame[0] + 38 : frame[0] + 38 + frame[5]])
        for chunk in FrameStream(bench.disk.open(path, write=False)).chunks()
        for frame in chunk.frames
        if frame[8] == FrameType.SEGMENT
    ]
    segments = [each for each in log.held.manifest.segments if each.sealed]
    assert [(each.first_seq, each.live) for each in segments] == [(1, 7), (12, 7)]
    assert [each for each in said if each.event == "sealed"] == [each.frame("sealed") for each in segments]


@pytest.mark.parametrize("cut_behind", [1, 2])
@pytest.mark.parametrize("gone", [13, 1400])
async def test_an_empty_segment_with_deleted_first_records_is_restarted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, gone: int, cut_behind: int
) -> None:
    """With any number of deletions. A crash after either of the two units leaves a directory that starts."""
    monkeypatch.setattr(flusher, "_RUN_SEGMENTS", 1)
    engine = bench.engine
    await fill(engine, 25)
    log = engine.catalog.topics["t"].log
    await engine.flusher._flush([log])
    assert [(each.first_seq, each.count) for each in log.held.manifest.segments] == [(1, 10), (11, 0)]
    for _ in range(gone // 100):
        await engine.append("t", [record()] * 100)
    await engine.append("t", [record()])
    await engine.delete_records("t", before_seq=gone)
    expected = await seqs(engine, "t")
    say, said = engine.flusher._write_frames, []

    async def say_and_stop(*words: Any) -> None:
        await say(*words)
        said.append(words)
        if len(said) == cut_behind:
            raise InterruptedError

    monkeypatch.setattr(engine.flusher, "_write_frames", say_and_stop)
    with pytest.raises(InterruptedError):
        await engine.flusher._flush([log])
    begun = log.held.manifest.segments[1]
    assert (begun.first_seq, begun.count > 0) == (gone, cut_behind == 2)
    assert begun.first_ts > 0 or not begun.count
    await bench.restart(power=True)
    assert await seqs(bench.engine, "t") == expected
    await bench.mark_flushed()
    assert await seqs(bench.engine, "t") == expected


async def test_an_opened_unused_segment_leaves_no_files(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher, "_RUN_SEGMENTS", 1)
    engine = bench.engine
    await fill(engine, 25)
    log = engine.catalog.topics["t"].log
    await engine.flusher._flush([log])
    bench.disk.open(names.path(DATA, id_of(log.topic_id, log.held.manifest.segments[-1]), names.DATA), create=True)
    folder = names.folder(DATA, log.topic_id)
    await engine.delete_records("t", before_seq=13)
    await bench.mark_flushed()
    await engine.segment_worker.tick()
    begun = [each.first_seq for each in log.held.manifest.segments]
    assert [name for name in bench.disk.listdir(folder) if name.endswith(names.DATA)] == [
        names.file_name(first_seq, 0, names.DATA) for first_seq in begun
    ]


async def test_a_flush_refused_by_the_log_leaves_the_segment_unchanged(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = bench.engine
    await fill(engine, 5)
    await bench.mark_flushed()
    log = engine.catalog.topics["t"].log
    await fill(engine, 10)
    before = log.held.manifest.segments[0].state()

    async def refuse(*_: object) -> None:
        raise StorageFull("no room")

    with monkeypatch.context() as refused:
        refused.setattr(engine.flusher, "_write_frames", refuse)
        with pytest.raises(StorageFull):
            await engine.flusher._flush([log])
    assert log.held.manifest.segments[0].state() == before
    await bench.mark_flushed()
    await bench.restart(power=True)
    assert await seqs(bench.engine, "t") == list(range(1, 16))
