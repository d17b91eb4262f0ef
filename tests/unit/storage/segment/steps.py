"""Records for segments, and reading them back with the independent decoder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import kernel
from storage.format import wal_frame
from storage.format.wal_frame import FrameType
from storage.platform.filesystem import FileSystem
from storage.segments import names
from storage.segments.names import SegmentId
from storage.segments.writer import ActiveSegment, Frames
from tests.support.sim_disk import SimDisk
from tests.support.spec_segment import SegmentRecord, decode_segment

ROOT = "/data"
TS = 1_755_000_000_000
ID = SegmentId(7, 41)


class Flushed(NamedTuple):
    """The arguments of one `ActiveSegment.append`."""

    parts: list[Frames]

    @property
    def data_bytes(self) -> int:
        """For the frames that are live."""
        return sum(
            size
            for part in self.parts
            for size, dead in zip(part.columns.sizes, part.dead or bytes(len(part.columns)), strict=True)
            if not dead
        )


def data_of(seq: int) -> bytes:
    return b'{"data":"' + b"x" * (seq * 37 % 300) + b'%d"}' % seq


def flushed(first_seq: int, seqs: Iterable[int], *, end_seq: int | None = None) -> Flushed:
    """[first_seq, end_seq) with a record for each of `seqs`. Without end_seq, up to the last of them."""
    present = {*seqs}
    end = end_seq or max(present) + 1
    # A seq at the end without a record has a dead frame. Elsewhere it has no frame.
    last = max(present, default=first_seq - 1)
    frames = [
        wal_frame.encode(
            FrameType.APPEND, 4, ID.topic_id, seq, TS + seq, b"n" * (seq % 2), b"tag" * (seq % 3), data_of(seq)
        )
        for seq in range(first_seq, end)
        if seq in present or seq > last
    ]
    buffer = b"".join(frames)
    columns = kernel.scan(buffer).columns
    return Flushed([Frames(buffer, columns, bytes(seq > last for seq in columns.seqs))])


def new_disk() -> SimDisk:
    disk = SimDisk()
    disk.mkdir(ROOT)
    disk.sync_dir("/")
    return disk


def made(disk: SimDisk, *parts: Flushed, id: SegmentId = ID) -> ActiveSegment:
    """A segment with these records appended."""
    segment = ActiveSegment.create(disk, ROOT, id)
    for part in parts:
        segment.append(*part)
    return segment


def path(ext: str, id: SegmentId = ID) -> str:
    return names.path(ROOT, id, ext)


def content(fs: FileSystem, file: str) -> bytes:
    opened = fs.open(file, write=False)
    try:
        return opened.pread(opened.size(), 0)
    finally:
        opened.close()


def spoil(disk: SimDisk, file: str, offset: int) -> None:
    """Change one byte of a file, durably."""
    changed = bytearray(content(disk, file))
    changed[offset] ^= 0x40
    disk.write_file(file, bytes(changed))


def decoded(fs: FileSystem, end_seq: int, id: SegmentId = ID, root: str = ROOT) -> dict[int, SegmentRecord]:
    """The records that the specification's reader finds; both files must match it to the last byte."""
    data, idx = (content(fs, names.path(root, id, ext)) for ext in (names.DATA, names.IDX))
    found = decode_segment(data, idx, topic_id=id.topic_id, first_seq=id.first_seq, end_seq=end_seq)
    assert all(record.data == data_of(seq) and record.ts == TS + seq for seq, record in found.items())
    return found


def seqs(fs: FileSystem, end_seq: int, id: SegmentId = ID, root: str = ROOT) -> list[int]:
    """Seqs of the records found that are not deleted."""
    return [seq for seq, record in decoded(fs, end_seq, id, root).items() if not record.deleted]
