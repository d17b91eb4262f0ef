"""One frame of the log, as the kernel reads it."""

from __future__ import annotations

from typing import NamedTuple

import kernel
from storage.format import FrameError


class Frame(NamedTuple):
    """A verified frame. `size` is its whole length in the file."""

    type: int
    flags: int
    topic_id: int
    seq: int
    ts: int
    node: bytes
    tag: bytes
    data: bytes
    size: int


def decode(buffer: bytes, offset: int = 0) -> Frame:
    """The frame at `offset`. Raises FrameError if the bytes there are not one complete valid frame."""
    found = kernel.scan(buffer, start=min(offset, len(buffer)), max_frames=1)
    if not found.columns:
        raise FrameError(found.reason or "no byte is left")
    _, topic_id, seq, ts, size, _, _, _, type_, flags, _, _ = found.columns.row(0)
    (node,), (tag,), (data,) = kernel.parts(buffer, found.columns)
    return Frame(type_, flags, topic_id, seq, ts, node, tag, data, size)
