"""Records as JSON, a whole range of them at once: with next to no Python a record (see `render`).

A row is a few pieces: what stands in front of the last digits of the seq, these digits, the time, and the body behind
its brace; of a job its lease, too. Each kind of piece is made as one column, and all of them are joined in one go.

Source: docs/performance.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from storage.format.record import SURE_ENDS
from storage.records.contiguous import ContiguousRecords

_AT_ONCE: Final = 1000
#: The last three digits of a number that has more, and numbers that have no more.
_DIGITS: Final = [b"%03d" % low for low in range(_AT_ONCE)]
_SMALL: Final = [b"%d" % low for low in range(_AT_ONCE)]
_OBJECT: Final = frozenset(b"{")


def record_objects(found: ContiguousRecords) -> bytes | None:
    """The records as JSON objects, separated by commas; None where a body may not be shown as it is stored."""
    if not _as_stored(found):
        return None
    return _interleave([*_numbers(found.seqs), _times(found.stamps(), b',"$ts":%d,'), [*found.bodies(front=1)]])


def job_objects(found: ContiguousRecords, lease_ids: Sequence[int], deadline: int) -> bytes | None:
    """The same of jobs, each given for the first time."""
    if not _as_stored(found):
        return None
    tokens = struct.pack(f">{len(lease_ids)}Q", *lease_ids).hex(",", 8).encode().split(b",")
    times = _times(found.stamps(), b'","deadline":%d,"$ts":%%d,"deliveries":1,' % deadline)
    labels = [b',"lease_id":"lease_'] * len(tokens)
    return _interleave([*_numbers(found.seqs), labels, tokens, times, [*found.bodies(front=1)]])


def _as_stored(found: ContiguousRecords) -> bool:
    return found.column(0) <= _OBJECT and found.column(-2) <= SURE_ENDS


def _interleave(columns: Sequence[Sequence[bytes]]) -> bytes:
    """The rows one behind the other, without the comma that the first begins with."""
    width = len(columns)
    pieces = [b""] * (width * len(columns[0]))
    for number, column in enumerate(columns):
        pieces[number::width] = column
    pieces[0] = pieces[0][1:]
    return b"".join(pieces)


def _numbers(seqs: range) -> tuple[list[bytes], list[bytes]]:
    """How rows begin, up to what their seqs have in common, and the last digits of these."""
    fronts: list[bytes] = []
    digits: list[bytes] = []
    seq = seqs.start
    while seq < seqs.stop:
        thousands, low = divmod(seq, _AT_ONCE)
        count = min(_AT_ONCE - low, seqs.stop - seq)
        fronts += [b',{"$seq":%d' % thousands if thousands else b',{"$seq":'] * count
        digits += (_DIGITS if thousands else _SMALL)[low : low + count]
        seq += count
    return fronts, digits


def _times(stamps: Sequence[int], said: bytes) -> list[bytes]:
    """How the times are said."""
    texts = {ts: said % ts for ts in {*stamps}}
    if len(texts) == 1:
        return [*texts.values()] * len(stamps)
    return [*map(texts.__getitem__, stamps)]
