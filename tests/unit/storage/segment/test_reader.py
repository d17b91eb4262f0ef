"""Reading segments: slices, sizes, dead records, times, and reports of damage."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.format import idx_entry, segment_frame
from storage.format.idx_entry import ENTRY_SIZE
from storage.format.record import split_body
from storage.segments import chunks, names
from storage.segments.errors import SegmentCorrupt
from storage.segments.names import SegmentId
from storage.segments.reader import SegmentReader, SegmentSlice
from tests.support.sim_disk import SimDisk
from tests.unit.storage.segment.built import ROOT, TS, Built, Made, build, cut, entry_at, numbered, put, spoil

ALL = 1 << 30


class Rig:
    """A disk with one segment, and a reader."""

    def __init__(self, made: list[Made | None], *, first_seq: int = 1) -> None:
        self.disk = SimDisk()
        self.built = put(self.disk, build(made, first_seq=first_seq))
        self.reader = SegmentReader(self.disk, ROOT, 8)
        self.id, self.end = self.built.id, self.built.end_seq

    def read(self, first_seq: int, max_records: int = 100, max_bytes: int = ALL) -> SegmentSlice:
        return self.reader.read(self.id, self.end, first_seq, max_records, max_bytes)

    def path(self, ext: str) -> str:
        return names.path(ROOT, self.id, ext)

    def preads(self, ext: str) -> int:
        return sum(call.op == "pread" and call.path.endswith(f".{ext}") for call in self.disk.calls)


def records(slice_: SegmentSlice) -> dict[int, bytes]:
    """Seq and data of the records of a slice, verified."""
    found: dict[int, bytes] = {}
    for seq, entry in enumerate(slice_.entries, slice_.first_seq):
        if entry.len:
            frame = segment_frame.decode(slice_.data[entry.offset - slice_.base : entry.end - slice_.base])
            assert frame.seq == seq
            found[seq] = frame.data
    return found


def expected(built: Built, first_seq: int, end_seq: int) -> dict[int, bytes]:
    wanted = enumerate(built.made[first_seq - built.id.first_seq : end_seq - built.id.first_seq], first_seq)
    return {seq: each.data for seq, each in wanted if each is not None}


# ---- slices


def test_a_slice_has_the_records_asked_for() -> None:
    rig = Rig(numbered(20), first_seq=500)
    found = rig.read(503, 5)
    assert (found.first_seq, records(found)) == (503, expected(rig.built, 503, 508))


def test_a_slice_takes_a_single_read_of_each_file_and_only_its_bytes() -> None:
    rig = Rig(numbered(20))
    found = rig.read(4, 5)
    assert (rig.preads(names.IDX), rig.preads(names.DATA)) == (1, 1)
    assert len(found.data) == sum(map(len, rig.built.frames[3:8]))


def test_records_after_the_end_of_the_segment_are_not_read() -> None:
    rig = Rig(numbered(20))
    found = rig.reader.read(rig.id, 11, 9, 100, ALL)
    assert records(found) == expected(rig.built, 9, 11)


def test_a_slice_has_no_more_bytes_than_allowed() -> None:
    rig = Rig(numbered(9))
    size = len(rig.built.frames[0])
    assert len(rig.read(1, 9, 3 * size).entries) == 3
    assert len(rig.read(1, 9, 3 * size - 1).entries) == 2
    assert len(rig.read(1, 9, 3 * size + 1).entries) == 3


def test_a_slice_has_at_least_a_single_record() -> None:
    rig = Rig([Made(data=b"[" + b"1," * 5000 + b"1]"), *numbered(3)])
    assert list(records(rig.read(1, 9, 1))) == [1]


def test_seqs_without_a_record_at_the_beginning_are_left_out() -> None:
    rig = Rig([*numbered(2), None, None, None, *numbered(4)])
    found = rig.read(3, 2)
    assert (found.first_seq, list(records(found))) == (6, [6, 7])


def test_seqs_without_a_record_cost_no_bytes() -> None:
    rig = Rig([Made(), None, None, Made(), None])
    size = len(rig.built.frames[0])
    found = rig.read(1, 9, 2 * size)
    assert (len(found.entries), list(records(found)), len(found.data)) == (5, [1, 4], 2 * size)
    assert len(rig.read(1, 9, size).entries) == 3


def test_a_long_run_without_records_takes_few_reads() -> None:
    rig = Rig([Made(), *[None] * 9000, Made()])
    found = rig.read(2, 1)
    assert (found.first_seq, list(records(found))) == (9002, [9002])
    assert rig.preads(names.IDX) <= 5


def test_without_any_record_left_the_slice_is_empty_and_at_the_end() -> None:
    rig = Rig([*numbered(2), *[None] * 30])
    found = rig.read(3, 4)
    assert found == (33, [], b"", 0)
    assert rig.preads(names.DATA) == 0


def test_entries_of_deleted_records_have_the_deleted_flag() -> None:
    rig = Rig([Made(), Made(deleted=True), Made()])
    found = rig.read(1)
    assert [entry.flags & idx_entry.DELETED for entry in found.entries] == [0, 4, 0]
    assert list(records(found)) == [1, 2, 3]


@pytest.mark.parametrize(("first_seq", "count"), [(9, 1), (31, 1), (10, 0)])
def test_a_read_outside_the_segment_is_refused(first_seq: int, count: int) -> None:
    with pytest.raises(ValueError, match="of a segment"):
        Rig(numbered(21), first_seq=10).read(first_seq, count)


MADE = st.lists(
    st.one_of(
        st.none(),
        st.builds(
            Made,
            data=st.integers(0, 10**12).map(lambda number: f'{{"data":{number}}}'.encode()),
            tag=st.sampled_from([b"", b"a", b"ab", b"b"]),
            node=st.sampled_from([b"", b"node-1"]),
            deleted=st.booleans(),
        ),
    ),
    min_size=1,
    max_size=25,
)


@given(MADE, st.integers(1, 6), st.integers(1, 400))
def test_slice_by_slice_every_record_is_met_once(made: list[Made | None], max_records: int, max_bytes: int) -> None:
    rig = Rig(made, first_seq=100)
    at, met = 100, dict[int, bytes]()
    while at < rig.end:
        found = rig.read(at, max_records, max_bytes)
        assert len(found.entries) <= max_records
        if len(records(found)) > 1:
            assert len(found.data) <= max_bytes
        assert found.first_seq >= at
        assert found.first_seq + len(found.entries) > at
        met |= records(found)
        at = found.first_seq + len(found.entries)
    assert met == expected(rig.built, 100, rig.end)


# ---- damage


def test_a_damaged_entry_is_named_by_file_and_offset() -> None:
    rig = Rig(numbered(20))
    spoil(rig.disk, rig.built, names.IDX, entry_at(7) + 3)
    with pytest.raises(SegmentCorrupt) as caught:
        rig.read(5)
    assert (caught.value.file, caught.value.offset) == (rig.path(names.IDX), entry_at(7))


def test_a_damaged_entry_does_not_affect_reads_of_other_records() -> None:
    rig = Rig(numbered(20))
    spoil(rig.disk, rig.built, names.IDX, entry_at(7))
    assert list(records(rig.read(1, 7))) == [1, 2, 3, 4, 5, 6, 7]
    assert list(records(rig.read(9, 3))) == [9, 10, 11]


def test_every_byte_of_an_entry_counts() -> None:
    rig = Rig(numbered(3))
    for offset in range(ENTRY_SIZE):
        spoil(rig.disk, rig.built, names.IDX, entry_at(1) + offset)
        with pytest.raises(SegmentCorrupt):
            rig.read(1)
        spoil(rig.disk, rig.built, names.IDX, entry_at(1) + offset)
    assert len(rig.read(1).entries) == 3


def test_a_damaged_frame_is_handed_on_for_the_caller_to_find() -> None:
    rig = Rig(numbered(3))
    spoil(rig.disk, rig.built, names.DATA, rig.built.offset(1) + 40)
    found = rig.read(1)
    sound = [segment_frame.verify(found.data, entry.offset - found.base, entry.len) for entry in found.entries]
    assert sound == [True, False, True]


def test_a_short_index_is_reported_as_corrupt() -> None:
    rig = Rig(numbered(9))
    cut(rig.disk, rig.built, names.IDX, entry_at(4) + 5)
    with pytest.raises(SegmentCorrupt) as caught:
        rig.read(1)
    assert (caught.value.file, caught.value.offset) == (rig.path(names.IDX), entry_at(4) + 5)


def test_short_data_is_reported_as_corrupt() -> None:
    rig = Rig(numbered(9))
    cut(rig.disk, rig.built, names.DATA, rig.built.offset(4))
    with pytest.raises(SegmentCorrupt) as caught:
        rig.read(4)
    assert (caught.value.file, caught.value.offset) == (rig.path(names.DATA), rig.built.offset(4))


def _with_entry(rig: Rig, number: int, offset: int, size: int) -> None:
    """A valid entry with a wrong statement."""
    path = rig.path(names.IDX)
    content = bytearray(rig.disk.read_file(path))
    content[entry_at(number) : entry_at(number + 1)] = idx_entry.pack(offset, size, TS, 0)
    rig.disk.write_file(path, bytes(content))


def test_entries_with_descending_offsets_are_damage() -> None:
    rig = Rig(numbered(3))
    _with_entry(rig, 2, 0, 10)
    with pytest.raises(SegmentCorrupt):
        rig.read(2)


def test_a_length_beyond_the_file_is_damage_without_an_allocation() -> None:
    rig = Rig(numbered(3))
    _with_entry(rig, 2, rig.built.offset(2), (1 << 32) - 1)
    with pytest.raises(SegmentCorrupt):
        rig.read(3)
    assert max(int(call.args[1]) for call in rig.disk.calls if call.op == "pread") < 1 << 20


def test_entries_with_a_gap_in_the_data_are_corrupt_for_full_scans() -> None:
    rig = Rig(numbered(5))
    _with_entry(rig, 3, rig.built.offset(3) - 1, len(rig.built.frames[3]))
    with pytest.raises(SegmentCorrupt) as caught:
        rig.reader.sizes(rig.id, rig.end)
    assert (caught.value.file, caught.value.offset) == (rig.path(names.IDX), entry_at(3))


def test_an_absent_segment_is_not_reported_as_damage() -> None:
    rig = Rig(numbered(3))
    with pytest.raises(FileNotFoundError):
        rig.reader.read(SegmentId(7, 1, 1), rig.end, 1, 1, 1)


# ---- sizes


def _sizes(rig: Rig) -> list[int]:
    return list(rig.reader.sizes(rig.id, rig.end).payloads)


BODIES = (
    (b'{"data":null}', 4),
    (b'{"data":{"a":[1,2]},"meta":{"k":"v"}}', 11 + 9),
    (b'{"data":"job","meta":{},"deliver_at":1755000060123}', 5 + 2),
    (b'{"data":1,"deliver_at":1755000060123}', 1),
    (b'{"data":{"x":1,"meta":2}}', 16),
    (b'{"data":"","ct":5,"h":[]}', 2 + len(',"ct":5,"h":[]')),
    (b'{"data":{"x":1,"meta":2},"ct":5}', 16 + len(',"ct":5')),
    (b'{"data":"","meta":{},"ct":5,"h":[]}', 2 + 2 + len(',"ct":5,"h":[]')),
)


def test_sizes_equal_the_bytes_of_data_and_meta_as_sent() -> None:
    made: list[Made | None] = [Made(data=body) for body, _ in BODIES]
    rig = Rig([*made, None, Made(data=BODIES[1][0], node=b'n,"meta":', tag=b"t" * 300, deleted=True)])
    assert _sizes(rig) == [*(size for _, size in BODIES), 0, 20]


def test_sizes_have_the_times_of_the_records() -> None:
    rig = Rig([None, Made(ms=5), None, Made(ms=8)])
    assert list(rig.reader.sizes(rig.id, rig.end).stamps) == [0, TS + 5, TS + 5, TS + 8]


@given(st.lists(st.tuples(st.sampled_from(BODIES), st.sampled_from([b"", b',"meta":', b"t"])), max_size=20))
def test_sizes_do_not_depend_on_tags_and_nodes(chosen: list[tuple[tuple[bytes, int], bytes]]) -> None:
    rig = Rig([Made(data=body, tag=tag, node=tag) for (body, _), tag in chosen] or [None])
    assert _sizes(rig) == ([size for (_, size), _ in chosen] or [0])
    for (body, size), _ in chosen:
        further = b"".join(re.findall(rb',"(?:ct|h)":[^,}]+', body))
        assert len(split_body(body).data) + len(split_body(body).meta) + len(further) == size


def test_a_large_segment_is_read_in_bounded_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 200)
    rig = Rig([*numbered(30), Made(data=b'{"data":"' + b"x" * 500 + b'"}'), *numbered(3)])
    assert _sizes(rig) == [len(str(number)) for number in range(30)] + [502, 1, 1, 1]
    reads = [int(call.args[1]) for call in rig.disk.calls if call.op == "pread" and call.path.endswith("data")]
    assert sorted(reads)[-2] <= 200
    assert len(reads) > 5


def test_a_damaged_frame_does_not_stop_the_count() -> None:
    rig = Rig([Made(data=BODIES[1][0]) for _ in range(3)])
    for offset in range(len(rig.built.frames[1])):
        spoil(rig.disk, rig.built, names.DATA, rig.built.offset(1) + offset)
        sizes = _sizes(rig)
        assert (sizes[0], sizes[2]) == (20, 20)
        assert 0 <= sizes[1] <= len(rig.built.frames[1])
        spoil(rig.disk, rig.built, names.DATA, rig.built.offset(1) + offset)


# ---- dead records


@given(MADE)
def test_dead_bits_cover_deleted_records_and_seqs_without_a_record(made: list[Made | None]) -> None:
    rig = Rig(made)
    dead = sum((each is None or each.deleted) << number for number, each in enumerate(made))
    assert rig.reader.dead_bits(rig.id, rig.end) == dead


@pytest.mark.parametrize("dead", [1, 900])
def test_a_record_is_not_taken_for_dead_on_the_word_of_a_damaged_entry(dead: int) -> None:
    rig = Rig([*[Made(deleted=True)] * dead, *[Made()] * (1000 - dead)])
    flags = entry_at(950) + 16
    path = rig.path(names.IDX)
    content = bytearray(rig.disk.read_file(path))
    content[flags] |= idx_entry.DELETED
    rig.disk.write_file(path, bytes(content))
    with pytest.raises(SegmentCorrupt) as caught:
        rig.reader.dead_bits(rig.id, rig.end)
    assert (caught.value.file, caught.value.offset) == (path, entry_at(950))


@pytest.mark.parametrize("dead", [1, 900])
def test_dead_bits_ignore_a_damaged_entry_of_a_live_record(dead: int) -> None:
    rig = Rig([*[Made(deleted=True)] * dead, *[Made()] * (1000 - dead)])
    spoil(rig.disk, rig.built, names.IDX, entry_at(950) + 19)
    assert rig.reader.dead_bits(rig.id, rig.end) == (1 << dead) - 1


# ---- times

STAMPS = st.lists(st.one_of(st.none(), st.integers(0, 5)), min_size=1, max_size=30)


@given(STAMPS, st.integers(-1, 150))
def test_the_first_record_since_a_time_is_found(steps: list[int | None], since: int) -> None:
    made, ms = list[Made | None](), 0
    for step in steps:
        ms += step or 0
        made.append(None if step is None else Made(ms=ms))
    rig = Rig(made, first_seq=77)
    stamps = rig.reader.sizes(rig.id, rig.end).stamps
    expected_seq = next((seq for seq, ts in enumerate(stamps, 77) if ts >= TS + since), rig.end)
    assert rig.reader.ts_search(rig.id, rig.end, TS + since) == expected_seq


def test_a_search_by_time_reads_few_entries() -> None:
    rig = Rig(numbered(5000))
    assert rig.reader.ts_search(rig.id, rig.end, TS + 3210) == 3211
    assert rig.preads(names.IDX) <= 13


def test_a_damaged_entry_is_no_time() -> None:
    rig = Rig(numbered(5))
    spoil(rig.disk, rig.built, names.IDX, entry_at(4) + 8)
    with pytest.raises(SegmentCorrupt):
        rig.reader.ts_search(rig.id, rig.end, TS + 100)
