"""One record in a segment's .data file: its Append frame of the log without the type byte, and a delete byte behind.

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

Little-endian. One byte fewer and one more: the frame has frame_len + 4 bytes, as it had in the log, delete byte
included, and the next one begins right behind it. Nothing is hashed again on the way.

Source: docs/reference/format.md#segments.
"""

from __future__ import annotations

import struct
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate, repeat
from typing import NamedTuple, TypeAlias

from storage.format.checksum import checksum
from storage.format.wal_frame import FIXED_LEN, LENGTH, FrameError, FrameType

HEADER = struct.Struct("<IBQQQHHI")
HEADER_SIZE = HEADER.size  # 37
_TAIL = struct.Struct("<QB")  # checksum, delete byte
OVERHEAD = HEADER_SIZE + _TAIL.size  # 46: size of a frame with no node, tag or data, delete byte included
LIVE = 0x00
DELETED = 0xD5

APPEND = bytes((FrameType.APPEND,))
_LENGTH_TYPE = struct.Struct("<IB")  # how an Append frame begins in the log
_DELETE_LENGTH = struct.Struct("<BI")  # what replaces it: delete byte of the frame before, and frame_len


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


#: Bytes of frames that lie one behind the other.
Sizes: TypeAlias = "array[int] | list[int]"  # array[int] cannot be evaluated before Python 3.12
#: From so many frames of one size on, it is quicker to go through them by columns.
_STRIDES_PAY = 8


def from_wal(data: bytes | memoryview, offset: int, size: int) -> bytes:
    """The segment frame, live, of the Append frame in data[offset:offset + size]. It has `size` bytes too."""
    return b"".join((data[offset : offset + 4], data[offset + 5 : offset + size], b"\0"))


def convert(pieces: Iterable[tuple[bytes | memoryview, int, Sizes]]) -> memoryview:
    """The segment frames, live and one behind the other, of many Append frames.

    A piece is (bytes of the log, offset of its first frame there, sizes in bytes of it and those right behind it).
    Raises FrameError, before anything is returned, when an Append frame of that size does not begin where one should.
    """
    parts: list[bytes | memoryview] = []
    groups: list[_Group] = []
    length = 0
    for data, offset, sizes in pieces:
        uniform = sizes[:1] * len(sizes) == sizes  # as most are: asked with no Python number for each
        end = offset + (sizes[0] * len(sizes) if uniform and sizes else sum(sizes))
        if not 0 <= offset <= end <= len(data):
            raise FrameError(f"frames at [{offset}, {end}) of {len(data)} bytes")
        parts.append(data[offset:end])
        size = sizes[0] if uniform and sizes else 0
        if groups and size and groups[-1].size == size:
            groups[-1].count += len(sizes)
        else:
            groups.append(_Group(length, size, len(sizes), sizes))
        length += end - offset
    parts.append(b"\0")
    # Each frame loses a byte at its head and gets one at its end. Seen from one byte further on, all of it stays where
    # it is but for five bytes: frame_len and type give way to the delete byte of the frame before, and frame_len.
    out = bytearray().join(parts)
    for group in groups:
        if group.count >= _STRIDES_PAY and group.size:
            _convert_uniform(out, group.start, group.count, group.size)
        else:
            _convert_group(out, group.start, [group.size] * group.count if group.size else group.sizes)
    return memoryview(out)[1:]


class _Group:
    """Frames one behind the other in what is converted: `count` of one `size`, or (`size` 0) of many `sizes`."""

    __slots__ = ("count", "size", "sizes", "start")

    def __init__(self, start: int, size: int, count: int, sizes: Sequence[int]) -> None:
        self.start = start
        self.size = size
        self.count = count
        self.sizes = sizes


def _convert_uniform(out: bytearray, start: int, count: int, size: int) -> None:
    """Frames of one size: column by column."""
    end = start + count * size
    head = _LENGTH_TYPE.pack(size - 4, FrameType.APPEND)
    if any(bytes(out[start + at : end : size]) != bytes((byte,)) * count for at, byte in enumerate(head)):
        _convert_group(out, start, [size] * count)  # it says which one
        return
    for at, byte in enumerate(_DELETE_LENGTH.pack(LIVE, size - 4)):
        out[start + at : end : size] = bytes((byte,)) * count


def _convert_group(out: bytearray, start: int, sizes: Sequence[int]) -> None:
    offsets = list(accumulate(sizes, initial=start))[:-1]
    lengths = [size - 4 for size in sizes]
    expected = list(zip(lengths, repeat(int(FrameType.APPEND)), strict=False))
    found = list(map(_LENGTH_TYPE.unpack_from, repeat(out), offsets))
    if found != expected:
        index = next(index for index, pair in enumerate(found) if pair != expected[index])
        raise FrameError(f"frame {index} begins with (frame_len, type) {found[index]}, not {expected[index]}")
    deque(map(_DELETE_LENGTH.pack_into, repeat(out), offsets, repeat(LIVE), lengths), maxlen=0)


def idx_flags(flags: int, deleted: bool = False) -> int:
    """The flags of the .idx entry of a frame: bit 0 has a tag, bit 1 has a node, bit 2 deleted."""
    return flags & 3 | deleted << 2


def verify(buffer: bytes | memoryview, offset: int, length: int) -> bool:
    """Whether buffer[offset:offset + length] is one whole valid frame, live or deleted."""
    if length < OVERHEAD or offset + length > len(buffer):
        return False
    end = offset + length - _TAIL.size
    (frame_len,) = LENGTH.unpack_from(buffer, offset)  # the one field outside the checksum
    stored, delete_byte = _TAIL.unpack_from(buffer, end)
    return (
        frame_len == length - 4
        and delete_byte in (LIVE, DELETED)
        and checksum(APPEND + buffer[offset + 4 : end]) == stored
    )


def lengths_of_live(buffer: bytes, offset: int, length: int, topic_id: int, seq: int) -> tuple[int, int, int] | None:
    """node_len, tag_len and data_len of the whole, valid, live frame of this record; None when it is not there.

    As `verify` of buffer[offset:offset + length], for reads, which go through thousands: a field is looked at once.
    """
    end = offset + length - _TAIL.size
    if length < OVERHEAD or end + _TAIL.size > len(buffer):
        return None
    frame_len, _, stored_id, stored_seq, _, node_len, tag_len, data_len = HEADER.unpack_from(buffer, offset)
    stored, delete_byte = _TAIL.unpack_from(buffer, end)
    if (
        checksum(APPEND + buffer[offset + 4 : end]) != stored
        or frame_len != length - 4
        or stored_seq != seq
        or stored_id != topic_id
        or delete_byte != LIVE
    ):
        return None
    return node_len, tag_len, data_len


def decode(buffer: bytes | memoryview, offset: int = 0) -> SegmentFrame:
    """The frame at `offset`, verified. Raises FrameError saying what is wrong with it."""
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
