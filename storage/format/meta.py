"""Reads the meta of a stored body, and replaces it. Pure.

The rest of a body stays unchanged, byte for byte: data with the spaces around it, the keys for Kafka clients (`ct`,
`h`, `k`), and keys of later versions. Raw bytes have no meta of their own. A copy that must have one has it as a
further key of the map, as JSON text.

Source: docs/reference/format.md#frames, docs/reference/api.md#queues.
"""

from __future__ import annotations

import msgspec

from storage.format.binary import MARK, binary_meta, is_binary
from storage.format.record import data_end, split_body

_DATA, _META, _CT, _H = "data", "meta", "ct", "h"
#: Most keys that the first byte of a map can state.
_FIXED = 15

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_map = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_text = msgspec.json.Encoder().encode
_packed = msgspec.msgpack.Encoder().encode


def meta_of(body: bytes) -> bytes:
    """The meta as JSON text; b"" when the body has none. Raises msgspec.DecodeError."""
    return binary_meta(body) if is_binary(body) else bytes(split_body(body).meta)


def with_meta(body: bytes, meta: bytes) -> bytes:
    """The body with this JSON text as its meta; b"": without meta. Raises msgspec.DecodeError."""
    return _map_with(body, meta) if is_binary(body) else _object_with(body, meta)


def _object_with(body: bytes, meta: bytes) -> bytes:
    fields = {name: bytes(value) for name, value in _object.decode(body).items()}
    text = fields.pop(_DATA)
    end = data_end(body, text)
    fields.pop(_META, None)
    # If the create time is the last key, the body has no headers and no meta: the reader for Kafka clients relies on
    # that. So a meta added later is followed by an empty list of headers.
    if fields.get(_H) == b"[]":
        del fields[_H]
    if meta and _CT in fields and _H not in fields:
        fields[_H] = b"[]"
    more = b"".join([b",%b:%b" % (_text(name), value) for name, value in fields.items()])
    return b"%b%b%b}" % (body[:end], b',"meta":' + meta if meta else b"", more)


def _map_with(body: bytes, meta: bytes) -> bytes:
    fields = {name: bytes(value) for name, value in _map.decode(body).items() if name != _META}
    pieces = [(MARK if name == "v" else _packed(name)) + value for name, value in fields.items()]
    if meta:
        pieces.append(_packed(_META) + _packed(meta.decode()))
    count = len(pieces)
    head = bytes((0x80 | count,)) if count <= _FIXED else b"\xde" + count.to_bytes(2, "big")
    return head + b"".join(pieces)
