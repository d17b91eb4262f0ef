"""Which segments are packed, and that readers and deletes get the same results from packed segments."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from storage import CompressionType, Durability, NewRecord, TopicConfig
from storage.engine import Engine
from storage.errors import RecordCorrupt
from storage.inspect.directory import DataDirectory
from storage.inspect.dump import DumpOptions, dump
from storage.inspect.verify import verify
from storage.inspect.wal import Finding
from storage.platform import layout
from storage.records.values import ReadQuery, TagMatch
from storage.segments import names
from storage.segments.download import open_download
from storage.segments.names import DATA, IDX, SegmentId
from storage.segments.packed import PackedData
from storage.state.manifest import Segment
from storage.state.state_table import CODEC, PRODUCER
from tests.support.sim_disk import SimDisk
from tests.unit.storage.machine import Machine, record

ZSTD = TopicConfig(durability=Durability.FSYNC, compression_type=CompressionType.ZSTD)
PRODUCERS = TopicConfig(durability=Durability.FSYNC)
NEVER = TopicConfig(durability=Durability.FSYNC, compression_type=CompressionType.UNCOMPRESSED)
SMALL: dict[str, Any] = {"segment_max_events": 10, "segment_pack_bytes": 1000}
DATA_DIR = "/data"
PACKED = SegmentId(1, 1, 1, packed=True)


def text(seq: int) -> str:
    return f"record {seq}, " + "as always " * 30


def some(count: int, first: int = 1) -> list[NewRecord]:
    return [record(text(seq), tag="odd" if seq % 2 else "even") for seq in range(first, first + count)]


async def filled(machine: Machine, config: TopicConfig = ZSTD, **changes: Any) -> Engine:
    """Two sealed segments and an active one."""
    engine = await machine.start(**{**SMALL, **changes})
    for first in (1, 11):
        await engine.append("t", some(10, first), config=config)
    await engine.append("t", some(1, 21))
    await engine.segment_worker.flush_all()
    return engine


def segments(engine: Engine) -> list[Segment]:
    return engine.topic("t").log.held.manifest.segments


def packed(engine: Engine) -> list[bool]:
    return [each.packed_bytes > 0 for each in segments(engine)]


async def texts(engine: Engine, **query: Any) -> dict[int, str]:
    found = await engine.read("t", ReadQuery(limit=1000, **query))
    return {each.seq: each.body[9:-1].decode().strip('"') for each in found.records}


async def to_the_end(engine: Engine) -> None:
    after = 0
    while (found := await engine.read("t", ReadQuery(from_seq=after, limit=100))).records:
        after = found.next_from_seq


async def whole(engine: Engine, first_seq: int, ext: str) -> bytes:
    download = await open_download(engine, "t", first_seq, ext)
    return await download.read(0, download.size)


def verdict(disk: SimDisk) -> list[str]:
    found: list[Finding] = []
    verify(DataDirectory(disk, DATA_DIR), found.append)
    return [f"{each.path}: {each.text}" for each in found if each.problem]


def format_version(disk: SimDisk) -> str:
    return disk.read_file(f"{DATA_DIR}/{layout.FORMAT}").decode().split("\n")[0]


@pytest.mark.parametrize(
    ("config", "codec", "wanted"),
    [
        (ZSTD, None, True),
        (PRODUCERS, None, False),
        (PRODUCERS, b"lz4", True),
        (NEVER, b"lz4", False),
    ],
)
async def test_segments_are_packed_by_the_topic_setting_or_the_producer(
    config: TopicConfig, codec: bytes | None, wanted: bool
) -> None:
    async with Machine() as machine:
        engine = await machine.start(**SMALL)
        await engine.append("t", some(10), config=config)
        if codec:
            await engine.states.put_of_log(engine.topic("t"), CODEC, PRODUCER, codec)
        await engine.append("t", some(1, 11))
        await engine.segment_worker.flush_all()
        assert packed(engine) == [wanted, False]
        assert format_version(machine.disk) == ("2" if wanted else "1")
        assert await texts(engine) == {seq: text(seq) for seq in range(1, 12)}


@pytest.mark.parametrize("least", [0, 1 << 20])
async def test_segments_below_segment_pack_bytes_are_not_packed(least: int) -> None:
    async with Machine() as machine:
        engine = await filled(machine, segment_pack_bytes=least)
        assert packed(engine) == [False] * 3
        assert not any(path.endswith(".zdata") for path in machine.disk.tree())
        assert format_version(machine.disk) == "1"


async def test_packing_of_incompressible_data_is_tried_once() -> None:
    async with Machine() as machine:
        engine = await machine.start(**SMALL)
        printable = [chr(code) for code in range(32, 127) if chr(code) not in '"\\']
        noise = ["".join(Random(number).choices(printable, k=2000)) for number in range(10)]
        await engine.append("t", [record(each) for each in noise], config=ZSTD)
        await engine.append("t", some(1))
        await engine.segment_worker.flush_all()
        reads = [call for call in machine.disk.calls if call.path.endswith(".data") and call.op == "open"]
        await engine.segment_worker.flush_all()
        assert packed(engine) == [False, False]
        assert reads == [call for call in machine.disk.calls if call.path.endswith(".data") and call.op == "open"]


async def test_downloads_of_packed_and_unpacked_segments_are_equal() -> None:
    async with Machine() as plain_machine, Machine() as machine:
        plain, engine = await filled(plain_machine, NEVER), await filled(machine)
        for each in (plain, engine):
            await each.delete_records("t", match=TagMatch(b"odd"), before_seq=6)
        for _ in range(2):
            for first_seq in (1, 11):
                for ext in (DATA, IDX):
                    assert await whole(engine, first_seq, ext) == await whole(plain, first_seq, ext)
            for each in (plain, engine):
                await each.segment_worker.flush_all()  # by now the deletions are flagged
        assert packed(engine) == [True, True, False]


async def test_a_delete_byte_alone_withholds_a_record_from_raw_files() -> None:
    async with Machine() as machine:
        engine = await filled(machine)
        file = machine.disk.open(names.records_path(DATA_DIR, PACKED))
        file.pwritev([b"\xd5"], 48 + 6)
        file.close()
        content = await whole(engine, 1, DATA)
        assert b"record 7," not in content
        assert b"record 8," in content


@pytest.mark.parametrize("power", [False, True])
async def test_deletions_survive_restarts_and_a_lost_index(power: bool) -> None:
    async with Machine() as machine:
        engine = await filled(machine)
        await engine.delete_records("t", match=TagMatch(b"odd"), before_seq=8)
        await engine.segment_worker.flush_all()
        await engine.snapshotter.take()
        await engine.snapshotter.take()
        expected = await texts(engine)
        assert [*expected] == [2, 4, 6, *range(8, 22)]
        machine.before_start = lambda found: found.disk.remove_file(names.path(DATA_DIR, PACKED, IDX))
        engine = await (machine.cut_power(**SMALL) if power else machine.kill(**SMALL))
        assert await texts(engine) == expected
        assert packed(engine) == [True, True, False]
        assert verdict(machine.disk) == []


async def test_a_deletion_with_a_failed_sync_is_done_in_new_files() -> None:
    async with Machine() as machine:
        engine = await filled(machine)
        await engine.delete_records("t", match=TagMatch(b"odd"), before_seq=8)
        machine.disk.fail("datasync", "*.zdata")
        await engine.segment_worker.flush_all()
        assert (segments(engine)[0].gen, packed(engine)[0]) == (2, True)
        assert [*await texts(engine)] == [2, 4, 6, *range(8, 22)]
        engine = await machine.cut_power(**SMALL)
        assert [*await texts(engine)] == [2, 4, 6, *range(8, 22)]


async def test_a_failed_packing_leaves_the_segment_unpacked_and_is_retried() -> None:
    async with Machine() as machine:
        engine = await machine.start(**SMALL)
        machine.disk.fail("pwritev", "*.zdata", errno=errno.ENOSPC)
        await engine.append("t", some(10), config=ZSTD)
        await engine.append("t", some(1, 11))
        await engine.segment_worker.flush_all()
        assert packed(engine) == [False, False]
        assert not any(path.endswith(".zdata") for path in machine.disk.tree())
        await engine.delete_records("t", match=TagMatch(b"odd"), before_seq=6)
        await engine.segment_worker.flush_all()
        assert packed(engine) == [False, False]
        assert not segments(engine)[0].flips, "deletions do not wait for packing"
        await machine.clock.advance(60_000)
        await engine.segment_worker.flush_all()
        assert packed(engine) == [True, False]
        assert [*await texts(engine)] == [2, 4, *range(6, 12)]


async def test_segments_stay_unpacked_if_the_format_cannot_be_written() -> None:
    async with Machine() as machine:
        engine = await machine.start(**SMALL)
        machine.disk.fail("rename", "*FORMAT*", times=2)
        await engine.append("t", some(10), config=ZSTD)
        await engine.append("t", some(1, 11))
        await engine.segment_worker.flush_all()
        assert packed(engine) == [False, False]
        assert format_version(machine.disk) == "1"


async def test_a_changed_pack_setting_applies_to_rewritten_segments() -> None:
    async with Machine() as machine:
        engine = await filled(machine)
        await engine.put_topic("t", NEVER)
        await engine.segment_worker.flush_all()
        assert packed(engine) == [True, True, False]
        await engine.delete_records("t", match=TagMatch(b"odd"))
        await engine.delete_records("t", match=TagMatch(b"even"), before_seq=6)
        await engine.segment_worker.flush_all()
        assert packed(engine) == [False, True, False]
        assert [*await texts(engine)] == [6, 8, 10, 12, 14, 16, 18, 20]
        assert verdict(machine.disk) == []


async def test_a_damaged_block_loses_only_its_records() -> None:
    async with Machine() as machine:
        engine = await machine.start(segment_max_events=1000, segment_pack_bytes=1000)
        await engine.append("t", some(1000), config=ZSTD)
        await engine.append("t", some(1, 1001))
        await engine.segment_worker.flush_all()
        path = names.records_path(DATA_DIR, PACKED)
        file = machine.disk.open(path)
        at = PackedData(file, path, PACKED).block_offset(2)
        file.pwritev([b"\xff\xff\xff"], at + 100)
        file.close()
        engine.store.forget(PACKED)
        with pytest.raises(RecordCorrupt) as raised:
            await to_the_end(engine)
        assert raised.value.detail["file"].endswith(".1.zdata")
        found = await engine.read("t", ReadQuery(limit=10_000, skip_corrupt=True, max_bytes=1 << 30))
        lost = set(found.corrupt_seqs or ())
        got = {each.seq for each in found.records}
        assert lost
        assert lost.isdisjoint(got)
        assert max(lost) - min(lost) + 1 == len(lost) < 300
        assert got | lost == set(range(1, max(got) + 1))
        problems = verdict(machine.disk)
        assert any("Block 2 is damaged" in each for each in problems)
        assert len(problems) == len(lost) + 1


async def test_a_damaged_header_loses_the_segment_and_is_reported() -> None:
    async with Machine() as machine:
        engine = await filled(machine)
        file = machine.disk.open(names.records_path(DATA_DIR, PACKED))
        file.pwritev([b"\xff"], 9)
        file.close()
        engine.store.forget(PACKED)
        with pytest.raises(RecordCorrupt, match="header fails its check"):
            await texts(engine)
        found = await engine.read("t", ReadQuery(limit=100, skip_corrupt=True))
        assert [each.seq for each in found.records] == [*range(11, 22)]
        assert found.corrupt_seqs == [*range(1, 11)]
        assert any("header fails its check" in each for each in verdict(machine.disk))


async def test_dump_shows_records_with_their_deleted_flag() -> None:
    async with Machine() as machine:
        engine = await filled(machine)
        await engine.delete_records("t", match=TagMatch(b"odd"), before_seq=4)
        await engine.segment_worker.flush_all()
        lines: list[str] = []
        dump(DataDirectory(machine.disk, DATA_DIR), DumpOptions(file="*.1.zdata", json=True), lines.append)
        shown = [line for line in lines if '"seq":' in line]
        assert len(shown) == 20
        assert sum('"deleted":true' in line.replace(" ", "") for line in shown) == 2


async def test_verify_reports_directories_that_older_programs_would_open() -> None:
    async with Machine() as machine:
        await filled(machine)
        path = f"{DATA_DIR}/{layout.FORMAT}"
        machine.disk.write_file(path, b"1" + machine.disk.read_file(path)[1:])
        assert any(each.startswith("FORMAT:") for each in verdict(machine.disk))
        await machine.kill(**SMALL)
        assert format_version(machine.disk) == "2"
        assert verdict(machine.disk) == []
