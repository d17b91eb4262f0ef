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

Little-endian. One byte less and one more: with the delete byte, the frame has frame_len + 4 bytes, as in the log, and
the next frame begins right behind it. Copying a frame from the log computes no new checksum.

Source: docs/reference/format.md#segments.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import kernel
from storage.format.checksum import checksum
from storage.format.wal_frame import FIXED_LEN, FrameError, FrameType

HEADER = struct.Struct("<IBQQQHHI")
HEADER_SIZE = HEADER.size  # 37
_TAIL = struct.Struct("<QB")  # checksum, delete byte
OVERHEAD = HEADER_SIZE + _TAIL.size  # 46: size of a frame with no node, tag or data, delete byte included
LIVE = 0x00
DELETED = 0xD5

APPEND = bytes((FrameType.APPEND,))


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


def decode(buffer: bytes | memoryview, offset: int = 0) -> SegmentFrame:
    """The frame at `offset`, verified. Raises FrameError with the reason."""
    available = len(buffer) - offset
    if available < OVERHEAD:
        raise FrameError(f"{available} bytes are too few for a frame")
    length, flags, topic_id, seq, ts, node_len, tag_len, data_len = HEADER.unpack_from(buffer, offset)
    if length != FIXED_LEN + node_len + tag_len + data_len:
        raise FrameError("frame_len does not fit the lengths in the header")
    size = length + 4
    if size > available:
        raise FrameError("frame_len overruns the bytes at hand")
    end = offset + size - _TAIL.size
    body = APPEND + buffer[offset + 4 : end]
    stored, delete_byte = _TAIL.unpack_from(buffer, end)
    if checksum(body) != stored:
        raise FrameError("checksum mismatch")
    if delete_byte not in (LIVE, DELETED):
        raise FrameError(f"delete byte {delete_byte:#04x}")
    node_at = HEADER_SIZE - 3  # of body, which has the type byte instead of frame_len
    tag_at = node_at + node_len
    data_at = tag_at + tag_len
    return SegmentFrame(
        flags,
        topic_id,
        seq,
        ts,
        body[node_at:tag_at],
        body[tag_at:data_at],
        body[data_at:],
        delete_byte == DELETED,
        size,
    )
