"""The .len sidecar: written before a segment leaves the hot tier, and read instead of its .data afterwards.

Like .tag it is derived data: if it is missing or damaged, the whole .data is read instead. It is put in place as a
whole (`files.replace_file`), so a crash leaves the old one or the new one.

Source: docs/reference/format.md#cold-tier.
"""

from __future__ import annotations

import contextlib
from array import array

from storage.format import len_file
from storage.platform import FileSystem
from storage.segments import names
from storage.segments.files import replace_file
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
