"""The Append frames of records whose bodies are made already, by columns. Pure.

The same frames as `encode_appends` makes, with next to no Python a record: all headers are one block, in which what
differs from record to record is set by strided slices.

Source: docs/reference/format.md#frames, docs/guides/kafka.md#how-kafka-maps-to-topics.
"""

from __future__ import annotations

from array import array
from functools import partial
from itertools import repeat
from operator import add

from storage.format.blocks import all_equal, put, split_block, u64s
from storage.format.wal_frame import HEADER, HOP_SHIFT, LENGTH, MORE, OVERHEAD, REST
from storage.log.encode import BINARY, DURABLE, NODE, TAG, WriteHeader
from storage.log.framing import FEW, Frames, framed, framed_each, little
from storage.records.batches import AppendedRecords
from storage.records.values import StoredBodies

# Where in an Append frame these fields are.
_FLAGS_AT, _SEQ_AT, _NODE_LEN_AT, _TAG_LEN_AT, _DATA_LEN_AT = 5, 14, 30, 32, 34
_AS_BINARY = bytes([0] + [BINARY] * 255)


def encode_bodies(
    stored: StoredBodies, head: WriteHeader, *, more: bool, hops: int = 0, nodes: list[bytes] | None = None
) -> tuple[Frames, AppendedRecords]:
    """The Append frames, and what the index needs. `more`: a frame of the same batch follows the last one. `hops`: how
    often routers have copied each of them. `nodes`: of each; None: all are from that of `head`, which else has none.
    """
    topic_id, first_seq, ts, durable, node = head
    bodies, tags = stored.bodies, stored.tags
    count = len(bodies)
    seqs_of = range(first_seq, first_seq + count)
    tagged = [] if tags is None else [each for each in zip(tags, seqs_of, strict=True) if each[0]]
    if count <= FEW:
        frames, sizes = framed_each(_few(stored, head, more=more, hops=hops))
        return frames, AppendedRecords(first_seq, ts, sizes, stored.payloads, tagged)
    data_lens = array("I", map(len, bodies))
    tag_lens = array("H", map(len, tags)) if tags is not None else None
    node_lens = array("H", map(len, nodes)) if nodes is not None else None
    sizes = _sizes(_sizes(data_lens, tag_lens, OVERHEAD + len(node)), node_lens, 0)
    flags = MORE | (DURABLE if durable else 0) | (NODE if node else 0) | hops << HOP_SHIFT
    opening = HEADER.pack(
        sizes[0] - LENGTH.size,
        1,
        flags,
        topic_id,
        first_seq,
        ts,
        node_lens[0] if node_lens else len(node),
        tag_lens[0] if tag_lens else 0,
        data_lens[0],
    )
    width = len(opening) + len(node)
    block = bytearray((opening + node) * count)
    seqs = u64s(count).pack(*range(first_seq, first_seq + count))
    put(block, _SEQ_AT, width, seqs, 8, (first_seq ^ (first_seq + count - 1)).bit_length() + 7 >> 3)
    if not all_equal(data_lens):
        put(block, _DATA_LEN_AT, width, little(data_lens), 4)
    if tag_lens is not None and not all_equal(tag_lens):
        put(block, _TAG_LEN_AT, width, little(tag_lens), 2)
    if node_lens is not None and not all_equal(node_lens):
        put(block, _NODE_LEN_AT, width, little(node_lens), 2)
    _set_flags(block, width, flags, stored, nodes)
    if not more:
        block[_FLAGS_AT - width] &= ~MORE
    appended = AppendedRecords(first_seq, ts, sizes, stored.payloads, tagged)
    headers = [*split_block(block, width, f"{LENGTH.size}x{width - LENGTH.size}s")]
    return framed(headers, [column for column in (nodes, tags, bodies) if column is not None], b"", sizes), appended


def _few(stored: StoredBodies, head: WriteHeader, *, more: bool, hops: int) -> list[bytes]:
    """Of each frame what its checksum covers, made one by one."""
    topic_id, seq, ts, durable, node = head
    flags = MORE | (DURABLE if durable else 0) | (NODE if node else 0) | hops << HOP_SHIFT
    tags = stored.tags if stored.tags is not None else repeat(b"")
    binary = stored.binary if stored.binary is not None else repeat(0)
    last_seq = seq + len(stored) - 1
    made: list[bytes] = []
    for body, tag, is_binary in zip(stored.bodies, tags, binary, strict=False):
        if seq == last_seq and not more:
            flags &= ~MORE
        own = flags | (TAG if tag else 0) | (BINARY if is_binary else 0)
        front = REST.pack(1, own, topic_id, seq, ts, len(node), len(tag), len(body))
        made.append(b"%b%b%b%b" % (front, node, tag, body))
        seq += 1
    return made


def _sizes(data_lens: array[int], tag_lens: array[int] | None, fixed: int) -> array[int]:
    """The sums."""
    if tag_lens is not None and all_equal(tag_lens):
        fixed, tag_lens = fixed + tag_lens[0], None
    if tag_lens is not None:
        return array("I", map(partial(add, fixed), map(add, data_lens, tag_lens)))
    if all_equal(data_lens):
        return array("I", [data_lens[0] + fixed]) * len(data_lens)
    return array("I", [each + fixed for each in data_lens])


def _set_flags(block: bytearray, width: int, flags: int, stored: StoredBodies, nodes: list[bytes] | None) -> None:
    """Of every frame, as if all had a next one."""
    tags, binary = stored.tags, stored.binary
    tagged = bytes(map(bool, tags)) if tags is not None else b""
    marked = binary.translate(_AS_BINARY) if binary is not None and any(binary) else b""
    named = bytes(map(bool, nodes)) if nodes is not None else b""
    if not tagged and not marked and not named:
        return
    set_bits = int.from_bytes(tagged, "big") * TAG | int.from_bytes(marked, "big") | int.from_bytes(named, "big") * NODE
    set_bits |= int.from_bytes(bytes([flags]) * len(stored), "big")
    block[_FLAGS_AT::width] = set_bits.to_bytes(len(stored), "big")
