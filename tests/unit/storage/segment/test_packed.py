"""A packed segment equals its .data for every reader, over crashes and deletions. Damage is reported and never
served."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass, field
from random import Random

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from storage.format import idx_entry, packed_file
from storage.format.packed_file import BLOCK_BYTES, HEADER_SIZE, Header
from storage.segments import names
from storage.segments.check import rebuild_idx, reconcile_sealed, sweep
from storage.segments.errors import SegmentCorrupt
from storage.segments.flips import flip
from storage.segments.names import SegmentId
from storage.segments.packed import BlockCache, PackedData, is_worth_packing
from storage.segments.rewrite import Rewritten, remove, rewrite
from tests.support.sim_disk import Loss, SimDisk
from tests.support.spec_segment import SegmentRecord, decode_segment
from tests.unit.storage.segment.steps import ID, ROOT, content, decoded, flushed, made, new_disk, path, spoil
from tests.unit.storage.segment.test_crash import crashes, ways_to_be_found

END = 700
SEQS = [seq for seq in range(41, END) if seq % 5]
NEW = ID._replace(gen=1, packed=True)
PLAIN = NEW.plain
PACKED = path("zdata", NEW)


@contextlib.contextmanager
def opened(disk: SimDisk, id: SegmentId = NEW) -> Generator[PackedData]:
    file = disk.open(path("zdata", id), write=False)
    with contextlib.closing(file):
        yield PackedData(file, path("zdata", id), id)


def pack(disk: SimDisk, root: str, id: SegmentId, end_seq: int, dead_bits: int) -> Rewritten:
    return rewrite(disk, root, id, end_seq, dead_bits, packed=True)


def settle_packed(disk: SimDisk, end_seq: int, data_bytes: int, packed_bytes: int) -> None:
    """As a start does it: by size, and by the entries if one of them is damaged."""
    reconcile_sealed(disk, ROOT, NEW, end_seq, data_bytes, packed_bytes)
    if idx_entry.damaged(content(disk, path("idx", NEW))):
        rebuild_idx(disk, ROOT, NEW, end_seq, data_bytes)


def unpacked(disk: SimDisk, end_seq: int, id: SegmentId = NEW) -> dict[int, SegmentRecord]:
    """The records that the specification's reader finds in the unpacked .data."""
    idx = content(disk, path("idx", id))
    with opened(disk, id) as data:
        plain, gone = bytearray(data.pread(data.size(), 0)), data.delete_bytes()
    for entry, byte in zip(idx_entry.parse(idx), gone, strict=True):
        if entry.len:
            assert plain[entry.end - 1] == 0
            plain[entry.end - 1] = byte
    return decode_segment(bytes(plain), idx, topic_id=id.topic_id, first_seq=id.first_seq, end_seq=end_seq)


def packed_disk() -> SimDisk:
    disk = new_disk()
    made(disk, flushed(41, SEQS)).close()
    flip(disk, ROOT, ID, [0, 1])
    pack(disk, ROOT, ID, END, 0b1000)
    flip(disk, ROOT, NEW, [20, 21])
    return disk


def test_a_packed_segment_is_smaller_and_equals_a_rewrite() -> None:
    disk = packed_disk()
    found = unpacked(disk, END)
    with opened(disk) as data:
        size = data.size()
        assert size > BLOCK_BYTES, "a frame must lie across two blocks"
        remade = data.pread(size, 0)
    for ext in ("idx", "zdata"):
        disk.remove_file(path(ext, NEW))
    rewrite(disk, ROOT, ID, END, 0b1000)
    assert content(disk, path("data", PLAIN)) == remade
    flip(disk, ROOT, PLAIN, [20, 21])
    assert decoded(disk, END, PLAIN) == found
    assert len(content(packed_disk(), PACKED)) * 2 < size


@given(st.lists(st.tuples(st.integers(0, 1 << 18), st.integers(0, 1 << 18)), min_size=1, max_size=30))
@settings(max_examples=40, deadline=None)
def test_any_range_of_a_packed_segment_equals_the_range_of_the_data(reads: list[tuple[int, int]]) -> None:
    disk = packed_disk()
    with opened(disk) as data:
        whole = b"".join(data.pread(1, at) for at in range(0, 3)) + data.pread(data.size(), 3)
        assert len(whole) == data.size()
        for size, offset in reads:
            assert data.pread(size, offset) == whole[offset : offset + size]


