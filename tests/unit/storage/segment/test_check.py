"""The findings of recovery about segment files: every row of the table in storage/segments/check.py."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.format import segment_frame, wal_frame
from storage.format.idx_entry import ENTRY_SIZE
from storage.format.wal_frame import FrameType
from storage.platform.posix import PosixFileSystem
from storage.segments import names
from storage.segments.check import rebuild_idx, reconcile_active, reconcile_sealed, sweep
from storage.segments.errors import SegmentBroken, SegmentCorrupt
from storage.segments.flips import flip
from storage.segments.names import SegmentId
from storage.segments.writer import ActiveSegment
from tests.support.sim_disk import Loss, SimDisk
from tests.unit.storage.segment.steps import (
    ID,
    ROOT,
    content,
    decoded,
    flushed,
    made,
    new_disk,
    path,
    seqs,
    spoil,
)

#: Seqs 41 to 60. 44, 45 and 58 have no record; 42 and 59 are deleted.
PRESENT = [seq for seq in range(41, 61) if seq not in (44, 45, 58)]
END = 61
LIVE = [seq for seq in PRESENT if seq not in (42, 59)]


@pytest.fixture
def disk() -> SimDisk:
    disk = new_disk()
    made(disk, flushed(41, [seq for seq in PRESENT if seq < 50]), flushed(50, [s for s in PRESENT if s >= 50])).close()
    flip(disk, ROOT, ID, [1, 18])
    return disk


def data_bytes(disk: SimDisk) -> int:
    return disk.file_size(path("data"))


def frame_at(disk: SimDisk, seq: int) -> int:
    return decoded(disk, END)[seq].offset


def cut_file(disk: SimDisk, file: str, size: int) -> None:
    disk.write_file(file, content(disk, file)[:size])


def corrupt(file: str, offset: int, action: Callable[[], object]) -> None:
    with pytest.raises(SegmentCorrupt) as caught:
        action()
    assert (caught.value.file, caught.value.offset) == (file, offset)


# ---- active


def test_a_sound_active_segment_is_not_changed(disk: SimDisk) -> None:
    size = data_bytes(disk)
    begin = len(disk.calls)
    assert reconcile_active(disk, ROOT, ID, END) == size
    assert {call.op for call in disk.calls[begin:]} <= {"open", "pread", "close", "file_size"}


def test_unmarked_frames_are_cut_durably(disk: SimDisk) -> None:
    end = frame_at(disk, 50)
    assert reconcile_active(disk, ROOT, ID, 50) == end
    found = disk.power_cut(Loss.DROP)
    assert seqs(found, 50) == [seq for seq in LIVE if seq < 50]


def test_an_end_within_seqs_without_a_record_is_kept(disk: SimDisk) -> None:
    reconcile_active(disk, ROOT, ID, 45)
    assert seqs(disk, 45) == [41, 43]


def test_files_of_an_unmarked_segment_are_emptied_or_created(disk: SimDisk) -> None:
    assert reconcile_active(disk, ROOT, ID, 41) == 0
    assert seqs(disk, 41) == []
    bare = new_disk()
    assert reconcile_active(bare, ROOT, ID, 41) == 0
    assert seqs(bare.power_cut(Loss.DROP), 41) == []


def test_a_torn_end_behind_the_mark_does_not_matter_even_without_an_index(disk: SimDisk) -> None:
    whole = content(disk, path("data"))
    disk.write_file(path("data"), whole + whole[:100] + bytes(600))
    disk.remove_file(path("idx"))
    assert reconcile_active(disk, ROOT, ID, END) == len(whole)
    assert seqs(disk.power_cut(Loss.DROP), END) == LIVE


@pytest.mark.parametrize("missing", [0, 1, 7 * ENTRY_SIZE, 7 * ENTRY_SIZE + 5, 19 * ENTRY_SIZE, 20 * ENTRY_SIZE - 1])
def test_a_short_index_is_completed_from_the_frames(disk: SimDisk, missing: int) -> None:
    before = content(disk, path("idx"))
    cut_file(disk, path("idx"), missing)
    reconcile_active(disk, ROOT, ID, END)
    assert content(disk.power_cut(Loss.DROP), path("idx")) == before


def test_damaged_entries_are_rebuilt_from_the_frames(disk: SimDisk) -> None:
    before = content(disk, path("idx"))
    for number in range(20):
        spoil(disk, path("idx"), number * ENTRY_SIZE + number)
        reconcile_active(disk, ROOT, ID, END)
        assert content(disk, path("idx")) == before
    rng = random.Random(5)
    for _ in range(20):
        for number in rng.sample(range(20), rng.randint(2, 20)):
            spoil(disk, path("idx"), number * ENTRY_SIZE + rng.randrange(ENTRY_SIZE))
        reconcile_active(disk, ROOT, ID, END)
        assert content(disk, path("idx")) == before


def test_missing_bytes_are_announced(disk: SimDisk) -> None:
    size = data_bytes(disk)
    for left in (size - 1, 100, 0):
        cut_file(disk, path("data"), left)
        corrupt(path("data"), left, lambda: reconcile_active(disk, ROOT, ID, END))
    disk.remove_file(path("data"))
    corrupt(path("data"), 0, lambda: reconcile_active(disk, ROOT, ID, END))
    disk.remove_file(path("idx"))
    corrupt(path("data"), 0, lambda: reconcile_active(disk, ROOT, ID, END))


def test_an_index_is_not_rebuilt_for_absent_records(disk: SimDisk) -> None:
    disk.remove_file(path("idx"))
    corrupt(path("data"), data_bytes(disk), lambda: reconcile_active(disk, ROOT, ID, END + 1))
    assert not disk.exists(path("idx"))
    cut_file(disk, path("data"), frame_at_last := data_bytes(disk) - 30)
    with pytest.raises(SegmentCorrupt) as caught:
        reconcile_active(disk, ROOT, ID, END)
    assert caught.value.file == path("data")
    assert caught.value.offset < frame_at_last


def test_a_damaged_frame_is_no_matter_of_a_sound_index(disk: SimDisk) -> None:
    spoil(disk, path("data"), frame_at(disk, 50) + 20)
    reconcile_active(disk, ROOT, ID, END)


@pytest.mark.parametrize("place", [2, 20, 44])
def test_damage_of_an_entry_and_its_frame_is_reported(disk: SimDisk, place: int) -> None:
    at = frame_at(disk, 50)
    spoil(disk, path("data"), at + place)
    spoil(disk, path("idx"), (50 - 41) * ENTRY_SIZE)
    before = content(disk, path("idx"))
    corrupt(path("data"), at, lambda: reconcile_active(disk, ROOT, ID, END))
    assert content(disk, path("idx")) == before


def test_frames_of_another_log_or_position_are_refused(disk: SimDisk) -> None:
    other = disk.read_file(path("data"))
    for id in (ID._replace(topic_id=8), ID._replace(first_seq=42)):
        disk.write_file(names.path(ROOT, id, "data"), other)
        corrupt(names.path(ROOT, id, "data"), 0, lambda id=id: reconcile_active(disk, ROOT, id, END))


@pytest.mark.parametrize("intruders", [[55], [50, 51]])
def test_foreign_frames_between_valid_entries_are_reported(disk: SimDisk, intruders: list[int]) -> None:
    """Entry 50 is damaged, and at its place are valid frames that cannot be everything that belongs there."""
    lost = decoded(disk, END)[50]
    sizes = [lost.size - 50 * (len(intruders) - 1)] + [50] * (len(intruders) - 1)
    frames = b""
    for seq, size in zip(intruders, sizes, strict=True):
        frame = wal_frame.encode(FrameType.APPEND, 0, ID.topic_id, seq, 1, data=bytes(size - wal_frame.OVERHEAD))
        frames += segment_frame.from_wal(frame, 0, size)
    data = content(disk, path("data"))
    disk.write_file(path("data"), data[: lost.offset] + frames + data[lost.offset + lost.size :])
    spoil(disk, path("idx"), (50 - 41) * ENTRY_SIZE)
    corrupt(path("data"), lost.offset + sum(sizes[:-1]), lambda: reconcile_active(disk, ROOT, ID, END))


def test_an_io_error_is_not_taken_for_damage(disk: SimDisk) -> None:
    disk.fail("pread", "*.idx", errno=errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        reconcile_active(disk, ROOT, ID, END)
    disk.write_file(path("idx"), b"")
    disk.fail("pread", "*.data", errno=errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        reconcile_active(disk, ROOT, ID, END)


def test_a_failed_index_write_leaves_the_previous_index(disk: SimDisk) -> None:
    spoil(disk, path("idx"), 3)
    before = content(disk, path("idx"))
    disk.fail("datasync", "*.idx.tmp", errno=errno.EIO)
    with pytest.raises(SegmentBroken):
        reconcile_active(disk, ROOT, ID, END)
    assert content(disk, path("idx")) == before
    assert not disk.exists(path("idx") + ".tmp")
    reconcile_active(disk, ROOT, ID, END)
    assert seqs(disk.power_cut(Loss.DROP), END) == LIVE


# ---- sealed


def test_a_sound_sealed_segment_costs_two_stats(disk: SimDisk) -> None:
    size = data_bytes(disk)
    begin = len(disk.calls)
    reconcile_sealed(disk, ROOT, ID, END, size)
    assert [call.op for call in disk.calls[begin:]] == ["file_size", "file_size"]


def test_a_long_sealed_segment_is_cut(disk: SimDisk) -> None:
    reconcile_sealed(disk, ROOT, ID, 50, frame_at(disk, 50))
    assert seqs(disk.power_cut(Loss.DROP), 50) == [seq for seq in LIVE if seq < 50]


@pytest.mark.parametrize("left", [None, 0, 45, 19 * ENTRY_SIZE])
def test_the_index_of_a_sealed_segment_is_rebuilt(disk: SimDisk, left: int | None) -> None:
    before = content(disk, path("idx"))
    if left is None:
        disk.remove_file(path("idx"))
    else:
        cut_file(disk, path("idx"), left)
    reconcile_sealed(disk, ROOT, ID, END, data_bytes(disk))
    assert content(disk.power_cut(Loss.DROP), path("idx")) == before


def test_a_sealed_index_that_ends_without_records_is_rebuilt() -> None:
    disk = new_disk()
    segment = made(disk, flushed(41, [41], end_seq=50))
    before = content(disk, path("idx"))
    disk.remove_file(path("idx"))
    corrupt(path("data"), segment.data_bytes, lambda: reconcile_active(disk, ROOT, ID, 50))
    reconcile_sealed(disk, ROOT, ID, 50, segment.data_bytes)
    assert content(disk, path("idx")) == before


def test_the_index_of_a_segment_without_records_is_rebuilt() -> None:
    disk = new_disk()
    made(disk, flushed(45, [], end_seq=50))
    before = content(disk, path("idx"))
    disk.remove_file(path("idx"))
    reconcile_sealed(disk, ROOT, ID, 50, 0)
    assert content(disk, path("idx")) == before


def test_missing_bytes_of_a_sealed_segment_are_announced(disk: SimDisk) -> None:
    size = data_bytes(disk)
    cut_file(disk, path("data"), size - 1)
    corrupt(path("data"), size - 1, lambda: reconcile_sealed(disk, ROOT, ID, END, size))
    disk.remove_file(path("data"))
    corrupt(path("data"), 0, lambda: reconcile_sealed(disk, ROOT, ID, END, size))


def test_a_damaged_entry_of_a_sealed_segment_is_rebuilt_on_request(disk: SimDisk) -> None:
    before = content(disk, path("idx"))
    spoil(disk, path("idx"), 100)
    rebuild_idx(disk, ROOT, ID, END, data_bytes(disk))
    assert content(disk.power_cut(Loss.DROP), path("idx")) == before


def test_an_index_rebuild_with_a_wrong_number_of_frames_is_refused(disk: SimDisk) -> None:
    disk.remove_file(path("idx"))
    size = data_bytes(disk)
    with pytest.raises(SegmentCorrupt):
        rebuild_idx(disk, ROOT, ID, END - 1, size)
    with pytest.raises(SegmentCorrupt):
        rebuild_idx(disk, ROOT, ID, END, size - 10)
    assert not disk.exists(path("idx"))


def test_large_frames_are_read_in_pieces() -> None:
    disk = new_disk()
    part = flushed(41, range(41, 6041))
    assert part.data_bytes > 1 << 20
    made(disk, part)
    before = content(disk, path("idx"))
    disk.remove_file(path("idx"))
    begin = len(disk.calls)
    reconcile_active(disk, ROOT, ID, 6041)
    assert content(disk, path("idx")) == before
    reads = [call.args for call in disk.calls[begin:] if call.op == "pread" and call.path == path("data")]
    assert max(int(size) for _, size in reads) <= 1 << 20


def test_an_index_is_rebuilt_on_the_real_disk(tmp_path: Path) -> None:
    fs, root = PosixFileSystem(), str(tmp_path)
    segment = ActiveSegment.create(fs, root, ID)
    segment.append(*flushed(41, range(41, 400)))
    segment.close()
    fs.unlink(names.path(root, ID, "idx"))
    assert reconcile_active(fs, root, ID, 400) == segment.data_bytes
    assert [*decoded(fs, 400, ID, root)] == list(range(41, 400))


# ---- sweep


def test_files_outside_the_manifest_are_removed(disk: SimDisk) -> None:
    folder = names.folder(ROOT, ID.topic_id)
    kept = {f"{folder}/{names.file_name(41, 0, names.TAG)}", path("idx"), path("data"), f"{folder}/README"}
    gone = ["seg-00000000000000000041.1.data", "seg-00000000000000000041.1.idx", "seg-00000000000000000041.idx.tmp"]
    gone += ["seg-00000000000000000041.tag.tmp", "seg-00000000000000000061.tag"]
    for name in [f"{folder}/{name}" for name in gone] + sorted(kept):
        if not disk.exists(name):
            disk.write_file(name, b"?")
    assert sweep(disk, ROOT, ID.topic_id, {ID}) == sorted(gone)
    found = disk.power_cut(Loss.DROP)
    assert {f"{folder}/{name}" for name in found.listdir(folder)} == kept


def test_a_sweep_of_a_log_without_a_folder_removes_no_file() -> None:
    assert sweep(new_disk(), ROOT, 9, {SegmentId(9, 1)}) == []


def test_an_empty_sealed_segment_gets_empty_files() -> None:
    disk = new_disk()
    for _ in range(2):
        reconcile_sealed(disk, ROOT, ID, ID.first_seq, 0)
        for ext in ("data", "idx"):
            assert disk.file_size(path(ext)) == 0
