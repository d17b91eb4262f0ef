"""Reads one WAL file as a stream of verified frames, and says where they end and why.

No file is read whole; a length is believed only when the rest of the file can hold it. Recovery,
`dump` and `verify` all read through here.

Source: docs/reference/format.md#frames, docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec

import kernel
from kernel import Columns
from storage.format import LENGTH, FrameType, control, wal_frame
from storage.platform import File

CHUNK_BYTES = 4 << 20
#: A FrameStream reads this much at a time: what was just read is then still in the processor's cache.
READ_BYTES = 1 << 20
_SYNC_POINT_SIGNATURE = struct.pack("<BBQQ", FrameType.SYNC_POINT, 0, 0, 0)
_SYNC_POINT_MAX = 256


class Chunk(NamedTuple):
    """Consecutive verified frames and the bytes they lie in; `base` is the file offset of bytes[0]."""

    base: int
    bytes: bytes
    frames: Columns


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
            frames, at, reason = kernel.scan(data)
            self.end = base + at
            if frames:
                yield Chunk(base, data, frames)
            if reason not in ("", "short"):
                self.reason = reason
                return
            pending = data[at:]
            want = self._chunk_bytes
            if len(pending) >= wal_frame.OVERHEAD:
                # The next frame's length fits its header; is there that much file? Only then is it read.
                next_size = wal_frame.HEADER.unpack_from(pending)[0] + 4
                if base + at + next_size > self.size:
                    self.reason = "overrun"
                    return
                want = max(want, next_size - len(pending))

    def chunks_ahead(self) -> Iterator[Chunk]:
        """The same, each read and verified in a thread while the previous one is processed. `end` and `reason` are
        valid only once it is exhausted.
        """
        chunks = self.chunks()
        with ThreadPoolExecutor(1, thread_name_prefix="storage-scan") as pool:
            coming = pool.submit(next, chunks, None)
            while (chunk := coming.result()) is not None:
                coming = pool.submit(next, chunks, None)
                yield chunk


def find_sync_point(file: File, number: int, start: int) -> control.SyncPoint | None:
    """The last SyncPoint at or after `start` that is valid, belongs to this file, and is at the offset that it names.

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
        # Most of a prepared file is zeros, and a search of zeros for one byte is sixty times as fast.
        at = data.find(_SYNC_POINT_SIGNATURE, 4) if FrameType.SYNC_POINT in data else -1
        while at >= 0:
            if len(data) - at < _SYNC_POINT_MAX and offset < size:
                break  # the chunk's end might cut it: it comes again with the next chunk
            point = _sync_point_at(data, at - 4, base, number)
            if point is not None:
                found = point
            at = data.find(_SYNC_POINT_SIGNATURE, at + 1)
        carried = data[-_SYNC_POINT_MAX - LENGTH.size :]  # a candidate is found by the bytes after its length
    return found


def _sync_point_at(data: bytes, at: int, base: int, number: int) -> control.SyncPoint | None:
    frames = kernel.scan(data, start=at, stop=min(len(data), at + _SYNC_POINT_MAX), max_frames=1).columns
    if not frames:
        return None
    try:
        point = control.decode_control(FrameType.SYNC_POINT, kernel.cut(data, frames, kernel.Part.BODY)[0])
    except msgspec.DecodeError:
        return None
    return point if point.file == number and point.at == base + at else None
