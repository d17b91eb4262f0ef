"""Deleting in place: .data changes first, then .idx, and no other byte changes."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from storage.format import idx_entry
from storage.platform.posix import PosixFileSystem
from storage.segments import names
from storage.segments.check import rebuild_idx
from storage.segments.errors import SegmentBroken, SegmentCorrupt
from storage.segments.flips import flip
from storage.segments.writer import ActiveSegment
from tests.support.sim_disk import Loss, SimDisk
from tests.unit.storage.segment.steps import ID, ROOT, content, decoded, flushed, made, new_disk, path, seqs, spoil

SEQS = [41, 42, 43, 46, 47, 48]
END = 49


@pytest.fixture
def disk() -> SimDisk:
    disk = new_disk()
    made(disk, flushed(41, SEQS)).close()
    return disk


def test_flagged_records_are_deleted_durably_in_both_files(disk: SimDisk) -> None:
    flip(disk, ROOT, ID, [6, 1, 1])
    found = disk.power_cut(Loss.DROP)
    assert seqs(found, END) == [41, 43, 46, 48]
    assert idx_entry.dead_bits(content(found, path("idx"))) == 0b01011010


def test_data_is_synced_before_the_index_is_written(disk: SimDisk) -> None:
    begin = len(disk.calls)
    flip(disk, ROOT, ID, [0])
    calls = [(call.op, call.path.rpartition(".")[2], *call.args) for call in disk.calls[begin:]]
    size = decoded(disk, END)[41].size
    assert [call for call in calls if call[0] in ("pwritev", "datasync")] == [
        ("pwritev", "data", size - 1, 1),
        ("datasync", "data"),
        ("pwritev", "idx", 16, 4),
        ("datasync", "idx"),
    ]


def test_a_repeated_delete_changes_no_byte_and_syncs_again(disk: SimDisk) -> None:
    flip(disk, ROOT, ID, [0, 2])
    before = content(disk, path("data")), content(disk, path("idx"))
    begin = len(disk.calls)
    flip(disk, ROOT, ID, [0, 2])
    assert (content(disk, path("data")), content(disk, path("idx"))) == before
    assert [call.op for call in disk.calls[begin:]].count("datasync") == 2


def test_flags_of_a_killed_process_are_made_durable_by_the_next_delete(disk: SimDisk) -> None:
    disk.crash_on("datasync", "*.idx")
    with pytest.raises(BaseException, match="stopped"):
        flip(disk, ROOT, ID, [0])
    again = disk.process_kill()
    assert seqs(again, END) == SEQS[1:], "in the page cache"
    flip(again, ROOT, ID, [0])
    assert seqs(again.power_cut(Loss.DROP), END) == SEQS[1:]


def test_seqs_without_a_record_are_unchanged(disk: SimDisk) -> None:
    before = content(disk, path("data")), content(disk, path("idx"))
    flip(disk, ROOT, ID, [3, 4])
    flip(disk, ROOT, ID, [])
    assert (content(disk, path("data")), content(disk, path("idx"))) == before


def test_a_delete_with_a_damaged_entry_is_refused_and_changes_no_byte(disk: SimDisk) -> None:
    spoil(disk, path("idx"), 45)
    before = content(disk, path("data")), content(disk, path("idx"))
    for indexes in ([0, 2], [2]):
        with pytest.raises(SegmentCorrupt) as caught:
            flip(disk, ROOT, ID, indexes)
        assert (caught.value.file, caught.value.offset) == (path("idx"), 40)
    with pytest.raises(SegmentCorrupt):
        flip(disk, ROOT, ID, [0, 8])
    assert (content(disk, path("data")), content(disk, path("idx"))) == before


def test_a_delete_in_short_data_is_refused_and_does_not_extend_the_file(disk: SimDisk) -> None:
    short = content(disk, path("data"))[:-1]
    disk.write_file(path("data"), short)
    with pytest.raises(SegmentCorrupt) as caught:
        flip(disk, ROOT, ID, [0, 7])
    assert (caught.value.file, caught.value.offset) == (path("data"), len(short))
    assert content(disk, path("data")) == short


@pytest.mark.parametrize("ext", ["data", "idx"])
def test_a_failed_sync_raises_segment_broken(disk: SimDisk, ext: str) -> None:
    disk.fail("datasync", f"*.{ext}")
    with pytest.raises(SegmentBroken):
        flip(disk, ROOT, ID, [0])


def test_a_delete_that_failed_for_lack_of_space_can_be_repeated(disk: SimDisk) -> None:
    disk.fail("pwritev", "*.idx", errno=errno.ENOSPC, nth=2)
    with pytest.raises(OSError, match="No space"):
        flip(disk, ROOT, ID, [0, 1, 2])
    flip(disk, ROOT, ID, [0, 1, 2])
    assert seqs(disk.power_cut(Loss.DROP), END) == [46, 47, 48]


def test_a_rebuilt_index_has_the_deleted_flags(disk: SimDisk) -> None:
    flip(disk, ROOT, ID, [0, 6])
    before = content(disk, path("idx"))
    disk.remove_file(path("idx"))
    rebuild_idx(disk, ROOT, ID, END, disk.file_size(path("data")))
    assert content(disk, path("idx")) == before


def test_deleting_on_the_real_disk(tmp_path: Path) -> None:
    fs, root = PosixFileSystem(), str(tmp_path)
    segment = ActiveSegment.create(fs, root, ID)
    segment.append(*flushed(41, range(41, 400)))
    flip(fs, root, ID, range(0, 359, 2))
    segment.append(*flushed(400, [400]))
    assert seqs(fs, 401, ID, root) == [*range(42, 400, 2), 400]
    assert names.path(root, ID, names.DATA).startswith(root)
