"""Copying records of the log into a segment: the copied bytes, and files left by an earlier attempt."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest

from storage.format import idx_entry, segment_frame, wal_frame
from storage.format.idx_entry import HAS_NODE, HAS_TAG, Entry
from storage.log import position, split
from storage.log.fetch import WalFileGone, WalReader
from storage.segments import copying, names
from storage.segments.copying import Copied, Copy, append, open_writer, read
from storage.segments.names import SegmentId
from storage.state.tail import SliceColumns
from tests.support.sim_disk import Loss, SimDisk

ROOT, WAL = "/data", "/data/wal"
ID = SegmentId(7, 1)


def disk_with(batches: Sequence[tuple[int, int, Sequence[int]]]) -> tuple[SimDisk, SliceColumns]:
    """A log of batches (first seq, time, data lengths) with other frames before each of them, and their places."""
    rows, log = SliceColumns.none(), bytearray()
    for first_seq, ts, lengths in batches:
        log += b"head" * 5
        rows.seqs.append(first_seq)
        rows.stamps.append(ts)
        rows.lsns.append(position(1, len(log)))
        rows.counts.append(len(lengths))
        for seq, length in enumerate(lengths, first_seq):
            frame = wal_frame.encode(1, seq % 4, 7, seq, ts, b"n" * (seq // 2 % 2), b"t" * (seq % 2), b"x" * length)
            rows.sizes.append(len(frame))
            log += frame
    disk = SimDisk()
    for path in (ROOT, WAL):
        disk.mkdir(path)
        disk.sync_dir(path.rpartition("/")[0] or "/")
    file = disk.open(f"{WAL}/wal-0000000000000001.log", create=True)
    file.pwritev([bytes(log)], 0)
    file.sync()
    disk.sync_dir(WAL)
    return disk, rows


def copy(disk: SimDisk, wal_directory: str, job: Copy) -> Copied:
    """Copies all of it, as the flusher does if the files are not open."""
    parts = read(WalReader(disk, [wal_directory]), 0, job)
    writer = open_writer(disk, job)
    try:
        return append(writer, parts)
    finally:
        writer.close()


def bytes_of(disk: SimDisk, ext: str) -> bytes:
    file = disk.open(names.path(ROOT, ID, ext), write=False)
    return file.pread(file.size(), 0)


def found(disk: SimDisk) -> list[tuple[int, int, int, int] | None]:
    """(seq, time, data length, flags of the index) of every seq of the segment. None where there is no record."""
    data, entries = bytes_of(disk, names.DATA), idx_entry.parse(bytes_of(disk, names.IDX))
    return [_record(data, entry) if entry.len else None for entry in entries]


def _record(data: bytes, entry: Entry) -> tuple[int, int, int, int]:
    frame = segment_frame.decode(data, entry.offset)
    assert frame.size == entry.len
    assert (frame.ts, frame.flags & 3) == (entry.ts, entry.flags)
    return frame.seq, frame.ts, len(frame.data), entry.flags


@pytest.mark.parametrize(
    "batches",
    [
        [(1, 100, [5] * 20)],
        [(1, 100, [5] * 20), (21, 200, [5] * 20)],
        [(1, 100, [5, 6, 7]), (4, 200, [7] * 9), (13, 201, [1])],
        [(1, 100, [5] * 3), (7, 200, [5] * 3), (10, 300, [6] * 12)],
        [(seq, 100 + seq, [9]) for seq in range(1, 30)],
        [(seq, 100 + seq, [seq]) for seq in range(1, 30, 3)],
        [(1, 100, [5])],
    ],
    ids=["alike", "two alike", "mixed", "holes", "singles", "singles with holes", "one"],
)
@pytest.mark.parametrize("gone", [(), (1,), (2, 3, 8), (12,)], ids=str)
@pytest.mark.parametrize("part_bytes", [1, 150, 500, copying.PART_BYTES])
def test_live_records_are_copied_and_deleted_records_leave_holes(
    batches: list[tuple[int, int, list[int]]], gone: tuple[int, ...], part_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "PART_BYTES", part_bytes)
    disk, rows = disk_with(batches)
    there = {seq: (ts, length) for first, ts, lengths in batches for seq, length in enumerate(lengths, first)}
    dead = sum(1 << (seq - 1) for seq in range(1, rows.end_seq) if seq in gone or seq not in there)
    done = copy(disk, WAL, Copy(ROOT, ID, 1, rows, dead))
    # Kept flags: HAS_TAG and HAS_NODE, the lowest bits of the frame's flags.
    wanted = [
        None if seq in gone or seq not in there else (seq, *there[seq], seq & (HAS_TAG | HAS_NODE))
        for seq in range(1, rows.end_seq)
    ]
    assert found(disk) == wanted
    assert done.data_bytes == done.written == len(bytes_of(disk, names.DATA))


def test_added_records_follow_the_marked_records() -> None:
    disk, rows = disk_with([(1, 100, [5] * 4), (5, 200, [6] * 4)])
    first = copy(disk, WAL, Copy(ROOT, ID, 1, rows.first(1), 0))
    rest = SliceColumns(*(column[1:] for column in rows[:4]), rows.sizes[4:])
    both = copy(disk, WAL, Copy(ROOT, ID, 5, rest, 0))
    assert [record and record[0] for record in found(disk)] == list(range(1, 9))
    assert (first.data_bytes, both.written) == (sum(rows.sizes[:4]), sum(rows.sizes[4:]))
    # Copy again, as after a round whose mark failed. There are fewer records, because some were deleted meanwhile.
    assert copy(disk, WAL, Copy(ROOT, ID, 5, rest, 0)) == both
    copy(disk, WAL, Copy(ROOT, ID, 5, rest, 0b1110))
    assert [record and record[0] for record in found(disk)] == [1, 2, 3, 4, 5, None, None, None]


@pytest.mark.parametrize("left", [(names.DATA,), (names.DATA, names.IDX), (names.IDX,)])
def test_files_without_marked_records_are_recreated(left: tuple[str, ...]) -> None:
    """A killed process may have left one of them or both, with names that are not durable."""
    disk, rows = disk_with([(1, 100, [5] * 4)])
    for path in (names.topics_folder(ROOT), names.folder(ROOT, ID.topic_id)):
        disk.mkdir(path)
    for ext in left:
        disk.open(names.path(ROOT, ID, ext), create=True).pwritev([b"rubbish" * 100], 0)
    copy(disk, WAL, Copy(ROOT, ID, 1, rows, 0))
    assert [record and record[0] for record in found(disk.power_cut(Loss.DROP))] == [1, 2, 3, 4]


def test_a_large_copy_is_written_part_by_part_and_synced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "PART_BYTES", 300)
    disk, rows = disk_with([(1, 100, [5] * 20), (21, 200, [6] * 20), (41, 300, [500] * 2)])
    begin = len(disk.calls)
    copy(disk, WAL, Copy(ROOT, ID, 1, rows, 0))
    calls = [call for call in disk.calls[begin:] if call.path.endswith(names.DATA)]
    ops = [call.op for call in calls if call.op in ("pwritev", "datasync")]
    writes = ops.count("pwritev")
    assert ops == ["pwritev"] * writes + ["datasync"]
    assert writes > sum(rows.sizes[:40]) // 300  # a part is not larger, unless a single record is
    assert [record and record[0] for record in found(disk.power_cut(Loss.DROP))] == list(range(1, 43))


def test_a_copy_that_failed_in_a_later_part_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "PART_BYTES", 100)
    disk, rows = disk_with([(1, 100, [5] * 4), (5, 200, [6] * 4), (9, 300, [7] * 4)])
    copy(disk, WAL, Copy(ROOT, ID, 1, rows.first(1), 0))
    marked = bytes_of(disk, names.DATA), bytes_of(disk, names.IDX)
    rest = SliceColumns(*(column[1:] for column in rows[:4]), rows.sizes[4:])
    log = disk.open(f"{WAL}/wal-0000000000000001.log")
    place = split(rows.lsns[2])[1] + 4
    log.pwritev([b"\xff"], place)
    with pytest.raises(wal_frame.FrameError):
        copy(disk, WAL, Copy(ROOT, ID, 5, rest, 0))
    assert bytes_of(disk, names.DATA)[: len(marked[0])] == marked[0]
    assert bytes_of(disk, names.IDX) == marked[1]
    log.pwritev([b"\x01"], place)
    # Less than before. The bytes of the first copy are after the end, and none of them stays.
    copy(disk, WAL, Copy(ROOT, ID, 5, rest.first(1), 0b1110))
    assert [record and record[0] for record in found(disk)] == [1, 2, 3, 4, 5, None, None, None]
    assert len(bytes_of(disk, names.DATA)) == sum(rows.sizes[:5])


def test_a_log_file_deleted_between_two_parts_fails_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "PART_BYTES", 100)
    disk, rows = disk_with([(1, 100, [5] * 4), (5, 200, [6] * 4)])
    rows.lsns[1] = position(2, 40)  # of a file that no longer exists
    with pytest.raises(WalFileGone):
        copy(disk, WAL, Copy(ROOT, ID, 1, rows, 0))
    assert bytes_of(disk, names.IDX) == b""
    copy(disk, WAL, Copy(ROOT, ID, 1, rows.first(1), 0))
    assert [record and record[0] for record in found(disk)] == [1, 2, 3, 4]


def test_a_copy_from_a_missing_log_file_leaves_no_segment() -> None:
    disk, rows = disk_with([(1, 100, [5] * 4)])
    disk.unlink(f"{WAL}/wal-0000000000000001.log")
    with pytest.raises(WalFileGone):
        copy(disk, WAL, Copy(ROOT, ID, 1, rows, 0))
    assert not disk.exists(names.topics_folder(ROOT))


def test_first_rows_have_their_seqs_times_and_sizes() -> None:
    _, rows = disk_with([(1, 100, [5] * 4), (9, 200, [6] * 2), (20, 300, [7])])
    assert rows.first(2) == SliceColumns(*(column[:2] for column in rows[:4]), rows.sizes[:6])
    assert rows.first(0) == SliceColumns.none()
    assert [(span.first_seq, list(span.sizes)) for span in rows.slices()] == [
        (1, list(rows.sizes[:4])),
        (9, list(rows.sizes[4:6])),
        (20, list(rows.sizes[6:])),
    ]
    assert rows.end_seq == 21
    assert rows.counts == array("I", [4, 2, 1])
