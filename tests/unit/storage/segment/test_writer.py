"""The active segment: appended records are in both files; failed appends do not count."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest

from storage.format import idx_entry
from storage.platform.posix import PosixFileSystem
from storage.segments.errors import SegmentBroken, SegmentCorrupt
from storage.segments.names import SegmentId
from storage.segments.writer import MAX_JUMP, ActiveSegment, Frames
from tests.support.sim_disk import Loss, SimDisk
from tests.unit.storage.segment.steps import ID, ROOT, content, decoded, flushed, made, new_disk, path, seqs, spoil


def test_a_new_segment_is_empty_and_durable_with_its_folders() -> None:
    disk = new_disk()
    segment = ActiveSegment.create(disk, ROOT, ID)
    assert (segment.end_seq, segment.data_bytes, segment.broken) == (41, 0, False)
    found = disk.power_cut(Loss.DROP)
    assert [found.file_size(path(ext)) for ext in ("data", "idx")] == [0, 0]


def test_appended_records_are_durable_in_both_files() -> None:
    disk = new_disk()
    segment = made(disk, flushed(41, range(41, 51)), flushed(51, [51, 52]))
    assert segment.end_seq == 53
    found = disk.power_cut(Loss.DROP)
    assert seqs(found, 53) == list(range(41, 53))
    assert segment.data_bytes == found.file_size(path("data"))


def test_seqs_without_a_record_get_empty_entries() -> None:
    disk = new_disk()
    parts = (flushed(44, [44, 46], end_seq=49), flushed(52, [53]), flushed(54, [], end_seq=56))
    segment = made(disk, *parts)
    assert segment.end_seq == 56
    assert seqs(disk, 56) == [44, 46, 53]
    stamps = [entry.ts % 1000 for entry in idx_entry.parse(content(disk, path("idx")))]
    assert stamps == [0, 0, 0, 44, 44, 46, 46, 46, 46, 46, 46, 46, 53, 53, 53]


def test_data_is_synced_before_the_index_is_written() -> None:
    disk = new_disk()
    segment = made(disk)
    begin = len(disk.calls)
    segment.append(*flushed(41, [41, 42]))
    calls = [(call.op, call.path.rpartition(".")[2]) for call in disk.calls[begin:]]
    assert calls == [("pwritev", "data"), ("datasync", "data"), ("pwritev", "idx"), ("datasync", "idx")]


def test_each_part_is_written_before_the_next_part_is_requested() -> None:
    disk = new_disk()
    segment = made(disk)
    [(buffer, columns, _)] = flushed(41, range(41, 44)).parts
    sizes: list[int] = []

    def parts() -> Iterator[Frames]:
        for index in range(3):
            sizes.append(disk.file_size(path("data")))
            yield Frames(buffer, columns.between(index, index + 1), None)

    segment.append(parts())
    assert sizes == [0, *accumulate(columns.sizes[:-1])]
    assert seqs(disk.power_cut(Loss.DROP), 44) == [41, 42, 43]


def test_a_failed_part_is_not_counted() -> None:
    disk = new_disk()
    segment = made(disk, flushed(41, [41, 42]))
    [part] = flushed(43, range(43, 53)).parts
    marked = segment.data_bytes
    with pytest.raises(ValueError, match="seq"):
        segment.append([part, part])
    assert (segment.end_seq, segment.data_bytes, segment.broken) == (43, marked, False)
    segment.append([part])
    assert disk.file_size(path("data")) == segment.data_bytes
    assert seqs(disk.power_cut(Loss.DROP), 53) == list(range(41, 53))


def test_a_short_write_is_finished() -> None:
    disk = new_disk()
    segment = made(disk)
    disk.short_writes("*.data", keep_bytes=7, times=3)
    disk.short_writes("*.idx", keep_bytes=19, times=2)
    segment.append(*flushed(41, range(41, 46)))
    assert seqs(disk.power_cut(Loss.DROP), 46) == list(range(41, 46))


def test_a_write_of_zero_bytes_is_a_failure() -> None:
    disk = new_disk()
    segment = made(disk)
    disk.short_writes("*.data", keep_bytes=0, sticky=True)
    with pytest.raises(SegmentBroken):
        segment.append(*flushed(41, [41]))


@pytest.mark.parametrize("ext", ["data", "idx"])
def test_a_segment_refuses_appends_after_a_failed_sync(ext: str) -> None:
    disk = new_disk()
    segment = made(disk, flushed(41, range(41, 46)))
    before = segment.data_bytes
    disk.fail("datasync", f"*.{ext}", errno=errno.ENOSPC)  # no errno makes a failed sync harmless
    with pytest.raises(SegmentBroken):
        segment.append(*flushed(46, [46]))
    assert (segment.broken, segment.end_seq, segment.data_bytes) == (True, 46, before)
    begin = len(disk.calls)
    with pytest.raises(SegmentBroken):
        segment.append(*flushed(46, [46]))
    assert disk.calls[begin:] == []


@pytest.mark.parametrize("ext", ["data", "idx"])
def test_a_failed_write_breaks_the_segment(ext: str) -> None:
    disk = new_disk()
    segment = made(disk)
    disk.fail("pwritev", f"*.{ext}", errno=errno.EIO)
    with pytest.raises(SegmentBroken):
        segment.append(*flushed(41, [41]))
    assert segment.broken


@pytest.mark.parametrize("ext", ["data", "idx"])
def test_an_append_without_space_may_be_tried_again_with_fewer_records(ext: str) -> None:
    disk = new_disk()
    segment = made(disk, flushed(41, range(41, 46)))
    disk.short_writes(f"*.{ext}", keep_bytes=30)
    disk.fail("pwritev", f"*.{ext}", errno=errno.ENOSPC, nth=2)
    with pytest.raises(OSError, match="No space"):
        segment.append(*flushed(46, range(46, 60)))
    assert (segment.broken, segment.end_seq) == (False, 46)
    segment.append(*flushed(46, [46]))
    assert seqs(disk.power_cut(Loss.DROP), 47) == list(range(41, 47))


def test_a_reopened_segment_continues_at_its_marked_end() -> None:
    disk = new_disk()
    made(disk, flushed(41, range(41, 46)), flushed(46, [46], end_seq=49), flushed(49, range(49, 60))).close()
    segment = ActiveSegment.open(disk, ROOT, ID, 49)
    segment.append(*flushed(50, [50]))
    found = disk.power_cut(Loss.DROP)
    assert seqs(found, 51) == [41, 42, 43, 44, 45, 46, 50]
    stamps = [entry.ts % 1000 for entry in idx_entry.parse(content(found, path("idx")))]
    assert stamps[5:] == [46, 46, 46, 46, 50]


def test_a_reopened_unmarked_segment_starts_empty() -> None:
    disk = new_disk()
    made(disk, flushed(41, range(41, 46))).close()
    segment = ActiveSegment.open(disk, ROOT, ID, 41)
    segment.append(*flushed(41, [41]))
    assert seqs(disk, 42) == [41]


def test_opening_a_segment_with_a_damaged_last_entry_or_short_data_is_refused() -> None:
    disk = new_disk()
    made(disk, flushed(41, range(41, 46))).close()
    with pytest.raises(SegmentCorrupt) as caught:
        ActiveSegment.open(disk, ROOT, ID, 47)
    assert (caught.value.file, caught.value.offset) == (path("idx"), 100)
    data = disk.open(path("data"))
    size = data.size()
    data.truncate(size - 1)
    with pytest.raises(SegmentCorrupt) as caught:
        ActiveSegment.open(disk, ROOT, ID, 46)
    assert (caught.value.file, caught.value.offset) == (path("data"), size - 1)
    spoil(disk, path("idx"), 85)
    with pytest.raises(SegmentCorrupt) as caught:
        ActiveSegment.open(disk, ROOT, ID, 46)
    assert (caught.value.file, caught.value.offset) == (path("idx"), 80)


def test_invalid_appends_are_refused_without_a_disk_call() -> None:
    disk = new_disk()
    segment = made(disk, flushed(41, range(41, 46)))
    begin = len(disk.calls)
    for first_seq in (45, 46 + MAX_JUMP + 1):
        with pytest.raises(ValueError, match="seq"):
            segment.append(*flushed(first_seq, [first_seq]))
    assert {call.op for call in disk.calls[begin:]} == {"size"}
    segment.append(*flushed(46 + MAX_JUMP, [46 + MAX_JUMP]))
    assert seqs(disk, 47 + MAX_JUMP) == [41, 42, 43, 44, 45, 46 + MAX_JUMP]


@pytest.mark.parametrize(("op", "glob"), [("open", "*.data"), ("open", "*.idx"), ("sync_dir", "*/0000000000000007")])
def test_a_failed_creation_leaves_no_file(op: str, glob: str) -> None:
    disk = new_disk()
    disk.fail(op, glob, errno=errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        ActiveSegment.create(disk, ROOT, ID)
    assert disk.listdir("/data/topics/0000000000000007") == []
    assert ActiveSegment.create(disk, ROOT, ID).end_seq == 41


def test_an_existing_segment_is_not_created_again() -> None:
    disk = new_disk()
    made(disk, flushed(41, [41]))
    with pytest.raises(FileExistsError):
        ActiveSegment.create(disk, ROOT, ID)
    assert seqs(disk, 42) == [41]


def test_each_generation_has_its_own_files() -> None:
    disk: SimDisk = new_disk()
    made(disk, flushed(41, [41]))
    made(disk, flushed(41, [42]), id=ID._replace(gen=3))
    assert (seqs(disk, 42), seqs(disk, 43, ID._replace(gen=3))) == ([41], [42])


def test_a_segment_on_the_real_disk(tmp_path: Path) -> None:
    fs, root, id = PosixFileSystem(), str(tmp_path), SegmentId(7, 41, 2)
    segment = ActiveSegment.create(fs, root, id)
    segment.append(*flushed(43, range(43, 90)))
    segment.close()
    again = ActiveSegment.open(fs, root, id, 90)
    again.append(*flushed(90, [90, 91]))
    again.close()
    assert [*decoded(fs, 92, id, root)] == list(range(43, 92))
    with pytest.raises(SegmentBroken):
        again.append(*flushed(92, [92]))
