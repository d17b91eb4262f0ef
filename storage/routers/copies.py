"""Turns records of a source into the frames of one batch at dest. Pure; bodies are sliced, never parsed.

Source: api.md §4; storage.md §2 (hop count).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from storage.batches import Run
from storage.encode import BINARY, Frames, Pieces, WriteHeader
from storage.format.binary import is_binary
from storage.format.checksum import checksum
from storage.format.record import DELIVER_AT, FURTHER, PLAIN_OVERHEAD, delivered_at, payload_size
from storage.format.wal_frame import CHECKSUM, HOP_SHIFT, LENGTH, MORE, REST
from storage.records import StoredRecord
from storage.routers.router import MAX_HOPS, Definition


class Copy(NamedTuple):
    """A record to be copied, as it will be at dest. `seq` is that at the source, `size` data and meta as sent."""

    seq: int
    node: bytes
    tag: bytes
    body: bytes
    hops: int
    size: int
    deliver_at: int


def copies_of(
    records: Iterable[StoredRecord], hops: Mapping[int, int], definition: Definition, *, delays: bool, keep_delays: bool
) -> list[Copy]:
    """What is to be copied of these; records that have come as far as they may are left out.

    `delays`: the source is a queue, so records may be delayed; `keep_delays`: so is dest.
    """
    keep_node, keep_tag = definition.preserve_node, definition.preserve_tag
    # A third of what calling it costs.
    make: Callable[[tuple[int, bytes, bytes, bytes, int, int, int]], Copy] = partial(
        tuple.__new__,  # pyright: ignore[reportUnknownMemberType]
        Copy,
    )
    copies: list[Copy] = []
    add = copies.append
    for seq, _, node, tag, body in records:
        count = hops.get(seq, 0) + 1
        if count > MAX_HOPS:
            continue
        deliver_at = delivered_at(body, 0, len(body)) if delays else 0
        if deliver_at and not keep_delays:
            body, deliver_at = body[: body.rfind(DELIVER_AT)] + b"}", 0
        size = len(body) - PLAIN_OVERHEAD
        if b',"' in body:  # else it is data alone for sure
            for key in FURTHER:
                if key in body:
                    size = payload_size(body, 0, len(body))
                    break
        add(make((seq, node if keep_node else b"", tag if keep_tag else b"", body, count, size, deliver_at)))
    return copies


def encode_copies(copies: Iterable[Copy], head: WriteHeader, payloads: array[int]) -> tuple[Frames, Run]:
    """The Append frames, of which each is followed by another frame of the batch, and what the index needs."""
    topic_id, first_seq, ts, durable, _ = head
    base_flags = MORE | (4 if durable else 0)
    pack, pack_length, pack_sum = REST.pack, LENGTH.pack, CHECKSUM.pack
    pieces: Pieces = []
    add = pieces.append
    sizes = array("I")
    tagged: list[tuple[bytes, int]] = []
    delayed: list[tuple[int, int]] = []
    for seq, (_, node, tag, data, hops, _, deliver_at) in enumerate(copies, first_seq):
        flags = base_flags | (1 if tag else 0) | (2 if node else 0) | hops << HOP_SHIFT
        if is_binary(data):
            flags |= BINARY
        body = b"%b%b%b%b" % (pack(1, flags, topic_id, seq, ts, len(node), len(tag), len(data)), node, tag, data)
        size = len(body) + 8
        add(pack_length(size))
        add(body)
        add(pack_sum(checksum(body)))
        sizes.append(size + 4)
        if tag:
            tagged.append((tag, seq))
        if deliver_at:
            delayed.append((seq, deliver_at))
    return Frames(pieces, sum(sizes)), Run(first_seq, ts, sizes, payloads, tagged, delayed or ())
