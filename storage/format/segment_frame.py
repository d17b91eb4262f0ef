"""One record in a segment's .data file: its Append frame from the log without the type byte, then a delete byte.

    off  size  field
    0    4     frame_len u32    the log's value: 42 + node_len + tag_len + data_len
    4    1     flags u8         as in the log
    5    8     topic_id u64
    13   8     seq u64
    21   8     ts u64           ms since the epoch
    29   2     node_len u16
    31   2     tag_len u16
    33   4     data_len u32
    37   .     node, tag, data
    .    8     xxh3 u64         the log's: XXH3-64 (seed 0) over the byte 0x01 and bytes [4 .. here)
    .    1     0x00 live, 0xD5 deleted; outside the checksum, since it is changed in place

Little-endian. The frame has no type byte, and a delete byte instead. So it has frame_len + 4 bytes, as in the log, and
the next frame begins right after it. Copying a frame from the log computes no new checksum.

Source: docs/reference/format.md#segments.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import kernel
from storage.format.wal_frame import FrameError, FrameType

HEADER = struct.Struct("<IBQQQHHI")
HEADER_SIZE = HEADER.size  # 37
_TAIL = struct.Struct("<QB")  # checksum, delete byte
OVERHEAD = HEADER_SIZE + _TAIL.size  # 46: size of a frame with no node, tag or data, delete byte included
LIVE = 0x00
DELETED = 0xD5

APPEND = bytes((FrameType.APPEND,))
#: The error text for the frame at which `kernel.scan` stopped, by its reason.
WRONG = {
    "short": "the frame ends beyond the given bytes",
    "zero": "frame_len is 0",
    "length": "frame_len does not fit the lengths in the header",
    "checksum": "checksum mismatch",
    "delete": "the delete byte is neither live nor deleted",
    "other": "the frame is of another log",
}


class SegmentFrame(NamedTuple):
    """A verified frame. `size` is its whole length in the file, delete byte included."""

    flags: int
    topic_id: int
    seq: int
    ts: int
    node: bytes
    tag: bytes
    data: bytes
    deleted: bool
    size: int


def from_wal(data: bytes | memoryview, offset: int, size: int) -> bytes:
    """The segment frame, live, for the Append frame in data[offset:offset + size]. It has `size` bytes too."""
    return b"".join((data[offset : offset + 4], data[offset + 5 : offset + size], b"\0"))


def idx_flags(flags: int, deleted: bool = False) -> int:
    """The flags of the .idx entry of a frame: bit 0 has a tag, bit 1 has a node, bit 2 deleted."""
    return flags & 3 | deleted << 2


def verify(buffer: bytes, offset: int, length: int) -> bool:
    """Whether buffer[offset:offset + length] is one whole valid frame, live or deleted."""
    if offset + length > len(buffer):
        return False
    frames, _, reason = kernel.scan(buffer, kernel.Kind.SEGMENT, offset, offset + length)
    return not reason and len(frames) == 1


def frames_of(buffer: bytes | memoryview, columns: kernel.Columns) -> Iterator[SegmentFrame]:
    """The frames that `kernel.scan` has verified in this buffer."""
    for offset, topic_id, seq, ts, size, data_len, node_len, tag_len, _, flags, delete_byte, header_len in columns:
        node_at = offset + header_len
        tag_at = node_at + node_len
        data_at = tag_at + tag_len
        node, tag, data = buffer[node_at:tag_at], buffer[tag_at:data_at], buffer[data_at : data_at + data_len]
        yield SegmentFrame(flags, topic_id, seq, ts, bytes(node), bytes(tag), bytes(data), delete_byte == DELETED, size)


def decode(buffer: bytes | memoryview, offset: int = 0) -> SegmentFrame:
    """The frame at `offset`, verified. Raises FrameError with the reason."""
    columns, _, reason = kernel.scan(buffer, kernel.Kind.SEGMENT, offset, max_frames=1)
    for frame in frames_of(buffer, columns):
        return frame
    raise FrameError(WRONG[reason or "short"])
