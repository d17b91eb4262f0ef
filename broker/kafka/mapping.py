"""Converts between the records of Kafka clients and stored records. Pure.

A record whose value is valid JSON text, and whose key is missing or can be a tag, is stored as a JSON record with the
value as its data. The additional fields `ct` (create time, ms) and `h` ([[name, base64 or null], …]) are for Kafka
clients; headers in UTF-8 are stored as its meta, too. Any other record is stored as raw bytes, with the flag `binary`:

    {"data":VALUE,"meta":{…},"ct":1700000000000,"h":[["name","dmFsdWU="]]}
    {v: VALUE or null, ct: …, k: KEY, h: [[name, bytes or null], …]}          (MessagePack)

A consumer gets exactly the bytes that were produced. This includes dead letters: after their own headers, they have
headers with their origin, from the meta. A key that can be a tag is stored as the tag, also for raw bytes; any other
key is stored in `k`. The records of most batches have the same shape, which columns show with almost no Python per
record.

Source: docs/guides/kafka.md#how-kafka-maps-to-topics.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from struct import Struct
from typing import Any, Final, TypeAlias

import msgspec

import kernel
from broker.content import check_flat
from broker.kafka.records import Columns
from storage import InvalidRequest
from storage.format import CT, DATA, DELIVER_AT, MARK, META, H, data_end, is_binary, payload_sizes
from storage.queues import PREFIX
from storage.records import FrameRecords, StoredBodies, StoredRecord, parts_of

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
#: key, value, headers, create time in ms.
KafkaRecord: TypeAlias = tuple[bytes | None, bytes | None, Headers, int]

#: The longest tag. A longer key is stored as a key.
MAX_TAG_BYTES: Final = 256
#: Headers that exceed the largest meta of a client are not copied to the meta.
MAX_META_BYTES: Final = 16 * 1024
MAX_META_KEYS: Final = 64
#: No create time.
NO_TIME: Final = -1
_FEW: Final = 4

#: The texts before the fields after `data`. They may also occur within the data.
FURTHER: Final = (META, DELIVER_AT, CT, H)
_SPACE: Final = b" \t\r\n"
#: The bytes that JSON text can begin with, without spaces.
_FIRST: Final = frozenset(bytes((code,)) for code in b'{["-0123456789tfn')
_OPENINGS: Final = _FIRST | frozenset(bytes((code,)) for code in _SPACE)

_PACK_LEN: Final = Struct(">I").pack
_TIME: Final = Struct(">q")
#: The start of {v: bytes, ct: int64}, the form of most records of raw bytes.
TWO_KEYS: Final = b"\x82" + MARK + b"\xc6"
BINARY_CT: Final = b"\xa2ct\xd3"
_NO_VALUE: Final = MARK + b"\xc0"
_ORIGIN: Final = PREFIX.encode()
_join: Final = b"".join


class _Object(msgspec.Struct):
    """The fields of a stored JSON object."""

    data: msgspec.Raw
    meta: msgspec.Raw = msgspec.Raw()
    ct: int | None = None
    h: list[tuple[str, bytes | None]] | None = None


class _Map(msgspec.Struct):
    """The fields of a stored MessagePack map."""

    v: bytes | None = None
    k: bytes | None = None
    ct: int | None = None
    h: list[tuple[str, bytes | None]] | None = None
    meta: str = ""


_raw: Final[msgspec.json.Decoder[msgspec.Raw]] = msgspec.json.Decoder(msgspec.Raw)
_raws: Final[msgspec.json.Decoder[list[msgspec.Raw]]] = msgspec.json.Decoder(list[msgspec.Raw])
_object: Final = msgspec.json.Decoder(_Object)
_map: Final = msgspec.msgpack.Decoder(_Map)
_any: Final = msgspec.json.Decoder()
_json: Final = msgspec.json.Encoder().encode
_msgpack: Final = msgspec.msgpack.Encoder().encode


class _Cached(dict[int, bytes]):
    """Parts of bodies, by number: create times and lengths in a batch take few different values."""

    def __init__(self, make: Callable[[int], bytes]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: int) -> bytes:
        made = self[key] = self._make(key)
        return made


# -- to the store ----------------------------------------------------------------------------------------------------


def to_stored(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Headers] | None,
    stamps: Sequence[int],
) -> StoredBodies:
    """The bodies and tags of records, which are given as columns of one length. `headers` None: no record has headers.

    `stamps`: create times in ms. NO_TIME is not stored: the time of such a record is its commit time.
    """
    # A few records are faster one by one.
    tags = None if len(values) < _FEW else _all_tags(keys)
    if tags is not None and (headers is None or not any(headers)) and None not in values:
        given: Sequence[bytes] = values  # pyright: ignore[reportAssignmentType]
        if none_json(given):
            openings = map(_Cached(_opening).__getitem__, map(len, given))
            bodies = [*map(_join, zip(openings, given, map(_Cached(_binary_end).__getitem__, stamps), strict=False))]
            return StoredBodies(bodies, tags or None, b"\1" * len(bodies))
        if all_json(given):
            ends = map(_Cached(_json_end).__getitem__, stamps)
            bodies = [*map(_join, zip(repeat(DATA), given, ends, strict=False))]
            return StoredBodies(bodies, tags or None)
    return _one_by_one(keys, values, repeat(()) if headers is None else headers, stamps)


def concatenated(parts: Sequence[StoredBodies]) -> StoredBodies:
    """The records of all parts, of which there is at least one, in their order."""
    if len(parts) == 1:
        return parts[0]
    bodies = [body for part in parts for body in part.bodies]
    tags = binary = None
    if any(part.tags is not None for part in parts):
        tags = [tag for part in parts for tag in (part.tags or repeat(b"", len(part)))]
    if any(part.binary is not None for part in parts):
        binary = b"".join([part.binary or bytes(len(part)) for part in parts])
    payloads: array[int] = parts[0].payloads[:]
    for part in parts[1:]:
        payloads.extend(part.payloads)
    return StoredBodies(bodies, tags, binary, payloads)


def _one_by_one(
    keys: Sequence[bytes | None], values: Sequence[bytes | None], headers: Iterable[Headers], stamps: Sequence[int]
) -> StoredBodies:
    bodies: list[bytes] = []
    tags: list[bytes] = []
    binary = bytearray()
    for key, value, some, stamp in zip(keys, values, headers, stamps, strict=False):
        tag = key if key is not None and can_be_tag(key) else b""
        as_json = value is not None and (key is None or bool(tag)) and is_json(value)
        if as_json and value is not None:
            bodies.append(_json_body(value, _meta_of(some) if some else b"", some, stamp))
        else:
            bodies.append(_binary_body(None if tag else key, value, some, stamp))
        tags.append(tag)
        binary.append(not as_json)
    payloads = payload_sizes(bodies)
    return StoredBodies(bodies, tags if any(tags) else None, bytes(binary) if any(binary) else None, payloads)


def _opening(size: int) -> bytes:
    return TWO_KEYS + _PACK_LEN(size)


def _binary_end(stamp: int) -> bytes:
    return BINARY_CT + _TIME.pack(stamp)


def _json_end(stamp: int) -> bytes:
    return b"}" if stamp == NO_TIME else b',"ct":%d}' % stamp


def _json_body(value: bytes, meta: bytes, headers: Headers, stamp: int) -> bytes:
    return _join(
        (
            DATA,
            value,
            META + meta if meta else b"",
            b"" if stamp == NO_TIME else b"%b%d" % (CT, stamp),
            H + _json(headers) if headers else b"",
            b"}",
        )
    )


def _binary_body(key: bytes | None, value: bytes | None, headers: Headers, stamp: int) -> bytes:
    count = 2 + (key is not None) + bool(headers)
    return _join(
        (
            bytes((0x80 | count,)),
            _NO_VALUE if value is None else b"%b\xc6%b%b" % (MARK, _PACK_LEN(len(value)), value),
            _binary_end(stamp),
            b"" if key is None else b"\xa1k" + _msgpack(key),
            b"\xa1h" + _msgpack(headers) if headers else b"",
        )
    )


def _meta_of(headers: Headers) -> bytes:
    """The text headers as a meta for HTTP readers; b"" if there are none, or too many for a meta."""
    texts: dict[str, str] = {}
    for name, value in headers:
        if value is not None:
            try:
                texts[name] = value.decode()
            except UnicodeDecodeError:
                continue
    if not texts or len(texts) > MAX_META_KEYS:
        return b""
    meta = _json(texts)
    return meta if len(meta) <= MAX_META_BYTES else b""


def can_be_tag(key: bytes) -> bool:
    """Whether a key is 1 to 256 bytes of UTF-8."""
    if not 0 < len(key) <= MAX_TAG_BYTES:
        return False
    if key.isascii():
        return True
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def _all_tags(keys: Sequence[bytes | None]) -> list[bytes] | None:
    """The keys as tags, if all can be tags. Empty: no record has a key; None: some keys cannot be tags."""
    if keys.count(None) == len(keys):
        return []
    if None in keys:
        return None
    given: list[bytes] = [*keys]  # pyright: ignore[reportAssignmentType]
    sizes = {*map(len, given)}
    if min(sizes) < 1 or max(sizes) > MAX_TAG_BYTES:
        return None
    return given if all(map(bytes.isascii, given)) or all(map(can_be_tag, given)) else None


# -- is it JSON? -----------------------------------------------------------------------------------------------------


def is_json(value: bytes) -> bool:
    """Whether a value is valid JSON text (RFC 8259) within the API's nesting limit."""
    if value[:1] not in _OPENINGS or (value[:1] not in _FIRST and value.lstrip(_SPACE)[:1] not in _FIRST):
        return False
    try:
        if not value.isascii():
            value.decode()
        check_flat(value)
        _raw.decode(value)
    except (UnicodeDecodeError, msgspec.DecodeError, InvalidRequest, RecursionError):
        return False
    return True