@given(st.lists(st.sets(st.integers(0, END - 42), max_size=40), max_size=6), st.integers(0, (1 << 300) - 1))
@settings(max_examples=12, deadline=None)
def test_a_packed_segment_stays_equal_to_its_unpacked_twin(deletions: list[set[int]], dead: int) -> None:
    packed, plain = new_disk(), new_disk()
    for disk, make in ((packed, pack), (plain, rewrite)):
        made(disk, flushed(41, SEQS)).close()
        make(disk, ROOT, ID, END, dead)
        remove(disk, ROOT, ID)
    for some in deletions:
        flip(packed, ROOT, NEW, [*some])
        flip(plain, ROOT, PLAIN, [*some])
        packed, plain = packed.power_cut(Loss.DROP), plain.power_cut(Loss.DROP)
        assert unpacked(packed, END) == decoded(plain, END, PLAIN)
    with opened(packed) as data:
        size = data.size()
    kept = content(packed, path("idx", NEW))
    for lost in range(2):
        if lost:
            packed.remove_file(path("idx", NEW))
        else:
            packed.write_file(path("idx", NEW), b"\xff" * 400 + kept[400:])
        settle_packed(packed, END, size, len(content(packed, PACKED)))
        assert content(packed, path("idx", NEW)) == kept


@dataclass
class Manifest:
    id: SegmentId = ID
    due: set[int] = field(default_factory=set[int])
    flushed: set[int] = field(default_factory=set[int])
    size: int = 0
    packed_bytes: int = 0


_LEFT_OUT = {41, 42, 44}
_SOME = [seq for seq in range(41, 62) if seq not in (50, 55)]


def life(disk: SimDisk, manifest: Manifest) -> None:
    made(disk, flushed(41, _SOME)).close()
    flip(disk, ROOT, ID, [0, 1])
    made_of_it = pack(disk, ROOT, ID, 62, 0b1000)
    manifest.size, manifest.packed_bytes = made_of_it.data_bytes, made_of_it.packed_bytes
    manifest.id = new = made_of_it.id
    remove(disk, ROOT, ID)
    for gone in ({46, 47, 61}, {51}):
        manifest.due = gone
        flip(disk, ROOT, new, [seq - 41 for seq in gone])
        manifest.flushed |= gone
        manifest.due = set()


def recover(disk: SimDisk, manifest: Manifest) -> None:
    sweep(disk, ROOT, 7, {manifest.id})
    if manifest.id == ID:
        return  # no manifest entry names the packed files: test_crash checks the old files
    settle_packed(disk, 62, manifest.size, manifest.packed_bytes)
    flip(disk, ROOT, NEW, [seq - 41 for seq in manifest.due])
    found = disk.power_cut(Loss.DROP)
    settle_packed(found, 62, manifest.size, manifest.packed_bytes)
    records = unpacked(found, 62)
    found.remove_file(path("idx", NEW))  # lost later, when the Delete frames are gone
    settle_packed(found, 62, manifest.size, manifest.packed_bytes)
    assert unpacked(found, 62) == records
    assert [*records] == [seq for seq in _SOME if seq not in _LEFT_OUT]
    assert {seq for seq, record in records.items() if record.deleted} == manifest.flushed | manifest.due
    assert set(found.listdir(names.folder(ROOT, 7))) == {names.file_name(41, 1, "zdata"), names.idx_name(41, 1)}


def test_a_crash_anywhere_restores_no_deleted_record_and_loses_no_live_record() -> None:
    manifest = Manifest()

    def run(disk: SimDisk) -> None:
        nonlocal manifest
        manifest = Manifest()
        life(disk, manifest)

    for disk, where in crashes(run, new_disk):
        for found, how in ways_to_be_found(disk):
            try:
                recover(found, manifest)
            except Exception as error:
                raise AssertionError(f"stopped {where}, found after {how}") from error


def test_an_index_rebuild_of_a_packed_segment_stopped_by_a_crash_is_repeated() -> None:
    with opened(packed_disk()) as data:
        size = data.size()
    stored = len(content(packed_disk(), PACKED))
    expected = unpacked(packed_disk(), END)

    def start() -> SimDisk:
        disk = packed_disk()
        disk.write_file(path("idx", NEW), content(disk, path("idx", NEW))[:333])
        return disk

    def run(disk: SimDisk) -> None:
        sweep(disk, ROOT, 7, {NEW})  # makes a name durable that a killed process had not synced
        settle_packed(disk, END, size, stored)

    for disk, where in crashes(run, start):
        for found, how in ways_to_be_found(disk):
            run(found)
            assert unpacked(found.power_cut(Loss.DROP), END) == expected, (where, how)


def test_a_changed_byte_damages_only_its_block_and_is_never_served() -> None:
    disk = packed_disk()
    before = content(disk, PACKED)
    with opened(disk) as data:
        plain, gone = data.pread(data.size(), 0), data.delete_bytes()
        blocks = [data.block_offset(number) for number in range(data.header.blocks)]
    refused = set[str]()
    for at in range(0, len(before), 7):
        disk.write_file(PACKED, before)
        spoil(disk, PACKED, at)
        try:
            with opened(disk) as data:
                found = data.pread(data.size(), 0)
                damaged = {*data.damage}
                if HEADER_SIZE <= at < HEADER_SIZE + len(gone):
                    with pytest.raises(SegmentCorrupt):
                        data.delete_bytes()
                else:
                    assert data.delete_bytes() == gone
        except SegmentCorrupt as error:
            refused.add(f"{error.file}: {error.what}")
            continue
        hit = {number for number, offset in enumerate(blocks) if offset <= at} if at >= blocks[0] else set[int]()
        assert damaged == ({max(hit)} if hit else set())
        for number in range(len(blocks)):
            part = slice(number * BLOCK_BYTES, (number + 1) * BLOCK_BYTES)
            assert found[part] == (bytes(len(plain[part])) if number in damaged else plain[part])
    assert refused == {f"{PACKED}: the {part} fails its check" for part in ("header", "table")}


