"""Records in bodies of requests and answers. Pure.

Requests: `{"records":[{"key"?, "value"?, "partition"?, "timestamp"?, "headers"?:[{"name","value"?}]}]}`; Confluent's
proxy has neither of the last two. Answers: `{"topic","key","value","partition","offset","timestamp","headers"?}`. Times
are ms since the epoch; requests may use ISO 8601. Values of headers are Base64 in all formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from broker.content import Slices, strict_json
from broker.kafka import NO_TIME, Headers
from broker.proxy import formats
from broker.proxy.errors import Unprocessable
from broker.proxy.media import Format

MAX_TIMESTAMP_MS = 1 << 53


class Header(msgspec.Struct):
    """A header of a record in a request."""

    name: str
    value: str | None = None


class _Record(msgspec.Struct):
    key: Raw | UnsetType = UNSET
    value: Raw | UnsetType = UNSET
    partition: int | None = None
    timestamp: int | str | None = None
    headers: list[Header] | None = None


class _Body(msgspec.Struct):
    records: list[_Record]


_body = msgspec.json.Decoder(_Body)


class Batch(NamedTuple):
    """Records as columns. `stamps`: create times in ms, or NO_TIME; `partitions`: None if the key decides."""

    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers]
    stamps: list[int]
    partitions: list[int | None]

    def only(self, indexes: Sequence[int]) -> Batch:
        """The records with these indexes."""
        if len(indexes) == len(self.keys):
            return self
        return Batch(
            [self.keys[i] for i in indexes],
            [self.values[i] for i in indexes],
            [self.headers[i] for i in indexes],
            [self.stamps[i] for i in indexes],
            [self.partitions[i] for i in indexes],
        )


class Record(NamedTuple):
    """A record in Kafka's form. `ts`: ms since the epoch."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    ts: int


async def parse(body: bytes, format: Format) -> Batch:
    """Parse a body. Raises InvalidRequest (not JSON, or another shape), Unprocessable (a value not in the format)."""
    records = (await strict_json.decode(body, _body)).records
    if not records:
        raise Unprocessable("records: must not be empty.")
    batch = Batch([], [], [], [], [])
    work = Slices()
    for index, record in enumerate(records):
        await work.done(_size(record))
        where = f"records[{index}]"
        batch.keys.append(_column(format, record.key, f"{where}.key"))
        batch.values.append(_column(format, record.value, f"{where}.value"))
        batch.headers.append([header_of(each, f"{where}.headers") for each in record.headers or ()])
        batch.stamps.append(time_of(record.timestamp, f"{where}.timestamp"))
        if record.partition is not None and record.partition < 0:
            raise Unprocessable(f"{where}.partition: must not be negative.")
        batch.partitions.append(record.partition)
    return batch


def _size(record: _Record) -> int:
    """The bytes of key and value in the request."""
    return sum(len(each) for each in (record.key, record.value) if not isinstance(each, UnsetType))


def _column(format: Format, given: Raw | UnsetType, field: str) -> bytes | None:
    return None if given is UNSET else formats.to_bytes(format, bytes(given), field)


def header_of(header: Header, field: str) -> tuple[str, bytes | None]:
    """Decode a header. Raises Unprocessable, which names the field."""
    return header.name, None if header.value is None else formats.from_base64(header.value, field)


def time_of(given: int | str | None, field: str) -> int:
    """Parse a time into ms since the epoch; None: NO_TIME. Raises Unprocessable, which names the field."""
    if given is None:
        return NO_TIME
    if isinstance(given, str):
        try:
            when = datetime.fromisoformat(given)
        except ValueError:
            raise Unprocessable(f"{field}: expected ms since the epoch, or an ISO 8601 time.") from None
        given = round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)
    if not 0 <= given <= MAX_TIMESTAMP_MS:
        raise Unprocessable(f"{field}: the time is out of range.")
    return given


def as_json(record: Record, format: Format) -> bytes:
    """A record as JSON for an answer."""
    return b'{"topic":%b,"key":%b,"value":%b,"partition":%d,"offset":%d,"timestamp":%d%b}' % (
        msgspec.json.encode(record.topic),
        formats.to_json(format, record.key),
        formats.to_json(format, record.value),
        record.partition,
        record.offset,
        record.ts,
        b',"headers":%b' % formats.headers_to_json(record.headers) if record.headers else b"",
    )


def all_as_json(records: Sequence[Record], format: Format) -> bytes:
    """The body of an answer."""
    return b"[%b]" % b",".join([as_json(record, format) for record in records])


class ProducedRecord(NamedTuple):
    """The result of one record: `offset`, and the timestamp if requested; or an error."""

    partition: int | None
    offset: int | None
    error_code: int | None = None
    error: str | None = None
    timestamp: int | None = None
    #: Of a repetition with the same idempotency key: it wrote nothing; and whether the first had other records.
    deduped: bool = False
    payload_differs: bool = False


async def produced(results: Sequence[ProducedRecord]) -> bytes:
    """The answer to a write. Rendered in slices."""
    work = Slices()
    offsets: list[bytes] = []
    for each in results:
        await work.done(0)
        shown = {"partition": each.partition, "offset": each.offset, "error_code": each.error_code, "error": each.error}
        if each.deduped:
            shown["deduped"] = True
        if each.payload_differs:
            shown["payload_differs"] = True
        offsets.append(msgspec.json.encode(shown))
    return b'{"offsets":[%b],"key_schema_id":null,"value_schema_id":null}' % b",".join(offsets)
