"""Segments written to a disk byte by byte, for tests of readers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from storage.format import idx_entry, segment_frame, wal_frame
from storage.format.idx_entry import ENTRY_SIZE
from storage.format.wal_frame import FrameType
from storage.segments import names
from storage.segments.names import SegmentId
from tests.support.sim_disk import SimDisk

ROOT = "/data"
TOPIC = 7
TS = 1_755_000_000_000


@dataclass(frozen=True, kw_only=True)
class Made:
    """A record to be written. Its time is TS plus `ms`."""

    data: bytes = b'{"data":1}'
    tag: bytes = b""
    node: bytes = b""
    ms: int = 0
    deleted: bool = False


@dataclass(kw_only=True)
class Built:
    """The written bytes, and where each frame begins (None: no record)."""

    id: SegmentId
    made: list[Made | None]
    data: bytearray = field(default_factory=bytearray)
    idx: bytearray = field(default_factory=bytearray)
    frames: list[bytes] = field(default_factory=list[bytes])

    @property
    def end_seq(self) -> int:
        return self.id.first_seq + len(self.made)

    def offset(self, number: int) -> int:
        """Where in .data the frame of entry `number` begins."""
        return sum(map(len, self.frames[:number]))

    def live_with(self, tag: bytes, *, prefix: bool = False) -> list[int]:
        """The seqs that a search for the tag has to find."""
        return [
            self.id.first_seq + number
            for number, each in enumerate(self.made)
            if each is not None
            and each.tag
            and not each.deleted
            and (each.tag.startswith(tag) if prefix else each.tag == tag)
        ]


def build(made: Iterable[Made | None], *, first_seq: int = 1, gen: int = 0, topic_id: int = TOPIC) -> Built:
    """The bytes of a segment; None is a seq without a record."""
    built = Built(id=SegmentId(topic_id, first_seq, gen), made=list(made))
    ts = 0
    for number, each in enumerate(built.made):
        if each is None:
            built.idx += idx_entry.pack(len(built.data), 0, ts, 0)
            built.frames.append(b"")
            continue
        ts = TS + each.ms
        in_log = wal_frame.encode(FrameType.APPEND, 4, topic_id, first_seq + number, ts, each.node, each.tag, each.data)
        frame = segment_frame.from_wal(in_log, 0, len(in_log))
        if each.deleted:
            frame = frame[:-1] + bytes((segment_frame.DELETED,))
        flags = bool(each.tag) | bool(each.node) << 1 | each.deleted << 2
        built.idx += idx_entry.pack(len(built.data), len(frame), ts, flags)
        built.data += frame
        built.frames.append(frame)
    return built


def put(disk: SimDisk, built: Built) -> Built:
    """Put the files on the disk, durably."""
    disk.write_file(names.path(ROOT, built.id, names.DATA), bytes(built.data))
    disk.write_file(names.path(ROOT, built.id, names.IDX), bytes(built.idx))
    return built


def spoil(disk: SimDisk, built: Built, ext: str, offset: int) -> None:
    """Change one byte of one of the files. A second call changes it back."""
    disk.flip_byte(names.path(ROOT, built.id, ext), offset, 0x5A)


def cut(disk: SimDisk, built: Built, ext: str, size: int) -> None:
    """Cut one of the files short."""
    disk.cut_file(names.path(ROOT, built.id, ext), size)


def entry_at(number: int) -> int:
    """Where in .idx an entry begins."""
    return number * ENTRY_SIZE


def numbered(count: int, **same: object) -> list[Made | None]:
    """A number of records with distinct contents."""
    return [Made(data=f'{{"data":{number}}}'.encode(), ms=number, **same) for number in range(count)]  # type: ignore[arg-type]