def test_a_rewrite_copies_damage_and_reports_it() -> None:
    disk = packed_disk()
    with opened(disk) as data:
        at = data.block_offset(1)
    spoil(disk, PACKED, at + 9)
    again = pack(disk, ROOT, NEW, END, 0)
    entries = idx_entry.parse(content(disk, path("idx", NEW)))
    in_it = [
        41 + number
        for number, entry in enumerate(entries)
        if entry.len
        and not entry.flags & idx_entry.DELETED
        and entry.end > BLOCK_BYTES
        and entry.offset < 2 * BLOCK_BYTES
    ]
    assert again.damaged_seqs == in_it != []


def test_cached_blocks_are_bounded_over_all_files() -> None:
    disk, cache = packed_disk(), BlockCache(3 * BLOCK_BYTES)
    files = [disk.open(PACKED, write=False) for _ in range(4)]
    readers = [PackedData(file, PACKED, NEW, cache) for file in files]
    for data in readers:
        for number in range(data.header.blocks):
            data.pread(1, number * BLOCK_BYTES)
            assert cache.size_bytes <= 3 * BLOCK_BYTES
    reads = len(disk.calls)
    readers[-1].pread(1, 0)
    assert len(disk.calls) == reads, "a block that is kept is not read again"


def test_the_saving_of_packing_is_estimated_by_a_sample() -> None:
    disk = new_disk()
    for name, data, worth in (
        ("text", b"".join(b"%d some text " % number for number in range(30_000)), True),
        ("noise", Random(7).randbytes(300_000), False),
        ("short", b"a" * 100, True),
    ):
        disk.write_file(f"{ROOT}/{name}", data)
        with contextlib.closing(disk.open(f"{ROOT}/{name}", write=False)) as file:
            assert is_worth_packing(file) is worth, name


def test_a_file_with_a_wrong_length_is_corrupt() -> None:
    disk = packed_disk()
    before = content(disk, PACKED)
    for size in [*range(0, HEADER_SIZE + 5), *range(HEADER_SIZE, len(before), 97), len(before) - 1]:
        disk.write_file(PACKED, before[:size])
        with pytest.raises(SegmentCorrupt), opened(disk):
            pass
    disk.write_file(PACKED, before + b"\0")
    with pytest.raises(SegmentCorrupt), opened(disk):
        pass


def test_a_packed_file_of_another_segment_is_refused() -> None:
    disk = packed_disk()
    for id in (NEW._replace(topic_id=8), NEW._replace(first_seq=42), NEW._replace(gen=2)):
        file = disk.open(PACKED, write=False)
        with pytest.raises(SegmentCorrupt, match="another segment's"):
            PackedData(file, PACKED, id)


def forged(stored: bytes, data_bytes: int) -> SimDisk:
    """A file with one block whose checksums are all correct."""
    header = Header(*NEW[:3], 0, data_bytes)
    disk = new_disk()
    disk.mkdir(names.topics_folder(ROOT))
    disk.mkdir(names.folder(ROOT, 7))
    table = packed_file.encode_table(header, [(len(stored), xxh3_64_intdigest(stored))])
    disk.write_file(PACKED, header.encode() + stored + table)
    return disk


def test_a_bomb_takes_no_more_than_a_block() -> None:
    bomb = bytes(cramjam.zstd.compress(bytes(64 << 20), level=1))
    greedy = bytearray(cramjam.zstd.compress(bytes(5000), level=1))
    greedy[4] &= ~0x20
    greedy[5] = 20 << 3  # a window of 1 GiB
    short = bytes(cramjam.zstd.compress(bytes(5000), level=1))
    cases = (
        (bomb, BLOCK_BYTES, "cannot be uncompressed"),
        (bytes(greedy), 5000, "asks for more memory"),
        (b"no zstd", 5000, "cannot be uncompressed"),
        (short, 5001, "comes to 5000"),
    )
    for stored, size, said in cases:
        with opened(forged(stored, size)) as data:
            assert data.pread(size, 0) == bytes(size)
            assert said in data.damage[0]
    with pytest.raises(SegmentCorrupt, match="cannot have"), opened(forged(bytes(6000), 5000)):
        pass


def test_an_incompressible_block_is_stored_unpacked() -> None:
    with opened(forged(bytes(5000), 5000)) as data:
        assert data.pread(9999, 0) == bytes(5000)
