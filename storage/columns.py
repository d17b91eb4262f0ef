"""Frames that lie one behind the other, checked and taken apart by columns: with next to no Python a record.

What is checked is what `Scan` checks frame by frame: lengths, topic_id, seq and checksum of every frame. None is
returned unless all of them are right and plain (no node, no tag, live): `Scan` then finds out what the matter is, and
with which of them. Source: architecture.md (what speed costs here); storage.md §2, §4.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate, repeat
from typing import Any

from storage.format.checksum import checksum, checksum_bytes
from storage.format.cutting import column, cut, u64s
from storage.format.segment_frame import APPEND, LIVE
from storage.format.segment_frame import HEADER as SEGMENT_HEADER
from storage.format.wal_frame import CHECKSUM, HEADER, HEADER_SIZE, HOP_SHIFT, LENGTH, OVERHEAD, FrameType
from storage.records import StoredRecord

#: Below so many records it is quicker to go frame by frame.
LEAST = 6
# Where in an Append frame of the log these fields are.
_TYPE_AT, _FLAGS_AT, _ID_AT, _SEQ_AT, _TS_AT, _LENGTHS_AT = 4, 5, 6, 14, 22, 30
_ALL_LIVE = bytes((LIVE,))
_join = b"".join
#: As calling the type, without a call in Python.
_record: Callable[[Iterable[Any]], StoredRecord] = partial(tuple.__new__, StoredRecord)  # pyright: ignore


def from_log(
    data: bytes,
    at: int,
    sizes: Sequence[int],
    topic_id: int,
    first_seq: int,
    *,
    verified: bool,
    unrouted: bool = False,
) -> list[StoredRecord] | None:
    """The records of the Append frames of these sizes from data[at] on; `verified`: their checksums are known to be
    right. `unrouted`: only such as no router has copied."""
    size, count = sizes[0], len(sizes)
    if len({*sizes}) > 1:
        return _varied(data, at, sizes, topic_id, first_seq, verified=verified, unrouted=unrouted)
    block = data[at : at + size * count]
    if size < OVERHEAD or len(block) < size * count:
        return None
    if not _constant(block, size, 0, LENGTH.pack(size - 4) + APPEND):
        return None
    return _alike(block, size, topic_id, first_seq, verified=verified, unrouted=unrouted)


def from_segment(
    data: bytes,
    at: int,
    sizes: Sequence[int],
    topic_id: int,
    first_seq: int,
    stamps: Sequence[int],
    *,
    unrouted: bool = False,
) -> list[StoredRecord] | None:
    """The records of the segment frames of these sizes, live all of them, from data[at] on; `stamps` as the index has
    them. `unrouted`: as of `from_log`."""
    size, count = sizes[0], len(sizes)
    if len({*sizes}) > 1:
        return _varied(data, at, sizes, topic_id, first_seq, stamps=stamps, unrouted=unrouted)
    block = data[at : at + size * count]
    if size < OVERHEAD or len(block) < size * count or block[size - 1 :: size] != _ALL_LIVE * count:
        return None
    if not _constant(block, size, 0, LENGTH.pack(size - 4)):
        return None
    # Seen from one byte further back a frame is one of the log, when the last byte of its length, which has been
    # looked at, gives way to the type.
    as_log = bytearray(b"\0" + block[:-1])
    as_log[_TYPE_AT::size] = APPEND * count
    return _alike(bytes(as_log), size, topic_id, first_seq, stamps=stamps, unrouted=unrouted)


def _alike(
    block: bytes,
    size: int,
    topic_id: int,
    first_seq: int,
    *,
    stamps: Sequence[int] = (),
    verified: bool = False,
    unrouted: bool = False,
) -> list[StoredRecord] | None:
    """Frames of one size; type and frame_len have been looked at."""
    count = len(block) // size
    data_len = size - OVERHEAD
    if unrouted and max(block[_FLAGS_AT::size]) >> HOP_SHIFT:
        return None
    lengths = bytes(4) + LENGTH.pack(data_len)
    if not (_constant(block, size, _ID_AT, u64s(1).pack(topic_id)) and _constant(block, size, _LENGTHS_AT, lengths)):
        return None
    seqs = range(first_seq, first_seq + count)
    numbers = u64s(count)
    if column(block, _SEQ_AT, size) != numbers.pack(*seqs):
        return None
    if not verified:
        sums = array("Q", _join(map(checksum_bytes, cut(block, size, f"4x{size - LENGTH.size - CHECKSUM.size}s8x"))))
        sums.byteswap()  # digests are big-endian, whatever the machine is
        if sums.tobytes() != column(block, size - CHECKSUM.size, size):
            return None
    if not stamps:
        stamps = numbers.unpack(column(block, _TS_AT, size))
    bodies = cut(block, size, f"{HEADER_SIZE}x{data_len}s8x")
    return [*map(_record, zip(seqs, stamps, repeat(b""), repeat(b""), bodies, strict=False))]


def _constant(block: bytes, width: int, at: int, field: bytes) -> bool:
    """Whether each piece of `width` bytes has this field there."""
    count = len(block) // width
    return all(block[at + byte :: width] == field[byte : byte + 1] * count for byte in range(len(field)))


def _varied(
    data: bytes,
    at: int,
    sizes: Sequence[int],
    topic_id: int,
    first_seq: int,
    *,
    stamps: Sequence[int] = (),
    verified: bool = False,
    unrouted: bool = False,
) -> list[StoredRecord] | None:
    """Frames of whatever size: those of a segment when `stamps` are given, else those of the log."""
    header, prefix, tail = (SEGMENT_HEADER, APPEND, CHECKSUM.size + 1) if stamps else (HEADER, b"", CHECKSUM.size)
    places = [*accumulate(sizes, initial=at)]
    if places[-1] > len(data) or min(sizes) < OVERHEAD:
        return None
    sum_places = [place - tail for place in places[1:]]
    if stamps and any(data[place + CHECKSUM.size] != LIVE for place in sum_places):
        return None
    del places[-1]
    fields = [*zip(*map(header.unpack_from, repeat(data), places), strict=True)]
    flags, ids, seqs, found_stamps, node_lens, tag_lens, data_lens = fields[-7:]
    count = len(sizes)
    right = (
        (bool(stamps) or fields[1].count(FrameType.APPEND) == count)
        and not (unrouted and max(flags) >> HOP_SHIFT)
        and ids.count(topic_id) == count
        and node_lens.count(0) == count
        and tag_lens.count(0) == count
        and seqs == (*range(first_seq, first_seq + count),)
        and fields[0] == (*(size - LENGTH.size for size in sizes),)
        and data_lens == (*(size - OVERHEAD for size in sizes),)
    )
    if not right:
        return None
    if not verified:
        begins = [place + LENGTH.size for place in places]
        covered = map(data.__getitem__, map(slice, begins, sum_places))
        sums = map(checksum, map(prefix.__add__, covered) if prefix else covered)
        if [*map(CHECKSUM.unpack_from, repeat(data), sum_places)] != [*zip(sums, strict=True)]:
            return None
    begins = [place + header.size for place in places]
    bodies = map(data.__getitem__, map(slice, begins, sum_places))
    return [*map(_record, zip(seqs, stamps or found_stamps, repeat(b""), repeat(b""), bodies, strict=False))]
