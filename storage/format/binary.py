"""The data of an Append frame with the flag `binary`: one MessagePack map, whose value `v` is the appended bytes.

    off  size  bytes
    0    1     80 + number of keys; here 81: `v` alone
    1    3     d9 01 76        "v", as str 8
    4    5     c6 length u32   bin 32; big-endian, as in MessagePack
    9    .     the bytes

MessagePack has a shorter form. But this form adds as many bytes as JSON adds around its data (`{"data":` and `}`), so
code that counts payloads by columns need not distinguish the two. And d9 01 occurs in no UTF-8 text, so one search in
an answer made of stored bodies tells whether it contains such a record. The first byte tells maps with further keys
(`k`, `h`, `ct`, `meta`) from JSON objects.

Source: docs/reference/format.md#frames, docs/guides/kafka.md#how-kafka-maps-to-topics.
"""

from __future__ import annotations

from base64 import b64encode
from struct import Struct

import msgspec

#: Bytes in every binary body written here, and in no JSON text.
MARK = b"\xd9\x01v"
OPENING = b"\x81" + MARK + b"\xc6"
_LENGTH = Struct(">I")
OVERHEAD = len(OPENING) + _LENGTH.size
_OBJECT = ord("{")


class _Map(msgspec.Struct):
    v: bytes | None = None
    #: JSON text, in a copy that says where it came from, such as a dead letter.
    meta: str = ""


_decoder = msgspec.msgpack.Decoder(_Map)


def is_binary(body: bytes) -> bool:
    """Whether a stored body is a MessagePack map; else it is a JSON object."""
    return not body or body[0] != _OBJECT


def binary_value(body: bytes) -> bytes:
    """The appended bytes; b"" for a null. Raises msgspec.DecodeError."""
    return body[OVERHEAD:] if _is_alone(body) else _decoder.decode(body).v or b""


def binary_meta(body: bytes) -> bytes:
    """The meta of a record of raw bytes, as JSON text; b"" when it has none. Raises msgspec.DecodeError."""
    return b"" if _is_alone(body) else _decoder.decode(body).meta.encode()


def _is_alone(body: bytes) -> bool:
    """Whether the body has only the appended bytes, in the form that the kernel writes."""
    return body.startswith(OPENING) and _LENGTH.unpack_from(body, len(OPENING))[0] == len(body) - OVERHEAD


def as_json(body: bytes) -> bytes:
    """A stored body for readers of JSON: raw bytes become `{"data":{"$base64":…}}`, with their meta if they have one;
    all other bodies stay as they are."""
    if not is_binary(body):
        return body
    meta = binary_meta(body)
    value = b64encode(binary_value(body))
    return b'{"data":{"$base64":"%b"}%b}' % (value, b',"meta":' + meta if meta else b"")
