"""Converts keys, values and headers to JSON and back. Pure.

    binary   "a2V5"            Base64
    json     {"any": ["JSON"]} the bytes of a JSON text, verbatim
    text     "text"            UTF-8

null means no key or no value. If a format cannot show the bytes of another client, they become a string if they are
UTF-8, or else `{"$base64": "…"}`, as under /v0. So such a record never stops a reader.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Sequence

import msgspec

from broker.proxy.errors import Unprocessable
from broker.proxy.media import Format

_json = msgspec.json.Decoder(msgspec.Raw)
_text = msgspec.json.Decoder(str)


def to_bytes(format: Format, given: bytes, field: str) -> bytes | None:
    """The key or value in a JSON text. Raises Unprocessable, which names the field."""
    if given == b"null":
        return None
    if format is Format.JSON:
        return given
    try:
        text = _text.decode(given)
    except msgspec.DecodeError:
        raise Unprocessable(f"{field}: expected a string.") from None
    return text.encode() if format is Format.TEXT else from_base64(text, field)


def from_base64(text: str, field: str) -> bytes:
    """The decoded bytes. Raises Unprocessable, which names the field."""
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Unprocessable(f"{field}: not valid Base64.") from None


def to_json(format: Format, value: bytes | None) -> bytes:
    """A key or value as JSON text."""
    if value is None:
        return b"null"
    if format is Format.BINARY:
        return b'"%b"' % b64encode(value)
    if format is Format.JSON and is_json(value):
        return value
    try:
        return msgspec.json.encode(value.decode())
    except UnicodeDecodeError:
        return b'{"$base64":"%b"}' % b64encode(value)


def is_json(value: bytes) -> bool:
    """Whether the bytes are one JSON text in UTF-8."""
    try:
        value.decode()
        _json.decode(value)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return False
    return True


def headers_to_json(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """`[{"name","value"}]`, values in Base64 or null."""
    return msgspec.json.encode(
        [{"name": name, "value": None if value is None else b64encode(value).decode()} for name, value in headers]
    )