def none_json(values: Sequence[bytes]) -> bool:
    """Whether the first bytes show that none of these values is JSON text."""
    return _OPENINGS.isdisjoint({value[:1] for value in values})


def all_json(values: Sequence[bytes]) -> bool:
    """Whether all values are JSON text without surrounding space. False may also mean: not certain.

    All are decoded as one array. The sum of their lengths proves that the elements are exactly these values, and not
    parts or combinations of them: only the commas between them are left over.
    """
    if not _FIRST.issuperset({value[:1] for value in values}):
        return False
    text = b"[%b]" % b",".join(values)
    try:
        if not text.isascii():
            text.decode()
        check_flat(text)
        found = _raws.decode(text)
    except (UnicodeDecodeError, msgspec.DecodeError, InvalidRequest, RecursionError):
        return False
    return len(found) == len(values) and [*map(len, found)] == [*map(len, values)]


# -- from the store --------------------------------------------------------------------------------------------------


def columns_of(records: Sequence[StoredRecord]) -> tuple[list[int], Columns]:
    """The seqs of these records (at least one) and the columns that clients get: `to_kafka` of each. Raises
    msgspec.DecodeError."""
    parts = [part.fields() if isinstance(part, FrameRecords) else zip(*part, strict=True) for part in parts_of(records)]
    seqs, times, nodes, tags, bodies = (list(chain.from_iterable(column)) for column in zip(*parts, strict=True))
    values, stamps, odd = kernel.kafka_values(bodies, nodes, times)
    keys: list[bytes | None] | None = [tag or None for tag in tags] if odd or any(tags) else None
    none: Headers = ()
    headers: list[Headers] | None = [none for _ in values] if odd else None
    if keys is not None and headers is not None:
        for number in odd:
            mapped = to_kafka(bodies[number], tags[number], nodes[number], times[number])
            keys[number], values[number], headers[number], stamps[number] = mapped
    return seqs, Columns(keys, values, headers, stamps)


