"""The rows of a write, in the two forms in which a topic stores records. Pure.

- `Row`: JSON text as data, with tag, node and meta. The records API appends it.
- `RawRow`: key, value and headers as bytes, like a record of a Kafka client. The REST Proxy's API appends it. A row has
  this form if the other one cannot hold it: it has headers, its value is null or not JSON, or has spaces around it, or
  its key cannot be a tag. JSON with spaces and node or meta is the exception: there only the other one is possible.

So two rows with the same content always have the same form, and what a read returns can be compared with a row.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, cast

import msgspec

from pipeline.batches import Row as ReadRow
from pipeline.batches import headers_of, kafka_form
from pipeline.errors import BadOption
from topics_client import NewRecord

Headers = list[tuple[str, bytes | None]]
_MAX_TAG_BYTES = 256
_raw_json = msgspec.json.Decoder(msgspec.Raw)
#: What JSON allows around a text.
_SPACES = b" \t\n\r"
#: Stands for a null, which differs from every text in its length.
_NULL = (1 << 64) - 1


class Row(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """JSON text, tag, node and meta; `partition`: where it must go, else its tag decides."""

    data: bytes
    tag: str | None = None
    node: str | None = None
    meta: bytes | None = None
    partition: int | None = None

    @property
    def record(self) -> NewRecord:
        return NewRecord(data=self.data, tag=self.tag, node=self.node, meta=self.meta)

    @property
    def key(self) -> bytes | None:
        return self.tag.encode() if self.tag else None

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def digest(self) -> bytes:
        return _digest(self.data, self.key, self.node, self.meta)


class RawRow(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """Key, value and headers; `partition`: where it must go, else its key decides."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = []
    partition: int | None = None

    @property
    def size(self) -> int:
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.value or b"") + len(self.key or b"") + headers

    @property
    def digest(self) -> bytes:
        return _raw_digest(self.value, self.key, self.headers)

    def as_produced(self) -> dict[str, Any]:
        """The record in the body of a request to the REST Proxy's API, in its binary format."""
        found: dict[str, Any] = {}
        if self.key is not None:
            found["key"] = b64encode(self.key).decode()
        if self.value is not None:
            found["value"] = b64encode(self.value).decode()
        if self.headers:
            found["headers"] = [
                {"name": name, "value": None if value is None else b64encode(value).decode()}
                for name, value in self.headers
            ]
        return found


AnyRow = Row | RawRow


def row_of(cells: dict[str, Any]) -> AnyRow:
    """The row of a frame. Raises BadOption for contents that no record can have."""
    value = _bytes_of(cells.get("value"))
    key = _bytes_of(cells.get("key"))
    node, meta, partition = cells.get("node"), cells.get("meta"), cells.get("partition")
    if (tag := cells.get("tag")) is not None:
        if key is not None and key != tag.encode():
            raise BadOption(f"A row has the key {key!r} and the tag {tag!r}: a record has one of them.")
        key = tag.encode() or None
    headers = [(each["key"], _bytes_of(each["value"])) for each in cells.get("headers") or ()]
    if any(name is None for name, _ in headers):
        raise BadOption("A header has no name: its key is null.")
    plain = value is not None and is_json(value) and (key is None or can_be_tag(key))
    if plain and value != cast("bytes", value).strip(_SPACES):
        # The records API would leave the spaces out.
        plain = node is not None or (meta is not None and not _repeats(meta, headers))
    shown = _headers_of(meta, node)
    if plain and (not headers or ((node is not None or meta is not None) and headers == shown)):
        text = None if meta is None else meta.encode()
        return Row(cast("bytes", value), None if key is None else key.decode(), node, text, partition)
    if node is not None or (meta is not None and not _repeats(meta, headers)):
        raise BadOption(
            "A row has node or meta, and something that cannot be stored with them: headers, a value that is null or "
            "not JSON, or a key that is not 1 to 256 bytes of UTF-8. Drop the columns node and meta, or headers."
        )
    return RawRow(value, key, headers, partition)


def _headers_of(meta: str | None, node: str | None) -> Headers:
    try:
        return headers_of(meta, node)
    except msgspec.DecodeError as error:
        raise BadOption(
            f"A row has the meta {meta!r}, which is not JSON text: {error}. For no meta it is null."
        ) from error


def digest_of(read: ReadRow) -> bytes:
    """The digest of the row that a record was made of."""
    if read.stored is None:
        meta = read.meta
        return _digest(read.data, read.tag, None if read.node is None else read.node.decode(), meta)
    key, value, headers = kafka_form(read)
    return _raw_digest(value, key, headers)


def is_json(value: bytes) -> bool:
    """Whether the value is JSON text in UTF-8."""
    try:
        value.decode()
        _raw_json.decode(value)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return False
    return True


def can_be_tag(key: bytes) -> bool:
    """Whether a key is 1 to 256 bytes of UTF-8."""
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return 0 < len(key) <= _MAX_TAG_BYTES


def _repeats(meta: str, headers: Headers) -> bool:
    """Whether meta only repeats text headers, as in a record of a Kafka client."""
    texts: dict[str, str] = {}
    for name, value in headers:
        try:
            texts[name] = (value or b"").decode()
        except UnicodeDecodeError:
            continue
    try:
        found = msgspec.json.decode(meta)
    except msgspec.DecodeError:
        return False
    return isinstance(found, dict) and all(texts.get(name) == text for name, text in cast("Any", found).items())


def _bytes_of(cell: Any) -> bytes | None:
    return cell.encode() if isinstance(cell, str) else None if cell is None else bytes(cell)


def _digest(data: bytes, key: bytes | None, node: str | None, meta: bytes | None) -> bytes:
    # Spaces around JSON text are not stored, and an empty part equals a missing one.
    return _hashed([data.strip(), key or b"", (node or "").encode(), (meta or b"").strip()])


def _raw_digest(value: bytes | None, key: bytes | None, headers: Headers) -> bytes:
    parts = [part for name, text in headers for part in (name.encode(), text)]
    return _hashed([b"", key, value, *parts])


def _hashed(parts: Sequence[bytes | None]) -> bytes:
    found = blake2b(digest_size=16)
    for part in parts:
        found.update((_NULL if part is None else len(part)).to_bytes(8, "little"))
        found.update(part or b"")
    return found.digest()
