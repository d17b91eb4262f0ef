"""Reads one WAL file as a stream: verified frames, and why and where they end.

No file is read whole; a length is believed only when the rest of the file can hold it. Recovery,
`dump` and `verify` all read through here.

Source: docs/reference/format.md#frames, docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from storage.format import control
from storage.format.checksum import checksum
from storage.format.wal_frame import CHECKSUM, FIXED_LEN, HEADER, HEADER_SIZE, LENGTH, OVERHEAD, FrameType
from storage.platform.filesystem import File

CHUNK_BYTES = 4 << 20
#: A FrameStream reads this much at a time: what was just read is then still in the processor's cache.
READ_BYTES = 1 << 20
_SYNC_POINT_SIGNATURE = struct.pack("<BBQQ", FrameType.SYNC_POINT, 0, 0, 0)
_SYNC_POINT_MAX = 256

T = TypeVar("T")


# A verified frame by reference: (start, type, flags, topic_id, seq, ts, node_len, tag_len, data_len); `start` is its
# place in the chunk's bytes, not in the file. A plain tuple: recovery makes one for every frame there is.
RawFrame: TypeAlias = tuple[int, int, int, int, int, int, int, int, int]


def frame_size(frame: RawFrame) -> int:
    """Bytes the whole frame takes in the file."""
    return OVERHEAD + frame[6] + frame[7] + frame[8]


def frame_node(frame: RawFrame, chunk: bytes) -> bytes:
    begin = frame[0] + HEADER_SIZE
    return chunk[begin : begin + frame[6]]


def frame_tag(frame: RawFrame, chunk: bytes) -> bytes:
    begin = frame[0] + HEADER_SIZE + frame[6]
    return chunk[begin : begin + frame[7]]


def frame_data(frame: RawFrame, chunk: bytes) -> bytes:
    begin = frame[0] + HEADER_SIZE + frame[6] + frame[7]
    return chunk[begin : begin + frame[8]]


class Chunk(NamedTuple):
    """Consecutive frames and the bytes they lie in; `base` is the file offset of bytes[0]."""

    base: int
    bytes: bytes
    frames: list[RawFrame]


def parse(data: bytes, start: int) -> tuple[list[RawFrame], int, str]:
    """Verified frames from `start`; where they end; and why: '' (end of data), short, zero, length or checksum."""
    frames: list[RawFrame] = []
    add = frames.append
    unpack, unpack_sum, view = HEADER.unpack_from, CHECKSUM.unpack_from, memoryview(data)
    at, size = start, len(data)
    while True:
        if size - at < OVERHEAD:
            return frames, at, "short" if at < size else ""
        length, type_, flags, topic_id, seq, ts, node_len, tag_len, data_len = unpack(data, at)
        if length != FIXED_LEN + node_len + tag_len + data_len:
            return frames, at, "zero" if length == 0 else "length"
        end = at + length - 4
        if end + 8 > size:
            return frames, at, "short"
        if checksum(view[at + 4 : end]) != unpack_sum(data, end)[0]:
            return frames, at, "checksum"
        add((at, type_, flags, topic_id, seq, ts, node_len, tag_len, data_len))
        at = end + 8


class FrameStream:
    """The frames of one file from `start` on.

    After `chunks()` is exhausted, `end` is the offset of the first byte that is not a valid frame and `reason`
    says why: '' = the file ends exactly there, else zero, length, checksum or overrun. Raises OSError as the
    disk does: an I/O error is never an invalid frame.
    """

    def __init__(self, file: File, start: int = 0, chunk_bytes: int = READ_BYTES) -> None:
        self._file = file
        self._chunk_bytes = chunk_bytes
        self.size = file.size()
        self.end = start
        self.reason = ""

    def chunks(self) -> Iterator[Chunk]:
        """Chunks with at least one frame each."""
        for base, data, frames in self.read(lambda data, _: parse(data, 0)):
            yield Chunk(base, data, frames)

    def read(self, parser: Callable[[bytes, int], tuple[list[T], int, str]]) -> Iterator[tuple[int, bytes, list[T]]]:
        """(base, bytes, what `parser` makes of them); it is given bytes and base and answers as `parse` does."""
        pending = b""
        fetched = self.end  # file offset up to which bytes are in `pending`
        want = self._chunk_bytes
        while True:
            more = self._file.pread(min(want, self.size - fetched), fetched) if fetched < self.size else b""
            if not more:
                self.reason = "overrun" if pending else ""
                if pending and not any(pending):
                    self.reason = "zero"
                return
            base = fetched - len(pending)
            data = pending + more if pending else more
            fetched += len(more)
            found, at, reason = parser(data, base)
            self.end = base + at
            if found:
                yield base, data, found
            if reason not in ("", "short"):
                self.reason = reason
                return
            pending = data[at:]
            want = self._chunk_bytes
            if len(pending) >= OVERHEAD:
                # The next frame's length fits its header; is there that much file? Only then is it read.
                next_size = HEADER.unpack_from(pending)[0] + 4
                if base + at + next_size > self.size:
                    self.reason = "overrun"
                    return
                want = max(want, next_size - len(pending))


def find_sync_point(file: File, number: int, start: int) -> control.SyncPoint | None:
    """The last SyncPoint at or after `start` that is valid, of this file, and stands where it says it does.

    Every byte offset is tried: the header of a SyncPoint is constant, so a search for it finds each candidate.
    """
    found: control.SyncPoint | None = None
    size = file.size()
    offset = start
    carried = b""
    while offset < size:
        more = file.pread(min(CHUNK_BYTES, size - offset), offset)
        if not more:
            break
        data = carried + more
        base = offset - len(carried)
        offset += len(more)
        # Zeros, of which most of a prepared file consists, are searched for one byte sixty times as fast.
        at = data.find(_SYNC_POINT_SIGNATURE, 4) if FrameType.SYNC_POINT in data else -1
        while at >= 0:
            if len(data) - at < _SYNC_POINT_MAX and offset < size:
                break  # might be cut by the chunk's end: comes again with the next one
            point = _sync_point_at(data, at - 4, base, number)
            if point is not None:
                found = point
            at = data.find(_SYNC_POINT_SIGNATURE, at + 1)
        carried = data[-_SYNC_POINT_MAX - LENGTH.size :]  # a candidate is found by what follows its length
    return found


def _sync_point_at(data: bytes, at: int, base: int, number: int) -> control.SyncPoint | None:
    frames, _, _ = parse(data[at : at + _SYNC_POINT_MAX], 0)
    if not frames:
        return None
    try:
        point = control.decode_control(FrameType.SYNC_POINT, frame_data(frames[0], data[at : at + _SYNC_POINT_MAX]))
    except msgspec.DecodeError:
        return None
    return point if point.file == number and point.at == base + at else None
