"""Measures the payload bytes of the records of a segment.

Source: docs/reference/format.md#segments, docs/reference/format.md#evictwatermark.
"""

from __future__ import annotations

import struct
from array import array

import kernel
from kernel import Columns as Frames
from kernel import Kind
from kernel.rows import ROW
from storage.format import FrameType, segment_frame
from storage.segments.chunks import Chunk, Columns, chunks
from storage.segments.handles import SegmentFiles

_LENGTHS = struct.Struct("<HHI")  # node_len, tag_len, data_len: the last of a frame's header
_LENGTHS_AT = segment_frame.HEADER_SIZE - _LENGTHS.size


def payloads(files: SegmentFiles, entries: Columns) -> array[int]:
    """Bytes of data and meta, as they were sent, of every record; 0 where there is none.

    Frames are not verified. An impossible length in a frame is replaced by the largest that fits, so that one damaged
    record does not hide the sizes of the others. Reading that record raises the error.
    """
    found = array("I", bytes(4 * len(entries.lens)))
    for chunk in chunks(files, entries, [number for number, size in enumerate(entries.lens) if size]):
        measured = kernel.measure(chunk.data, _frames(chunk, entries)).payloads
        first, last = chunk.numbers[0], chunk.numbers[-1]
        if last - first == len(measured) - 1:
            found[first : last + 1] = measured
            continue
        for number, payload in zip(chunk.numbers, measured, strict=True):
            found[number] = payload
    return found


def _frames(chunk: Chunk, entries: Columns) -> Frames:
    frames, _, reason = kernel.scan(chunk.data, Kind.SEGMENT, verify=False)
    if not reason and len(frames) == len(chunk.numbers):
        return frames
    table = bytearray()
    for number in chunk.numbers:
        at, size = entries.offsets[number] - chunk.base, entries.lens[number]
        node_len, tag_len, data_len = _LENGTHS.unpack_from(chunk.data, at + _LENGTHS_AT)
        if segment_frame.OVERHEAD + node_len + tag_len + data_len != size:
            node_len, tag_len, data_len = 0, 0, max(0, size - segment_frame.OVERHEAD)
        table += ROW.pack(
            at, 0, 0, 0, size, data_len, node_len, tag_len, FrameType.APPEND, 0, 0, segment_frame.HEADER_SIZE
        )
    return Frames(bytes(table))
