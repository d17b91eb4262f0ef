"""What a write carries, in whichever shape its caller has it: checked and measured, hashed, made into frames. Pure.

Records one by one, records that are data alone, or bodies made already: the first are the general case, the others
are there because most of what is written is like that, and can be worked off by columns.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import TypeAlias

from storage.log.encode import (
    WriteHeader,
    columns_hash,
    encode_appends,
    encode_plain,
    payload_hash,
    plain_hash,
    stored_hash,
)
from storage.log.encode_bodies import encode_bodies
from storage.log.framing import Frames
from storage.log.validation import check_delays, check_plain, check_records, check_stored, fit, is_plain
from storage.options import Options
from storage.records.batches import AppendedRecords
from storage.records.record_columns import RecordColumns, columns_of
from storage.records.values import NewRecord, PlainBinary, PlainRecords, StoredBodies

Contents: TypeAlias = Sequence[NewRecord] | PlainRecords | RecordColumns | StoredBodies


def measured(contents: Contents, options: Options, now_ms: Callable[[], int]) -> tuple[Contents, array[int], str]:
    """The records in the shape that is quickest from here on, what each counts for, the delay field used ('' = none).

    Raises InvalidRequest, BatchTooLarge, RecordTooLarge.
    """
    if isinstance(contents, StoredBodies):
        check_stored(contents, options)
        return contents, contents.payloads, ""
    if not isinstance(contents, PlainRecords):
        assert not isinstance(contents, RecordColumns)  # made here
        if not is_plain(contents):
            columns = columns_of(contents)
            if columns is not None and fit(columns, options):
                return columns, columns.payloads, ""
            return contents, check_records(contents, options), check_delays(contents, now_ms())
        contents = PlainRecords([record.data for record in contents])
    return contents, check_plain(contents, options), ""


def hash_of(contents: Contents, payloads: array[int], node: str | None) -> bytes:
    """What tells two payloads under one idempotency key apart."""
    if isinstance(contents, PlainRecords):
        return plain_hash(contents, payloads, node.encode() if node else b"")
    if isinstance(contents, RecordColumns):
        return columns_hash(contents, node.encode() if node else b"")
    if isinstance(contents, StoredBodies):
        return stored_hash(contents, node.encode() if node else b"")
    return payload_hash(contents, node)


def encoded(
    contents: Contents, head: WriteHeader, payloads: array[int], *, more: bool, apart: bool = False
) -> tuple[Frames, AppendedRecords]:
    """The Append frames, and what the index needs. `more`: a frame of the same batch follows the last one.

    `apart`: each is a unit of its own; of plain records only.
    """
    if isinstance(contents, PlainRecords):
        binary = isinstance(contents, PlainBinary)
        return encode_plain(contents, payloads, head, more=more, binary=binary, apart=apart)
    if isinstance(contents, RecordColumns):
        node, nodes = contents.nodes_with(head.node)
        return encode_bodies(contents.stored(), head._replace(node=node), more=more, nodes=nodes)
    if isinstance(contents, StoredBodies):
        return encode_bodies(contents, head, more=more)
    return encode_appends(contents, head, payloads, more=more)
