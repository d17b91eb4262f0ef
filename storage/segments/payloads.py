"""Measures the payload bytes of the records of a segment.

Source: docs/reference/format.md#segments, docs/reference/format.md#evictwatermark.
"""

from __future__ import annotations

import struct
from array import array

import msgspec

from storage.format.record import PLAIN_OVERHEAD, FurtherKeys, payload_size
from storage.format.segment_frame import HEADER_SIZE, OVERHEAD
from storage.segments.chunks import Chunk, Columns, chunks
from storage.segments.handles import SegmentFiles

_LENGTHS = struct.Struct("<HHI")  # node_len, tag_len, data_len: the last of a frame's header
_LENGTHS_AT = HEADER_SIZE - _LENGTHS.size
_BEHIND_DATA = OVERHEAD - HEADER_SIZE


def payloads(files: SegmentFiles, entries: Columns) -> array[int]:
    """Bytes of data and meta, as they were sent, of every record; 0 where there is none.

    Frames are not verified. An impossible length in a frame is replaced by the largest that fits, so that one damaged
    record does not hide the sizes of the others. Reading that record raises the error.
    """
    found = array("I", bytes(4 * len(entries.lens)))
    for chunk in chunks(files, entries, [number for number, size in enumerate(entries.lens) if size]):
        _measure(chunk, entries, found)
    return found


def _measure(chunk: Chunk, entries: Columns, found: array[int]) -> None:
    data, base = chunk.data, chunk.base
    offsets, lens, unpack, further = entries.offsets, entries.lens, _LENGTHS.unpack_from, FurtherKeys(chunk.data)
    nearest = -1
    for number in chunk.numbers:
        at, size = offsets[number] - base, lens[number]
        node_len, tag_len, data_len = unpack(data, at + _LENGTHS_AT)
        if OVERHEAD + node_len + tag_len + data_len != size:
            data_len = max(0, size - OVERHEAD)
        end = at + size - _BEHIND_DATA
        if nearest < end - data_len:
            nearest = further.next_from(end - data_len)
        found[number] = max(0, data_len - PLAIN_OVERHEAD) if nearest >= end else _parsed(data, end - data_len, end)


def _parsed(data: bytes, begin: int, end: int) -> int:
    try:
        return payload_size(data, begin, end)
    except msgspec.DecodeError:
        return max(0, end - begin - PLAIN_OVERHEAD)
