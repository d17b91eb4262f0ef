"""Checks, measures, hashes and encodes the contents of a write, in each of the forms that callers use. Pure.

Source: docs/reference/format.md#frames, docs/guides/kafka.md#how-kafka-maps-to-topics.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from struct import Struct
from typing import Any, TypeAlias

import kernel
from kernel import Body
from storage.format import HOP_SHIFT, digest128, is_binary, split_body
from storage.log.encode import DURABLE, WriteHeader
from storage.log.validation import check_delays, check_plain, check_records, check_stored, fit, is_plain
from storage.options import Options
from storage.platform import Buffer
from storage.records import (
    AppendedRecords,
    NewRecord,
    PlainBinary,
    PlainRecords,
    RecordColumns,
    StoredBodies,
    columns_of,
)

Contents: TypeAlias = Sequence[NewRecord] | PlainRecords | RecordColumns | StoredBodies
#: Maps `StoredBodies.binary` to kernel.Body.
_STORED = bytes([Body.STORED_JSON] + [Body.STORED_BINARY] * 255)
_length = Struct("<I").pack


def measured(contents: Contents, options: Options, now_ms: Callable[[], int]) -> tuple[Contents, array[int], str]:
    """Returns the records in the form for encoding, their payload sizes, and the delay field used ('' = none).

    Raises InvalidRequest, BatchTooLarge, RecordTooLarge.
    """
    if isinstance(contents, StoredBodies):
        check_stored(contents, options)
        return contents, contents.payloads, ""
    if isinstance(contents, PlainRecords):
        return contents, check_plain(contents, options), ""
    assert not isinstance(contents, RecordColumns)  # made here
    if is_plain(contents):
        contents = PlainRecords([record.data for record in contents])
        return contents, check_plain(contents, options), ""
    columns = columns_of(contents)
    if columns is None or not fit(columns, options):
        check_records(contents, options)  # its error names the record and the reason
    assert columns is not None
    delayed = columns.delays is not None or columns.deliver_ats is not None
    return columns, columns.payloads, check_delays(contents, now_ms()) if delayed else ""


def hash_of(contents: Contents, payloads: array[int], node: str | None) -> bytes:
    """The hash that distinguishes payloads with the same idempotency key: over node, tag, data and meta of each record,
    as sent.

    Of stored bodies, it covers only the data of JSON, and the whole map of raw bytes.
    """
    default = node.encode() if node else b""
    nodes: Sequence[Buffer] | None = None
    tags: Sequence[Buffer] | None = None
    metas: Sequence[Buffer] | None = None
    if isinstance(contents, StoredBodies):
        datas: Sequence[Any] = [body if is_binary(body) else bytes(split_body(body).data) for body in contents.bodies]
        tags = contents.tags
    elif isinstance(contents, PlainRecords):
        datas = contents
    else:
        columns = contents if isinstance(contents, RecordColumns) else columns_of(contents)
        assert columns is not None
        datas, tags = columns.datas, columns.tags
        if columns.nodes is not None:
            nodes = [each or default for each in columns.nodes]
        if columns.metas is not None:
            metas = [b"" if meta is None else meta for meta in columns.metas]  # type: ignore[misc]
    parts = (*_fields(nodes, default), *_fields(tags), *_fields(datas), *_fields(metas))
    return digest128(b"".join(chain.from_iterable(zip(*parts, strict=False))))


def _fields(column: Sequence[Buffer] | None, default: bytes = b"") -> tuple[Iterable[Buffer], Iterable[Buffer]]:
    """The lengths, as they are hashed, and the fields of a column. Without a column, every field is `default`."""
    if column is None:
        return repeat(_length(len(default))), repeat(default)
    return map(_length, map(len, column)), column


def encoded(
    contents: Contents, head: WriteHeader, payloads: array[int], *, more: bool, apart: bool = False
) -> tuple[bytes, AppendedRecords]:
    """The Append frames, and their entry for the index. `more`: a frame of the same batch follows the last one.

    `apart`: each frame is a separate unit; only for plain records.
    """
    if isinstance(contents, StoredBodies):
        return encode_stored(contents, head, more=more)
    header = _header(head)
    if isinstance(contents, PlainRecords):
        body = Body.BINARY if isinstance(contents, PlainBinary) else Body.JSON
        datas: Any = contents
        frames, sizes = kernel.encode_appends(datas, None, None, header, body=body, more=more, apart=apart)
        return frames, AppendedRecords(head.first_seq, head.ts, sizes, payloads, [])
    columns = contents if isinstance(contents, RecordColumns) else columns_of(contents)
    assert columns is not None
    deliver_ats, metas = columns.due(head.ts), columns.metas
    datas = columns.datas
    frames, sizes = kernel.encode_appends(
        datas,
        metas,  # pyright: ignore[reportArgumentType]
        columns.tags,
        header,
        nodes=columns.nodes,
        deliver_ats=deliver_ats,
        bodies=columns.bodies,
        more=more,
    )
    delayed = [(seq, at) for seq, at in enumerate(deliver_ats, head.first_seq) if at] if deliver_ats else ()
    tagged = _tagged(columns.tags, head.first_seq)
    return frames, AppendedRecords(head.first_seq, head.ts, sizes, payloads, tagged, delayed or ())


def encode_stored(
    stored: StoredBodies,
    head: WriteHeader,
    *,
    more: bool,
    hops: int = 0,
    nodes: Sequence[bytes] | None = None,
    delayed: Sequence[tuple[int, int]] = (),
) -> tuple[bytes, AppendedRecords]:
    """The Append frames of stored bodies, like `encoded`. `hops`: how often routers have copied the records. `nodes`:
    the node of each record; None: all have the node of `head`. `delayed`: (seq, time) of delayed records."""
    frames, sizes = kernel.encode_appends(
        stored.bodies,
        None,
        stored.tags,
        _header(head, hops),
        nodes=nodes,
        body=Body.STORED_JSON,
        bodies=None if stored.binary is None else stored.binary.translate(_STORED),
        more=more,
    )
    tagged = _tagged(stored.tags, head.first_seq)
    return frames, AppendedRecords(head.first_seq, head.ts, sizes, stored.payloads, tagged, [*delayed] or ())


def _header(head: WriteHeader, hops: int = 0) -> kernel.Header:
    flags = (DURABLE if head.durable else 0) | hops << HOP_SHIFT
    return kernel.Header(head.topic_id, head.first_seq, head.ts, head.node, flags)


def _tagged(tags: Sequence[bytes] | None, first_seq: int) -> list[tuple[bytes, int]]:
    return [] if tags is None else [(tag, seq) for seq, tag in enumerate(tags, first_seq) if tag]
