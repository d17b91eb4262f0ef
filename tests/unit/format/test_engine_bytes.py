"""The independent decoder reads the engine's files: the same records, heads and snapshots, byte by byte."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from storage import Durability, Engine, NewRecord, Options, ReadQuery, StoredRecord, TagMatch, TopicConfig
from storage.inspect.directory import DataDirectory
from storage.inspect.verify import verify
from storage.platform.posix import PosixFileSystem
from tests.support.spec_control import SEGMENT
from tests.support.spec_decoder import Decoded, read_data_dir

# Small files and frequent SyncPoints, so that a short test meets rotation, SyncPoints and trimming.
SMALL = Options(
    wal_shards=2, wal_file_bytes=1 << 14, wal_reserve_bytes=1 << 12, sync_point_bytes=2000, sync_point_ms=60_000
)
# Segments of a few records, and the log moved to them only when a test says so.
SEGMENTED = msgspec.structs.replace(SMALL, segment_max_events=16, checkpoint_interval_ms=3_600_000)
TOPICS = {
    "disk": TopicConfig(durability=Durability.DISK),
    "fsync": TopicConfig(durability=Durability.FSYNC),
    "capped": TopicConfig(durability=Durability.MEMORY, cap_records=30),
    "sized": TopicConfig(durability=Durability.FSYNC, cap_bytes=500),
}


def record(choice: random.Random, number: int) -> NewRecord:
    """Data to append, with or without node, tag and meta."""
    return NewRecord(
        data=msgspec.Raw(b'{"n": %d, "x":1.10}' % number),
        meta=choice.choice([None, msgspec.Raw(b'{"k":"v"}'), msgspec.Raw(b"null")]),
        tag=choice.choice([None, "red", "reddish", "blue"]),
        node=choice.choice([None, "n-1"]),
    )


async def live(engine: Engine, choice: random.Random, writes: int) -> None:
    """Write, delete and change for a while."""
    for name, config in TOPICS.items():
        await engine.put_topic(name, config)
    for number in range(writes):
        name = choice.choice(list(TOPICS))
        records = [record(choice, number) for _ in range(choice.choice([1, 1, 2, 15]))]
        key = f"key-{choice.random()}" if number % 5 == 0 else None
        await engine.append(name, records, node="w" if number % 3 else None, idempotency_key=key)
        if number % 25 == 24:
            await engine.delete_records("disk", before_seq=engine.state("disk").head_seq // 2)
            await engine.delete_records("fsync", match=TagMatch(b"red", prefix=bool(number % 2)))
    await engine.append("made-by-a-write", [record(choice, 0), record(choice, 1)])
    await engine.append("short-lived", [record(choice, 0)])
    await engine.delete_topic("short-lived")


async def all_records(engine: Engine, name: str) -> dict[int, StoredRecord]:
    """Every live record by seq."""
    found: dict[int, StoredRecord] = {}
    from_seq = 0
    while True:
        result = await engine.read(name, ReadQuery(from_seq=from_seq, limit=1000))
        found |= {each.seq: each for each in result.records}
        from_seq = result.next_from_seq
        if from_seq >= result.head_seq:
            return found


async def same(engine: Engine, decoded: Decoded) -> None:
    """The decoder sees exactly the topics and records that the engine serves."""
    states = {state.topic: state for state in engine.topics()}
    assert set(decoded.topics) == set(states)
    for name, state in states.items():
        log = decoded.topics[name]
        assert (log.head, log.topic_id, log.epoch) == (state.head_seq, state.topic_id, state.epoch)
        served = await all_records(engine, name)
        assert log.records.keys() == served.keys()
        for seq, stored in served.items():
            found = log.records[seq]
            assert (found.ts, found.node, found.tag) == (stored.ts, stored.node, stored.tag)
            meta = b"" if found.meta is None else b',"meta":' + found.meta
            assert b'{"data":' + found.data + meta + b"}" == stored.body


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_the_decoder_reads_the_log_of_the_engine(data_dir: Path, seed: int) -> None:
    choice = random.Random(seed)
    for _ in range(3):
        async with Engine.open(data_dir, SMALL) as engine:
            await live(engine, choice, writes=60)
            for shard in engine.shards:
                shard.harden()
            await same(engine, read_data_dir(data_dir))
        decoded = read_data_dir(data_dir)
        assert decoded.snapshots[-1].clean
        assert not decoded.torn


async def test_verify_reports_no_problem_in_a_directory_of_the_engine(data_dir: Path) -> None:
    choice = random.Random(4)
    for _ in range(3):
        async with Engine.open(data_dir, SMALL) as engine:
            await live(engine, choice, writes=60)
        findings: list[object] = []
        verdict = verify(DataDirectory(PosixFileSystem(), str(data_dir)), findings.append)
        assert findings == []
        assert verdict.snapshots == len(read_data_dir(data_dir).snapshots)


async def test_an_acked_seq_is_never_beyond_the_reservation(data_dir: Path) -> None:
    async with Engine.open(data_dir, SMALL) as engine:
        for _ in range(40):
            answer = await engine.append("disk", [record(random.Random(5), 1)] * 20)
            assert answer.last_seq <= read_data_dir(data_dir).topics["disk"].promised_head


async def test_a_deleted_topic_made_again_is_another_log(data_dir: Path) -> None:
    async with Engine.open(data_dir, SMALL) as engine:
        await engine.append("again", [record(random.Random(6), 1)])
        await engine.delete_topic("again")
        await engine.append("again", [record(random.Random(6), 2)])
        await same(engine, read_data_dir(data_dir))


async def test_an_ephemeral_topic_leaves_no_record_in_the_log(data_dir: Path) -> None:
    async with Engine.open(data_dir, SMALL) as engine:
        await engine.put_topic("brief", TopicConfig(durability=Durability.EPHEMERAL))
        await engine.append("brief", [record(random.Random(7), 1)] * 5)
        assert read_data_dir(data_dir).topics["brief"].records == {}


async def test_a_topic_made_durable_is_written_out(data_dir: Path) -> None:
    async with Engine.open(data_dir, SMALL) as engine:
        await engine.put_topic("kept", TopicConfig(durability=Durability.EPHEMERAL))
        await engine.append("kept", [record(random.Random(8), 1)] * 5)
        await engine.put_topic("kept", TopicConfig(durability=Durability.FSYNC))
        await engine.append("kept", [record(random.Random(8), 2)])
        await same(engine, read_data_dir(data_dir))


@pytest.mark.parametrize("seed", range(4))
async def test_the_decoder_reads_segments_and_the_log_behind_the_segments(data_dir: Path, seed: int) -> None:
    choice = random.Random(seed)
    for _ in range(3):
        async with Engine.open(data_dir, SEGMENTED) as engine:
            for _ in range(3):
                await live(engine, choice, writes=25)
                if choice.random() < 0.8:
                    await engine.segment_worker.flush_all()
                    await settled(engine)
                    assert all(log.manifest.segments for log in read_data_dir(data_dir).topics.values())
                await settled(engine)
                if choice.random() < 0.5:
                    await engine.snapshotter.take()
                    await same(engine, read_data_dir(data_dir))
        decoded = read_data_dir(data_dir)
        assert decoded.snapshots[-1].clean
        assert not decoded.torn
        findings: list[object] = []
        verdict = verify(DataDirectory(PosixFileSystem(), str(data_dir)), findings.append)
        assert findings == []
        assert verdict.segments == sum(len(log.manifest.segments) for log in decoded.logs.values())


async def settled(engine: Engine) -> None:
    """The served records are those on the disk and in the cold store."""
    for shard in engine.shards:
        shard.harden()
    await same(engine, read_data_dir(Path(engine.path), engine.options.cold_dir or None))


@pytest.mark.parametrize("seed", range(3))
async def test_the_decoder_reads_segments_in_the_cold_store(data_dir: Path, seed: int) -> None:
    choice = random.Random(seed)
    cold = str(data_dir.parent / "cold")
    options = msgspec.structs.replace(SEGMENTED, cold_dir=cold, hot_retain_segments=1)
    for _ in range(3):
        async with Engine.open(data_dir, options) as engine:
            for _ in range(3):
                await live(engine, choice, writes=25)
                await engine.segment_worker.flush_all()
                await settled(engine)
                await engine.relocator.work()
                await settled(engine)
                await engine.delete_records("fsync", match=TagMatch(b"blue"))
                await settled(engine)
            assert engine.relocator.relocated
        decoded = read_data_dir(data_dir, cold)
        tiers = {segment.tier for each in decoded.logs.values() for segment in each.manifest.segments.values()}
        assert tiers == {"hot", "cold"}


async def test_every_step_of_a_segment_is_read(data_dir: Path) -> None:
    deletions: list[dict[str, Any]] = [
        {"before_seq": 17},
        {"match": TagMatch(b"red", prefix=True)},
        {"match": TagMatch(b"blue")},
    ]
    async with Engine.open(data_dir, SEGMENTED) as engine:
        await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC))
        for tag in ["red", "reddish", "blue", None] * 10:
            await engine.append("t", [NewRecord(data=msgspec.Raw(b"1"), tag=tag)])
        await engine.segment_worker.flush_all()
        await engine.append("t", [NewRecord(data=msgspec.Raw(b"2"), tag="red")])
        for deletion in deletions:
            await engine.delete_records("t", **deletion)
            await settled(engine)  # deleted in the log, and not yet in the files
            await engine.segment_worker.flush_all()
            await settled(engine)
        decoded = read_data_dir(data_dir)
        assert decoded.unnamed == ()
        events = {frame.field("event") for shard in decoded.shards for frame in shard.frames if frame.type == SEGMENT}
        assert events == {"opened", "sealed", "rewritten", "dropped"}


async def test_records_of_a_trimmed_log_are_read_from_segments(data_dir: Path) -> None:
    async with Engine.open(data_dir, SEGMENTED) as engine:
        await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC))
        choice = random.Random(10)
        for number in range(300):
            await engine.append("t", [record(choice, number)])
            if number % 100 == 99:
                await engine.segment_worker.flush_all()
                await engine.snapshotter.take()
                await engine.snapshotter.take()
        await engine.delete_records("t", match=TagMatch(b"blue"))
        await settled(engine)
        await engine.segment_worker.flush_all()
        decoded = read_data_dir(data_dir)
        appended = {frame.seq for shard in decoded.shards for frame in shard.frames if frame.seq}
        assert len(appended) < 200
        assert len(decoded.topics["t"].records) > 200
        await settled(engine)


async def test_a_deleted_topic_leaves_no_segment_file(data_dir: Path) -> None:
    async with Engine.open(data_dir, SEGMENTED) as engine:
        await engine.append("gone", [record(random.Random(11), 1)])
        await engine.segment_worker.flush_all()
        await engine.delete_topic("gone")
        assert read_data_dir(data_dir).topics == {}
        await engine.segment_worker.flush_all()
        assert read_data_dir(data_dir).unnamed == ()
