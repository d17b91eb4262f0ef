"""How many payload bytes each record of a segment has: measured from its frames, and in the .len sidecar.

The sidecar is written before a segment leaves the hot tier, and read instead of its .data afterwards. Like .tag it is
derived data: if it is missing or damaged, the whole .data is read instead. It is replaced as a whole
(`files.replace_file`), so a crash leaves the old one or the new one.

Source: docs/reference/format.md#cold-tier, docs/reference/format.md#segments, docs/reference/format.md#evictwatermark.
"""

from __future__ import annotations

import contextlib
import struct
from array import array

import kernel
from kernel import Columns as Frames
from kernel import Kind
from kernel.rows import ROW
from storage.format import FrameType, len_file, segment_frame
from storage.platform import FileSystem
from storage.segments import names
from storage.segments.chunks import Chunk, Columns, chunks
from storage.segments.files import replace_file
from storage.segments.handles import SegmentFiles
from storage.segments.names import SegmentId


def write_lengths(fs: FileSystem, root: str, id: SegmentId, data_bytes: int, payloads: array[int]) -> None:
    """Write the sidecar; durable on return. Raises OSError, SegmentBroken."""
    path = names.path(root, id, names.LEN)
    replace_file(fs, path, len_file.encode(id.first_seq, id.gen, data_bytes, payloads))
    if not fs.exists(names.path(root, id, names.IDX)):
        # The segment was removed meanwhile. Its .idx is removed before its .len, so either this or the remover sees it.
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(path)


def read_lengths(fs: FileSystem, root: str, id: SegmentId, count: int, data_bytes: int) -> array[int] | None:
    """Payload bytes of each of the segment's `count` seqs; None when there is no valid sidecar."""
    try:
        file = fs.open(names.path(root, id, names.LEN), write=False)
    except FileNotFoundError:
        return None
    with contextlib.closing(file):
        content = file.pread(len_file.HEADER_SIZE + 4 * count + 1, 0)
    payloads = len_file.decode(content, id.first_seq, id.gen, data_bytes)
    return payloads if payloads is not None and len(payloads) == count else None


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
