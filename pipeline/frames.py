"""From the bytes of a segment's .data to columns: every frame verified by the kernel, deleted ones dropped. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import kernel
from kernel.columns import ROW_SIZE
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
    """The frame at `offset` of the bytes given fails its check."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(what)
        self.offset = offset
        self.what = what


class Frames(NamedTuple):
    """Verified live frames in `data`, in seq order: where node, tag and body of each lie, and their numbers."""

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
        """Those that `chosen` (a mask, or a slice's worth of indexes) says."""
        return Frames(self.data, *(column[chosen] for column in self[1:]))

    def within(self, start: int, end: int) -> Frames:
        """Those with start <= seq < end."""
        seqs = self.seqs
        if not len(seqs) or (seqs[0] >= start and seqs[-1] < end):
            return self
        return self.take((seqs >= start) & (seqs < end))

    def without(self, dead: bytes, first_seq: int) -> Frames:
        """Those whose bit, counted from first_seq on and little-endian, is not set in `dead`."""
        if not dead or not len(self.seqs):
            return self
        gone = np.unpackbits(np.frombuffer(dead, np.uint8), bitorder="little")
        return self.take(gone[self.seqs - first_seq] == 0)


def decode(data: bytes, topic_id: int, after_seq: int, end_seq: int) -> tuple[Frames, int, int]:
    """(live frames, bytes they took of `data`, seq of the last frame seen) of a log whose seqs go on behind
    `after_seq` and end before `end_seq`. What the bytes end within is not taken.

    Raises FrameDamaged for the first frame that is not what was written, or not of this log and place.
    """
    columns, used, reason = kernel.scan(data, kernel.Kind.SEGMENT, topic_id=topic_id)
    rows = np.frombuffer(columns.rows, _ROW)
    seqs = rows["seq"].astype(np.int64)
    before = np.concatenate((np.array([after_seq], np.int64), seqs))[:-1]
    if (wrong := (seqs <= before) | (seqs >= end_seq)).any():
        raise FrameDamaged(int(rows["offset"][wrong.argmax()]), "the frame's seq does not belong there")
    if reason not in ("", "short"):  # the rest of a frame may come with the next bytes
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
    """What stands at each of these places, all of them inside the data."""
    # Seen as a value at every byte, so that one `take` copies those that are meant, each as a whole.
    everywhere = np.ndarray((len(data) - kind.itemsize + 1,), f"V{kind.itemsize}", data, strides=(1,))
    return everywhere[offsets].view(kind)


def pieces(data: bytes | bytearray, starts: Array, ends: Array) -> Iterator[bytes]:
    """data[start:end] for each."""
    return map(bytes(data).__getitem__, map(slice, starts.tolist(), ends.tolist()))
