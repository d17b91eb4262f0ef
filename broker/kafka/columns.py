"""Maps many stored records to Kafka's form at once, by columns: a fast `mapping.to_kafka`. Pure.

Adjacent records were mostly written through the same API and have the same shape. Their first and last bytes show that,
with almost no Python per record. Records without a common shape are mapped one by one.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Sequence
from itertools import chain, repeat
from operator import itemgetter
from struct import Struct
from typing import Final, NamedTuple

from broker.kafka.mapping import BINARY_CT, FURTHER, TWO_KEYS, Headers, to_kafka
from broker.kafka.records import Columns
from storage.format import DATA, OPENING
from storage.records import FrameRecords, StoredRecord, parts_of

_PACK_LEN: Final = Struct(">I").pack
#: The end of a body whose last key is a create time between 2001 and 2286.
_STAMPED: Final = re.compile(rb',"ct":(\d{13})}')
_STAMP_BYTES: Final = len(b',"ct":1700000000000}')
_BINARY_STAMP_BYTES: Final = len(BINARY_CT) + 8


class _Part(NamedTuple):
    """Values and times of records, and the fields from which records of other APIs get their headers."""

    values: Sequence[bytes | None]
    stamps: Sequence[int]


def columns_of(records: Sequence[StoredRecord]) -> tuple[Sequence[int], Columns]:
    """The seqs of these records (at least one) and the columns that clients get. Raises msgspec.DecodeError."""
    parts = parts_of(records)
    if len(parts) == 1:
        return _part(parts[0])
    seqs, columns = zip(*map(_part, parts), strict=True)
    sizes = [*map(len, seqs)]
    keys = headers = None
    if any(each.keys is not None for each in columns):
        filled = [each.keys or (None,) * size for each, size in zip(columns, sizes, strict=True)]
        keys = [*chain.from_iterable(filled)]
    if any(each.headers is not None for each in columns):
        headers = [
            *chain.from_iterable(each.headers or ((),) * size for each, size in zip(columns, sizes, strict=True))
        ]
    values = [*chain.from_iterable(each.values for each in columns)]
    stamps = [*chain.from_iterable(each.stamps for each in columns)]
    return [*chain.from_iterable(seqs)], Columns(keys, values, headers, stamps)


def _part(records: Sequence[StoredRecord]) -> tuple[Sequence[int], Columns]:
    keys: Sequence[bytes | None] | None = None
    if isinstance(records, FrameRecords):
        columns = records.columns
        seqs: Sequence[int] = columns.seqs
        bodies, stamps, noded = records.bodies(), columns.stamps, any(columns.node_lens)
        if any(columns.tag_lens):
            keys = [tag or None for tag in records.tags()]
    else:
        seqs, stamps, nodes, tags, bodies = zip(*records, strict=True)
        noded = any(nodes)
        if any(tags):
            keys = [tag or None for tag in tags]
    found = _from_kafka(bodies) or (None if noded else _of_other_api(bodies, stamps))
    if found is not None:
        return seqs, Columns(keys, found.values, None, found.stamps)
    return seqs, _one_by_one(records)


def _one_by_one(records: Sequence[StoredRecord]) -> Columns:
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: list[Headers] = []
    stamps: list[int] = []
    for _, ts, node, tag, body in records:
        key, value, some, stamp = to_kafka(body, tag, node, ts)
        keys.append(key)
        values.append(value)
        headers.append(some)
        stamps.append(stamp)
    return Columns(keys if any(key is not None for key in keys) else None, values, headers, stamps)


def _from_kafka(bodies: Sequence[bytes]) -> _Part | None:
    """Values and create times of records without headers, all raw bytes or all JSON; None if not all are like that."""
    if bodies[0].startswith(TWO_KEYS):
        around = len(TWO_KEYS) + 4
        if not _lengths_fit(bodies, TWO_KEYS, _BINARY_STAMP_BYTES):
            return None
        if {*map(itemgetter(slice(-_BINARY_STAMP_BYTES, -8)), bodies)} != {BINARY_CT}:
            return None
        stamps = array("q", b"".join(map(itemgetter(slice(-8, None)), bodies)))
        if sys.byteorder == "little":
            stamps.byteswap()
        if min(stamps) < 0:
            return None
        return _Part([*map(itemgetter(slice(around, -_BINARY_STAMP_BYTES)), bodies)], stamps)
    ends = [*map(itemgetter(slice(-_STAMP_BYTES, None)), bodies)]
    times: dict[bytes, int] = {}
    for end in {*ends}:
        found = _STAMPED.fullmatch(end)
        if found is None:
            return None
        times[end] = int(found[1])
    if not all(map(bytes.startswith, bodies, repeat(DATA))):
        return None
    values = [*map(itemgetter(slice(len(DATA), -_STAMP_BYTES)), bodies)]
    return _Part(values, [*map(times.__getitem__, ends)])


def _of_other_api(bodies: Sequence[bytes], stamps: Sequence[int]) -> _Part | None:
    """The data of records that have only data, all raw bytes or all JSON; None if not all are like that."""
    if bodies[0].startswith(OPENING):
        around = len(OPENING) + 4
        return (
            _Part([*map(itemgetter(slice(around, None)), bodies)], stamps) if _lengths_fit(bodies, OPENING, 0) else None
        )
    text = b"".join(bodies)
    if any(map(text.__contains__, FURTHER)) or not all(map(bytes.startswith, bodies, repeat(DATA))):
        return None
    return _Part([*map(itemgetter(slice(len(DATA), -1)), bodies)], stamps)


def _lengths_fit(bodies: Sequence[bytes], opening: bytes, behind: int) -> bool:
    """Whether each map starts with `opening`, then the length of the rest without its last `behind` bytes."""
    around = len(opening) + 4
    shapes = {*zip(map(len, bodies), map(itemgetter(slice(around)), bodies), strict=True)}
    return all(
        size >= around + behind and begin == opening + _PACK_LEN(size - around - behind) for size, begin in shapes
    )
