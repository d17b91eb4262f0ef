"""The Append frames of first copies, made from what their originals' frames hold behind the header. Pure.

A copy has another topic, seq and time than its original, another class perhaps, and has been copied once; lengths,
node, tag and body are the same bytes. So no body is looked at.

Source: docs/reference/format.md#frames.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from storage.format.blocks import put, split_block, u64s
from storage.format.wal_frame import CHECKSUM, HEADER, HEADER_SIZE, HOP_SHIFT, LENGTH, MORE
from storage.log.encode import BINARY, DURABLE, NODE, TAG, WriteHeader
from storage.log.framing import Frames, framed
from storage.records.batches import AppendedRecords
from storage.records.labelled import LENGTHS

# Where in an Append frame these fields are.
_FLAGS_AT, _SEQ_AT = 5, 14
#: What of the header a copy does not share with its original.
_OWN = HEADER_SIZE - LENGTHS.size
_CACHED = BINARY | NODE | TAG


def encode_copies(
    contents: Sequence[bytes], flags: bytes, tags: Sequence[bytes], payloads: array[int], head: WriteHeader
) -> tuple[Frames, AppendedRecords]:
    """The frames, of which each is followed by another one of the batch, and what the index needs.

    `contents`: of each original what `Labelled.contents` says; `flags`: those of its frame; `tags`: none is empty.
    """
    count, first_seq = len(contents), head.first_seq
    of_all = MORE | (DURABLE if head.durable else 0) | 1 << HOP_SHIFT
    opening = HEADER.pack(0, 1, of_all | flags[0] & _CACHED, head.topic_id, first_seq, head.ts, 0, 0, 0)[:_OWN]
    block = bytearray(opening * count)
    seqs = u64s(count).pack(*range(first_seq, first_seq + count))
    put(block, _SEQ_AT, _OWN, seqs, 8, (first_seq ^ (first_seq + count - 1)).bit_length() + 7 >> 3)
    if flags.count(flags[0]) != count:
        block[_FLAGS_AT::_OWN] = bytes([of_all | each & _CACHED for each in flags])
    around = _OWN + CHECKSUM.size
    sizes = array("I", [size + around for size in map(len, contents)])
    headers = [*split_block(block, _OWN, f"{LENGTH.size}x{_OWN - LENGTH.size}s")]
    tagged = [*zip(tags, range(first_seq, first_seq + count), strict=True)]
    return framed(headers, [contents], b"", sizes), AppendedRecords(first_seq, head.ts, sizes, payloads, tagged)
