"""Records of REST v3: an object for each record in requests, a receipt for each in answers. Pure.

Requests: `{"partition_id"?, "headers"?: [{"name", "value"}], "key"?, "value"?, "timestamp"?}`. Key and value are
`{"type": "BINARY" (Base64), "JSON" or "STRING", "data"}`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from broker.content import LARGE_BYTES, check_flat, check_utf8, strict_json
from broker.proxy import formats
from broker.proxy.errors import BadRequest, Unprocessable
from broker.proxy.media import Format
from broker.proxy.records import Batch, Header, ProducedRecord, header_of, time_of
from storage import InvalidRequest

_FORMATS: Final = {"BINARY": Format.BINARY, "JSON": Format.JSON, "STRING": Format.TEXT}


class Data(msgspec.Struct):
    """A key or value in a request."""

    type: str
    data: Raw | UnsetType = UNSET


class Entry(msgspec.Struct):
    """A record in a request."""

    partition_id: int | None = None
    headers: list[Header] | None = None
    key: Data | None = None
    value: Data | None = None
    timestamp: int | str | None = None
    id: str | None = None


class _Entries(msgspec.Struct):
    entries: list[Entry]


_entry = msgspec.json.Decoder(Entry)
_entries = msgspec.json.Decoder(_Entries)


def entry_of(text: bytes) -> Entry:
    """Parse a record. Raises BadRequest."""
    return _decoded(text, _entry)


async def entries_of(text: bytes) -> list[Entry]:
    """Parse a batch of records. Raises BadRequest."""
    if len(text) <= LARGE_BYTES:
        return _decoded(text, _entries).entries
    try:
        return (await strict_json.decode(text, _entries)).entries
    except InvalidRequest as error:
        raise BadRequest(error.message) from None


def size_of(entry: Entry) -> int:
    """The bytes of key and value in the request."""
    return sum(len(each.data) for each in (entry.key, entry.value) if each is not None and each.data is not UNSET)


def _decoded(text: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    try:
        check_utf8(text)
        check_flat(text)
        return decoder.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f"Cannot deserialize a record: {error}.") from None
    except InvalidRequest as error:
        raise BadRequest(error.message) from None


def add(batch: Batch, entry: Entry) -> None:
    """Append a record to the columns. If it raises BadRequest, nothing is appended."""
    try:
        key, value = _bytes(entry.key, "key"), _bytes(entry.value, "value")
        headers = [header_of(each, "headers") for each in entry.headers or ()]
        stamp = time_of(entry.timestamp, "timestamp")
    except Unprocessable as error:
        raise BadRequest(error.message) from None
    if entry.partition_id is not None and entry.partition_id < 0:
        raise BadRequest("partition_id: must not be negative.")
    batch.keys.append(key)
    batch.values.append(value)
    batch.headers.append(headers)
    batch.stamps.append(stamp)
    batch.partitions.append(entry.partition_id)


def _bytes(data: Data | None, field: str) -> bytes | None:
    if data is None or data.data is UNSET:
        return None
    format = _FORMATS.get(data.type.upper())
    if format is None:
        raise BadRequest(f"{field}.type is {data.type!r}; expected BINARY, JSON or STRING.")
    return formats.to_bytes(format, bytes(data.data), f"{field}.data")


def receipt(entry: Entry, results: ProducedRecord, sizes: tuple[int, int], cluster: str, topic: str) -> dict[str, Any]:
    """The result of a record."""
    if results.error is not None:
        return {"error_code": results.error_code, "message": results.error}
    receipt_fields: dict[str, Any] = {
        "error_code": 200,
        "cluster_id": cluster,
        "topic_name": topic,
        "partition_id": results.partition,
        "offset": results.offset,
        "timestamp": None if results.timestamp is None else iso(results.timestamp),
    }
    for name, data, size in (("key", entry.key, sizes[0]), ("value", entry.value, sizes[1])):
        if data is not None:
            receipt_fields[name] = {"type": data.type.upper(), "size": size}
    return receipt_fields


def iso(ms: int) -> str:
    """A time in the format of v3."""
    when = datetime.fromtimestamp(ms / 1000, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
