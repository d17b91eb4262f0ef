"""Turns the bytes of a segment's .data into columns. The kernel verifies all frames; deleted ones are dropped. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import kernel
from kernel.rows import ROW_SIZE
from storage.format import LIVE, segment_frame

Array: TypeAlias = "np.ndarray[Any, Any]"

HAS_TAG, HAS_NODE, BINARY = 1, 2, 16
#: A row of `kernel.Columns`.
_ROW = np.dtype(
    {
        "names": ["offset", "seq", "ts", "data_len", "node_len", "tag_len", "flags", "delete_byte", "header_len"],
        "formats": ["u8", "u8", "u8", "u4", "u2", "u2", "u1", "u1", "u1"],
        "offsets": [0, 16, 24, 36, 40, 42, 45, 46, 47],
        "itemsize": ROW_SIZE,
    }
)


class FrameDamaged(ValueError):
    """The frame at `offset` in the given bytes is damaged."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(what)
        self.offset = offset
        self.what = what


class Frames(NamedTuple):
    """Verified live frames in `data`, in seq order: the offsets of node, tag and body, and the fields."""

    data: bytes | bytearray
    seqs: Array
    stamps: Array
    flags: Array
    nodes: Array
    tags: Array
    bodies: Array
    ends: Array

    def __len__(self) -> int:
        return len(self.seqs)

    def take(self, chosen: Array) -> Frames:
        """The frames that `chosen` (a mask, or indexes) selects."""
        return Frames(self.data, *(column[chosen] for column in self[1:]))

    def within(self, start: int, end: int) -> Frames:
        """The frames with start <= seq < end."""
        seqs = self.seqs
        if not len(seqs) or (seqs[0] >= start and seqs[-1] < end):
            return self
        return self.take((seqs >= start) & (seqs < end))

    def without(self, dead: bytes, first_seq: int) -> Frames:
        """The frames whose bit in `dead` (little-endian, from first_seq on) is not set."""
        if not dead or not len(self.seqs):
            return self
        gone = np.unpackbits(np.frombuffer(dead, np.uint8), bitorder="little")
        return self.take(gone[self.seqs - first_seq] == 0)


def decode(data: bytes, topic_id: int, after_seq: int, end_seq: int) -> tuple[Frames, int, int]:
    """Decode the frames of a log with seqs after `after_seq` and before `end_seq`. An incomplete frame at the end is
    left.

    Returns (live frames, consumed bytes of `data`, seq of the last frame). Raises FrameDamaged for the first frame that
    is damaged, or of another log or position.
    """
    columns, used, reason = kernel.scan(data, kernel.Kind.SEGMENT, topic_id=topic_id)
    rows = np.frombuffer(columns.rows, _ROW)
    seqs = rows["seq"].astype(np.int64)
    before = np.concatenate((np.array([after_seq], np.int64), seqs))[:-1]
    if (wrong := (seqs <= before) | (seqs >= end_seq)).any():
        raise FrameDamaged(int(rows["offset"][wrong.argmax()]), "the seq of the frame is wrong here")
    if reason not in ("", "short"):  # the next bytes may complete a frame
        raise FrameDamaged(used, segment_frame.WRONG[reason])
    nodes = rows["offset"].astype(np.int64) + rows["header_len"]
    tags = nodes + rows["node_len"]
    bodies = tags + rows["tag_len"]
    frames = Frames(
        data, seqs, rows["ts"].astype(np.int64), rows["flags"], nodes, tags, bodies, bodies + rows["data_len"]
    )
    live = rows["delete_byte"] == LIVE
    return (frames if live.all() else frames.take(live)), used, int(seqs[-1]) if len(seqs) else after_seq


def gathered(data: bytes | bytearray, offsets: Array, kind: np.dtype[Any]) -> Array:
    """The values at these offsets, which must be within the data."""
    # A view with a value at each byte, so that one `take` copies the requested ones.
    everywhere = np.ndarray((len(data) - kind.itemsize + 1,), f"V{kind.itemsize}", data, strides=(1,))
    return everywhere[offsets].view(kind)


def pieces(data: bytes | bytearray, starts: Array, ends: Array) -> Iterator[bytes]:
    """data[start:end] for each pair."""
    return map(bytes(data).__getitem__, map(slice, starts.tolist(), ends.tolist()))
