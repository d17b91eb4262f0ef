"""Checks and parses adjacent frames by columns, with next to no Python for each record.

What is checked is what `Scan` checks frame by frame: lengths, topic_id, seq and checksum of every frame. None is
returned unless all of them are right and live, and without node and tag unless such are asked for as well: `Scan` then
finds out what the matter is, and with which of them.

Source: docs/reference/format.md#frames, docs/reference/format.md#segments.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, repeat

from storage.format.blocks import constant, field, split_block, u64s
from storage.format.checksum import checksum, checksum_bytes
from storage.format.segment_frame import APPEND, LIVE
from storage.format.segment_frame import HEADER as SEGMENT_HEADER
from storage.format.wal_frame import CHECKSUM, HEADER, HEADER_SIZE, HOP_SHIFT, LENGTH, OVERHEAD, FrameFlag, FrameType
from storage.records.contiguous import ContiguousRecords
from storage.records.labelled import Labelled

#: Below this many records, going frame by frame is faster: the setup of columns costs as much as 20 frames.
LEAST = 20
# Offsets of these fields in an Append frame of the log.
_FLAGS_AT, _ID_AT, _SEQ_AT, _LENGTHS_AT = 5, 6, 14, 30
_LABELS = int(FrameFlag.HAS_TAG | FrameFlag.HAS_NODE)
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
    labelled: bool = False,
) -> ContiguousRecords | Labelled | None:
    """The records of the Append frames of these sizes from data[at] on; `verified`: their checksums are known to be
    right. `unrouted`: only such as no router has copied. `labelled`: also such as have a node or a tag."""
    size, count = sizes[0], len(sizes)
    varied = sizes[:1] * count != sizes
    if not varied and (size < OVERHEAD or len(data) - at < size * count):
        return None
    if varied or (labelled and max(data[at + _FLAGS_AT : at + size * count : size]) & _LABELS):
        return _varied(data, at, sizes, topic_id, first_seq, verified=verified, unrouted=unrouted, labelled=labelled)
    if not constant(data, at, size, count, LENGTH.pack(size - LENGTH.size) + APPEND):
        return None
    if unrouted and max(data[at + _FLAGS_AT : at + size * count : size]) >> HOP_SHIFT:
        return None
    if not _fields_are(data, at, size, count, topic_id, first_seq):
        return None
    if not verified:
        covered = split_block(
            memoryview(data)[at : at + size * count], size, f"4x{size - LENGTH.size - CHECKSUM.size}s8x"
        )
        if _sums(covered) != field(data, at + size - CHECKSUM.size, size, count):
            return None
    return ContiguousRecords(first_seq, data, range(at + HEADER_SIZE, at + size * count, size), sizes)


def from_segment(
    data: bytes,
    at: int,
    sizes: array[int],
    topic_id: int,
    first_seq: int,
    stamps: Sequence[int],
    *,
    unrouted: bool = False,
    labelled: bool = False,
) -> ContiguousRecords | Labelled | None:
    """The records of the segment frames of these sizes, live all of them, from data[at] on; `stamps` as the index has
    them. `unrouted` and `labelled`: as of `from_log`."""
    size, count = sizes[0], len(sizes)
    end = at + size * count
    varied = sizes[:1] * count != sizes
    if not varied and (size < OVERHEAD or len(data) < end):
        return None
    if varied or (labelled and max(data[at + _FLAGS_AT - 1 : end : size]) & _LABELS):
        return _varied(data, at, sizes, topic_id, first_seq, stamps=stamps, unrouted=unrouted, labelled=labelled)
    if data[at + size - 1 : end : size] != _ALL_LIVE * count:
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
    covered = split_block(typed, size, f"3x{size - LENGTH.size - CHECKSUM.size}s9x")
    if _sums(covered) != field(data, at + size - 1 - CHECKSUM.size, size, count):
        return None
    return ContiguousRecords(first_seq, data, range(at + SEGMENT_HEADER.size, end, size), sizes, stamps)


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
    labelled: bool = False,
) -> ContiguousRecords | Labelled | None:
    """Frames of different sizes: of a segment when `stamps` are given, else of the log."""
    header, prefix, tail = (SEGMENT_HEADER, APPEND, CHECKSUM.size + 1) if stamps else (HEADER, b"", CHECKSUM.size)
    offsets = [*accumulate(sizes, initial=at)]
    if offsets[-1] > len(data) or min(sizes) < OVERHEAD:
        return None
    sum_offsets = [offset - tail for offset in offsets[1:]] if stamps or not verified else []
    if stamps and any(data[offset + CHECKSUM.size] != LIVE for offset in sum_offsets):
        return None
    del offsets[-1]
    count, width = len(sizes), header.size
    block = _join([data[offset : offset + width] for offset in offsets])
    back = HEADER.size - width  # in a segment, what follows the type is so much further in front
    if not stamps and block[LENGTH.size :: width].count(FrameType.APPEND) != count:
        return None
    flags = block[_FLAGS_AT - back :: width]
    if unrouted and max(flags) >> HOP_SHIFT:
        return None
    if not constant(block, _ID_AT - back, width, count, u64s(1).pack(topic_id)):
        return None
    if field(block, _SEQ_AT - back, width, count) != u64s(count).pack(*range(first_seq, first_seq + count)):
        return None
    if _numbers("I", block, 0, width, count).tolist() != [size - LENGTH.size for size in sizes]:
        return None
    node_lens = _numbers("H", block, _LENGTHS_AT - back, width, count)
    tag_lens = _numbers("H", block, _LENGTHS_AT - back + 2, width, count)
    contents = _numbers("I", block, _LENGTHS_AT - back + 4, width, count)
    plain = not any(node_lens) and not any(tag_lens)
    if not plain:
        if not labelled:
            return None
        parts = zip(node_lens, tag_lens, contents, strict=True)
        contents = [node_len + tag_len + data_len for node_len, tag_len, data_len in parts]
    if [*contents] != [size - OVERHEAD for size in sizes]:
        return None
    if not verified:
        begins = [offset + LENGTH.size for offset in offsets]
        covered = map(data.__getitem__, map(slice, begins, sum_offsets))
        sums = map(checksum, map(prefix.__add__, covered) if prefix else covered)
        if [*map(CHECKSUM.unpack_from, repeat(data), sum_offsets)] != [*zip(sums, strict=True)]:
            return None
    begins = [offset + width for offset in offsets]
    if plain:
        return ContiguousRecords(first_seq, data, begins, sizes, stamps)
    return Labelled(first_seq, data, begins, sizes, node_lens, tag_lens, flags, stamps)


def _numbers(code: str, block: bytes, at: int, width: int, count: int) -> array[int]:
    """The numbers of an array's type that stand in these fields."""
    found: array[int] = array(code)
    found.frombytes(field(block, at, width, count, found.itemsize))
    if sys.byteorder == "big":
        found.byteswap()
    return found