def to_kafka(body: bytes, tag: bytes, node: bytes, ts: int) -> KafkaRecord:
    """The Kafka form of a stored record: key, value, headers, time in ms.

    A record that was written through another API has its tag as key, the text of data as value, and as headers the text
    entries of its meta, and its node. Raises msgspec.DecodeError for a body in neither form.
    """
    if is_binary(body):
        return _from_binary(body, tag, node, ts)
    end = len(body) - 1
    at = body.rfind(CT, max(0, end - 26)) if body[end - 1 : end].isdigit() else -1
    digits = body[at + len(CT) : end] if at >= 0 else b""
    if digits.lstrip(b"-").isdigit():  # ct is the last field, so there are no headers and no meta
        return tag or None, body[len(DATA) : at], (), int(digits)
    if node or any(map(body.__contains__, FURTHER)):
        return _from_object(body, tag, node, ts)
    return tag or None, body[len(DATA) : end], (), ts


def _from_object(body: bytes, tag: bytes, node: bytes, ts: int) -> KafkaRecord:
    found = _object.decode(body)
    if found.ct is None and found.h is None:
        headers = _headers_of(found.meta, node)
    else:
        headers = _with_origin(found.h or (), found.meta)
    # Raw excludes surrounding spaces, but consumers get them as the producer sent them.
    end = data_end(body, bytes(found.data))
    return tag or None, body[len(DATA) : end], headers, ts if found.ct is None else found.ct


def _with_origin(headers: Headers, meta: msgspec.Raw | bytes) -> Headers:
    """The record's own headers, followed by the other entries in the meta, which a dead letter has."""
    if _ORIGIN not in bytes(meta):
        return headers
    own = {name for name, _ in headers}
    added = [each for each in _headers_of(meta, b"") if each[0].startswith(PREFIX) and each[0] not in own]
    return [*headers, *added]


def _headers_of(meta: msgspec.Raw | bytes, node: bytes) -> Headers:
    members: Any = _any.decode(meta) if len(meta) else None
    found: dict[str, bytes | None] = {}
    if isinstance(members, dict):
        for name, value in members.items():  # pyright: ignore[reportUnknownVariableType]
            if isinstance(name, str) and isinstance(value, str):
                found[name] = value.encode()
    if node:
        found["node"] = node
    return [*found.items()]


def _from_binary(body: bytes, tag: bytes, node: bytes, ts: int) -> KafkaRecord:
    if body.startswith(TWO_KEYS):
        begin = len(TWO_KEYS) + 4
        end = begin + int.from_bytes(body[begin - 4 : begin], "big")
        if body[end : end + len(BINARY_CT)] == BINARY_CT and len(body) == end + 12:
            stamp = _TIME.unpack_from(body, end + 4)[0]
            return tag or None, body[begin:end], (), ts if stamp == NO_TIME else stamp
    found = _map.decode(body)
    meta = found.meta.encode()
    headers = _headers_of(meta, node) if found.ct is None else _with_origin(found.h or (), meta)
    stamp = ts if found.ct is None or found.ct == NO_TIME else found.ct
    return found.k if found.k is not None else tag or None, found.v, headers, stamp
