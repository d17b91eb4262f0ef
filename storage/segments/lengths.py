"""The .len sidecar in use: written before a segment leaves the hot tier, read instead of its .data from then on.

Like .tag it is derived: one that is missing or damaged costs a read of the whole .data. Crash behaviour: put in place
whole (`files.replace_file`).

Source: docs/reference/format.md#cold-tier.
"""

from __future__ import annotations

import contextlib
from array import array

from storage.format import len_file
from storage.platform.filesystem import FileSystem
from storage.segments import names
from storage.segments.files import replace_file
from storage.segments.names import SegmentId


def write_lengths(fs: FileSystem, root: str, id: SegmentId, data_bytes: int, payloads: array[int]) -> None:
    """Have the sidecar, durably. Raises OSError, SegmentBroken."""
    path = names.path(root, id, names.LEN)
    replace_file(fs, path, len_file.encode(id.first_seq, id.gen, data_bytes, payloads))
    if not fs.exists(names.path(root, id, names.IDX)):
        # The segment was removed meanwhile: its .idx goes before its .len, so one of the two sees the other.
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(path)


def read_lengths(fs: FileSystem, root: str, id: SegmentId, count: int, data_bytes: int) -> array[int] | None:
    """Payload bytes of each of the segment's `count` seqs; None when there is no sidecar that says so."""
    try:
        file = fs.open(names.path(root, id, names.LEN), write=False)
    except FileNotFoundError:
        return None
    with contextlib.closing(file):
        content = file.pread(len_file.HEADER_SIZE + 4 * count + 1, 0)
    payloads = len_file.decode(content, id.first_seq, id.gen, data_bytes)
    return payloads if payloads is not None and len(payloads) == count else None
