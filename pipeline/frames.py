"""From the bytes of a segment's .data to columns: every frame verified, deleted ones dropped. Pure.

The grid of a frame stands in `storage.format.segment_frame`. Here it is read by columns: the lengths are hopped over
(runs of one size at once), headers and ends are gathered with numpy, and only the checksum is a call a frame.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, repeat
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from storage.format import APPEND, FIXED_LEN, LENGTH, LIVE, binary_value, checksum_bytes, is_binary, segment_frame

Array: TypeAlias = "np.ndarray[Any, Any]"

HAS_TAG, HAS_NODE, BINARY = 1, 2, 16
_TAIL_SIZE = segment_frame.OVERHEAD - segment_frame.HEADER_SIZE
_length = LENGTH.unpack_from
_HEADER = np.dtype(
    {
        "names": ["length", "flags", "topic_id", "seq", "ts", "node", "tag", "data"],
        "formats": ["<u4", "u1", "<u8", "<u8", "<u8", "<u2", "<u2", "<u4"],
    }
)
_TAIL = np.dtype({"names": ["sum", "deleted"], "formats": ["<u8", "u1"]})
#: A frame's own limit: what the WAL takes at most, with room. Nothing longer is believed.
MAX_FRAME_BYTES = 1 << 30


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


def whole_frames(data: bytes | bytearray) -> tuple[Array, int, FrameDamaged | None]:
    """Where the whole frames at the front of `data` begin, and where the last of them ends: behind it is the beginning
    of another one, or a length that no frame has, which is given, too. (It may have been come upon by a wrong length
    before it; then that one is to be told of.)
    """
    at, last = 0, len(data) - segment_frame.OVERHEAD
    parts: list[Array] = [np.empty(0, np.int64)]
    damage: FrameDamaged | None = None
    while at <= last:
        size = _length(data, at)[0] + LENGTH.size
        if not segment_frame.OVERHEAD <= size <= MAX_FRAME_BYTES:
            damage = FrameDamaged(at, f"frame_len is {size - LENGTH.size}")
            break
        if at + size > len(data):
            break
        if (run := _equal_frames(data, at, size)) > 1:
            parts.append(at + size * np.arange(run, dtype=np.int64))
            at += size * run
        else:
            hops, at = _hops(data, at)
            parts.append(hops)
    return np.concatenate(parts), at, damage


#: So many frames are hopped over before a run of one size is looked for again.
_HOPS = 256


def _hops(data: bytes | bytearray, at: int) -> tuple[Array, int]:
    """Where the next whole frames begin, some `_HOPS` of them, and where the last of them ends."""
    begins: list[int] = []
    add, total, last = begins.append, len(data), len(data) - segment_frame.OVERHEAD
    for _ in repeat(None, _HOPS):
        if at > last:
            break
        end = at + _length(data, at)[0] + 4
        if end > total or end - at < segment_frame.OVERHEAD:
            break  # if there can be no such frame, that is found in the next round
        add(at)
        at = end
    return np.array(begins, np.int64), at


#: So many of one size at least, or it is not worth looking.
_MIN_EQUAL = 8


def _equal_frames(data: bytes | bytearray, at: int, size: int) -> int:
    """How many whole frames of this size lie one behind the other from `at` on, by their lengths."""
    last, total = at + (_MIN_EQUAL - 1) * size, len(data)
    if last + size > total or data[last : last + 4] != data[at : at + 4]:
        return 1
    count = (total - at) // size
    heads = np.frombuffer(data, np.uint8, count * size, at).reshape(count, size)[:, :4]
    same = (heads == heads[0]).all(axis=1)
    return count if same.all() else int(same.argmin())


def decode(data: bytes, topic_id: int, after_seq: int, end_seq: int) -> tuple[Frames, int, int]:
    """(live frames, bytes they took of `data`, seq of the last frame seen) of a log whose seqs go on behind
    `after_seq` and end before `end_seq`.

    Raises FrameDamaged for the first frame that is not what was written, or not of this log and place.
    """
    starts, used, damage = whole_frames(data)
    if not len(starts):
        if damage is not None:
            raise damage
        empty = np.empty(0, np.int64)
        return Frames(data, empty, empty, empty, empty, empty, empty, empty), 0, after_seq
    heads = gathered(data, starts, _HEADER)
    sizes = heads["length"].astype(np.int64) + 4
    lengths = FIXED_LEN + heads["node"].astype(np.int64) + heads["tag"] + heads["data"]
    ends = starts + sizes - _TAIL_SIZE
    _refuse(starts, lengths + 4 != sizes, "frame_len does not fit the lengths in the header")
    tails = gathered(data, ends, _TAIL)
    _refuse(starts, tails["sum"] != _checksums(data, starts, ends), "checksum mismatch")
    deleted = tails["deleted"]
    _refuse(
        starts, (deleted != LIVE) & (deleted != segment_frame.DELETED), "the delete byte is neither live nor deleted"
    )
    _refuse(starts, heads["topic_id"] != topic_id, "the frame is of another log")
    seqs = heads["seq"].astype(np.int64)
    before = np.concatenate((np.array([after_seq], np.int64), seqs[:-1]))
    _refuse(starts, (seqs <= before) | (seqs >= end_seq), "the frame's seq does not belong there")
    nodes = starts + segment_frame.HEADER_SIZE
    tags = nodes + heads["node"]
    if damage is not None:
        raise damage
    stamps, flags = heads["ts"].astype(np.int64), heads["flags"]
    frames = Frames(data, seqs, stamps, flags, nodes, tags, tags + heads["tag"], ends)
    live = deleted == LIVE
    return (frames if live.all() else frames.take(live)), used, int(seqs[-1])


def gathered(data: bytes | bytearray, offsets: Array, kind: np.dtype[Any]) -> Array:
    """What stands at each of these places, all of them inside the data."""
    # Seen as a value at every byte, so that one `take` copies those that are meant, each as a whole.
    everywhere = np.ndarray((len(data) - kind.itemsize + 1,), f"V{kind.itemsize}", data, strides=(1,))
    return everywhere[offsets].view(kind)


def _checksums(data: bytes, starts: Array, ends: Array) -> Array:
    # What is summed is the type byte and the frame behind its length: the last byte of the length, which the lengths
    # in the header give again, makes room for it, so that nothing is put together a frame.
    room = bytearray(data)
    begins = starts + 3
    np.frombuffer(room, np.uint8)[begins] = APPEND[0]
    widths = ends - begins
    order = np.argsort(widths.astype(np.uint16) if widths.max() < 1 << 16 else widths, kind="stable")
    sorted_widths = widths[order]
    narrow = int(sorted_widths.searchsorted(_WIDE, "right"))
    borders = [0, *(np.flatnonzero(np.diff(sorted_widths[:narrow])) + 1).tolist(), narrow]
    if len(borders) * _MIN_UNIFORM > narrow:
        narrow, borders = 0, []
    sums = np.empty(len(order), ">u8")  # digests are big-endian, whatever the machine is
    for begin, end in pairwise(borders):
        # Frames of one width are taken out without a slice each; some at a time, which is kinder to the caches.
        for at in range(begin, end, _HOPS):
            these = order[at : min(at + _HOPS, end)]
            covered = gathered(room, begins[these], np.dtype(f"V{sorted_widths[begin]}")).tolist()
            sums[these] = np.frombuffer(b"".join(map(checksum_bytes, covered)), ">u8")
    others = order[narrow:]
    slices = map(slice, begins[others].tolist(), ends[others].tolist())
    digests = b"".join(map(checksum_bytes, map(memoryview(room).__getitem__, slices)))
    sums[others] = np.frombuffer(digests, ">u8")
    return sums


#: So many frames of one width, on average, and it pays to sort them by width.
_MIN_UNIFORM = 16
#: Above, a copy of a frame costs more than the object that spares it.
_WIDE = 4096


def _refuse(starts: Array, wrong: Array, what: str) -> None:
    if wrong.any():
        raise FrameDamaged(int(starts[int(wrong.argmax())]), what)


def pieces(data: bytes | bytearray, starts: Array, ends: Array) -> Iterator[bytes]:
    """data[start:end] for each."""
    return map(bytes(data).__getitem__, map(slice, starts.tolist(), ends.tolist()))


def value_of_binary(body: bytes) -> bytes | None:
    """The bytes of a record of raw bytes."""
    assert is_binary(body)
    return binary_value(body)
