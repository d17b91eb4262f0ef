"""Numbers such as 1.0 and 1e3 in place of an integer: JSON Schema takes them for integers, a decoder for floats.

Only a body that was refused for such a number comes here. It is decoded again with the number spelled as an integer.
Everything else stays as it was sent, byte for byte: payloads are not parsed.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.inspect import IntType, ListType, StructType, Type, UnionType, type_info

#: A number with an optional fraction and exponent, within the accepted length.
_NUMBER: Final = re.compile(rb"-?\d{1,40}(?:\.\d{1,40})?(?:[eE][+-]?\d{1,2})?")
_MAX_DIGITS: Final = 40
#: Longer lists of integers are refused in any case.
_MAX_INTEGERS: Final = 10_000


def whole(text: bytes) -> int | None:
    """The integer value of a JSON number; None if it has a fraction, or more digits than are accepted."""
    if not _NUMBER.fullmatch(text):
        return None
    number = Decimal(text.decode())
    if number.adjusted() >= _MAX_DIGITS or number != number.to_integral_value():
        return None
    return int(number)


def spelled_as_integers(body: bytes, wanted: Any) -> bytes:
    """`body`, for a decoder of `wanted`, with its whole numbers spelled as integers. Raises msgspec.DecodeError."""
    return bytes(_respelled(Raw(body.strip()), type_info(wanted)))


def _respelled(raw: Raw, wanted: Type) -> Raw:
    for kind in wanted.types if isinstance(wanted, UnionType) else (wanted,):
        text = bytes(raw)
        if isinstance(kind, IntType):
            number = whole(text)
            if number is not None:
                return Raw(b"%d" % number)
        elif isinstance(kind, StructType) and text[:1] == b"{":
            return Raw(msgspec.json.encode(_filled(_raw_struct(kind.cls).decode(text), kind)))
        elif isinstance(kind, ListType) and text[:1] == b"[":
            return _items(text, kind.item_type)
    return raw


def _items(text: bytes, kind: Type) -> Raw:
    if isinstance(kind, StructType):
        items = [_filled(item, kind) for item in _raw_structs(kind.cls).decode(text)]
    elif text.count(b",") < _MAX_INTEGERS:
        items = [_respelled(item, kind) for item in _raws.decode(text)]
    else:
        return Raw(text)
    return Raw(msgspec.json.encode(items))


def _filled(fields: Any, kind: StructType) -> Any:
    for field in kind.fields:
        given: Raw | UnsetType = getattr(fields, field.name)
        if given is not UNSET:
            setattr(fields, field.name, _respelled(given, field.type))
    return fields


_raws: msgspec.json.Decoder[list[Raw]] = msgspec.json.Decoder(list[Raw])


@cache
def _with_raw_fields(struct: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """A struct like `struct` whose fields are raw JSON. Like `struct`, it ignores unknown fields."""
    names = {field.name: field.encode_name for field in msgspec.structs.fields(struct)}
    return msgspec.defstruct(struct.__name__, [(name, Raw | UnsetType, UNSET) for name in names], rename=names)


@cache
def _raw_struct(struct: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_with_raw_fields(struct))


@cache
def _raw_structs(struct: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(list[_with_raw_fields(struct)])  # pyright: ignore[reportInvalidTypeArguments]
