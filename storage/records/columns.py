"""Checks and parses adjacent frames by columns, with next to no Python for each record.

It checks what `Scan` checks frame by frame: length, topic_id, seq and checksum of every frame. It returns None
unless all of them are valid and plain (no node, no tag, live). `Scan` then finds out which frame is at fault and
why. Source: architecture.md (what speed costs here); storage.md §2, §4.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, repeat

from storage.format.checksum import checksum, checksum_bytes
from storage.format.cutting import constant, cut, field, u64s
from storage.format.segment_frame import APPEND, LIVE
from storage.format.segment_frame import HEADER as SEGMENT_HEADER
from storage.format.wal_frame import CHECKSUM, HEADER, HEADER_SIZE, HOP_SHIFT, LENGTH, OVERHEAD, FrameType
from storage.records.stretch import Stretch

#: Below this many records, going frame by frame is faster: the setup of columns costs as much as 20 frames.
LEAST = 20
# Offsets of these fields in an Append frame of the log.
_FLAGS_AT, _ID_AT, _SEQ_AT, _LENGTHS_AT = 5, 6, 14, 30
_ALL_LIVE = bytes((LIVE,))
_join = b"".join


def from_log(
    data: bytes,
    at: int,
    sizes: array[int],
    topic_id: int,
    first_seq: int,
    *,
    verified: bool,
    unrouted: bool = False,
) -> Stretch | None:
    """The records of the Append frames with these sizes, from data[at] on. `verified`: their checksums are known to
    be right. `unrouted`: only records that no router has copied."""
    size, count = sizes[0], len(sizes)
    if sizes[:1] * count != sizes:
        return _varied(data, at, sizes, topic_id, first_seq, verified=verified, unrouted=unrouted)
    if size < OVERHEAD or len(data) - at < size * count:
        return None
    if not constant(data, at, size, count, LENGTH.pack(size - LENGTH.size) + APPEND):
        return None
    if unrouted and max(data[at + _FLAGS_AT : at + size * count : size]) >> HOP_SHIFT:
        return None
    if not _fields_are(data, at, size, count, topic_id, first_seq):
        return None
    if not verified:
        covered = cut(memoryview(data)[at : at + size * count], size, f"4x{size - LENGTH.size - CHECKSUM.size}s8x")
        if _sums(covered) != field(data, at + size - CHECKSUM.size, size, count):
            return None
    return Stretch(first_seq, data, range(at + HEADER_SIZE, at + size * count, size), sizes)


def from_segment(
    data: bytes,
    at: int,
    sizes: array[int],
    topic_id: int,
    first_seq: int,
    stamps: Sequence[int],
    *,
    unrouted: bool = False,
) -> Stretch | None:
    """The records of the segment frames with these sizes, all live, from data[at] on. `stamps` come from the index.
    `unrouted`: as in `from_log`."""
    size, count = sizes[0], len(sizes)
    if sizes[:1] * count != sizes:
        return _varied(data, at, sizes, topic_id, first_seq, stamps=stamps, unrouted=unrouted)
    end = at + size * count
    if size < OVERHEAD or len(data) < end or data[at + size - 1 : end : size] != _ALL_LIVE * count:
        return None
    if not constant(data, at, size, count, LENGTH.pack(size - LENGTH.size)):
        return None
    if unrouted and max(data[at + _FLAGS_AT - 1 : end : size]) >> HOP_SHIFT:
        return None
    # A segment frame lacks the type. All fields after it are where the log has them, one byte earlier.
    if not _fields_are(data, at - 1, size, count, topic_id, first_seq):
        return None
    typed = bytearray(memoryview(data)[at:end])
    typed[LENGTH.size - 1 :: size] = APPEND * count  # the type, which a segment omits, replaces a byte of the length
    covered = cut(typed, size, f"3x{size - LENGTH.size - CHECKSUM.size}s9x")
    if _sums(covered) != field(data, at + size - 1 - CHECKSUM.size, size, count):
        return None
    return Stretch(first_seq, data, range(at + SEGMENT_HEADER.size, end, size), sizes, stamps)


def _fields_are(data: bytes, at: int, size: int, count: int, topic_id: int, first_seq: int) -> bool:
    """Whether the frames of equal size from data[at] on, in the log's layout, are those of these records."""
    lengths = bytes(4) + LENGTH.pack(size - OVERHEAD)
    if not constant(data, at + _ID_AT, size, count, u64s(1).pack(topic_id)):
        return False
    if not constant(data, at + _LENGTHS_AT, size, count, lengths):
        return False
    return field(data, at + _SEQ_AT, size, count) == u64s(count).pack(*range(first_seq, first_seq + count))


def _sums(covered: Iterable[bytes]) -> bytes:
    """The checksums of these bytes, as stored."""
    sums = array("Q", _join(map(checksum_bytes, covered)))
    sums.byteswap()  # digests are big-endian on every machine
    return sums.tobytes()


def _varied(
    data: bytes,
    at: int,
    sizes: array[int],
    topic_id: int,
    first_seq: int,
    *,
    stamps: Sequence[int] = (),
    verified: bool = False,
    unrouted: bool = False,
) -> Stretch | None:
    """Frames of different sizes: of a segment when `stamps` are given, else of the log."""
    header, prefix, tail = (SEGMENT_HEADER, APPEND, CHECKSUM.size + 1) if stamps else (HEADER, b"", CHECKSUM.size)
    places = [*accumulate(sizes, initial=at)]
    if places[-1] > len(data) or min(sizes) < OVERHEAD:
        return None
    sum_places = [place - tail for place in places[1:]]
    if stamps and any(data[place + CHECKSUM.size] != LIVE for place in sum_places):
        return None
    del places[-1]
    fields = [*zip(*map(header.unpack_from, repeat(data), places), strict=True)]
    flags, ids, seqs, _, node_lens, tag_lens, data_lens = fields[-7:]
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
    return Stretch(first_seq, data, [place + header.size for place in places], sizes, stamps)
