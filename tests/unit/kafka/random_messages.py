"""Messages with a value in every field that a version has."""

from __future__ import annotations

import random
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from broker.kafka.codec import schema
from broker.kafka.codec.schema import Message, Part, Since, Until

M = TypeVar("M", bound=Message)

_BITS = {schema.Int8: 8, schema.Int16: 16, schema.Int32: 32, schema.Int64: 64}


def filled(kind: type[M], version: int, seed: int) -> M:
    """The same message for the same seed."""
    return _part(kind, version, random.Random(f"{kind.__name__} {version} {seed}"))


def _part(kind: Any, version: int, dice: random.Random) -> Any:
    hints = get_type_hints(kind, include_extras=True)
    return kind(
        **{
            name: _value(hints[name], version, dice)
            for name in kind.__struct_fields__
            if _is_there(hints[name], version)
        }
    )


def _is_there(hint: Any, version: int) -> bool:
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    since = [mark.version for mark in marks if isinstance(mark, Since)]
    until = [mark.version for mark in marks if isinstance(mark, Until)]
    return all(version >= each for each in since) and all(version <= each for each in until)


def _value(hint: Any, version: int, dice: random.Random) -> Any:
    bits = 16
    if get_origin(hint) is Annotated:
        plain, *marks = get_args(hint)
        kinds = [mark for mark in marks if isinstance(mark, schema.Kind)]
        if kinds and plain is int:
            bits = next(size for alias, size in _BITS.items() if get_args(alias)[1] == kinds[0])
        if kinds and kinds[0] == get_args(schema.Uuid)[1]:
            return dice.randbytes(16)
        hint = plain
    if isinstance(hint, UnionType):
        if dice.random() < 0.2 and _nullable_now(hint):
            return None
        hint = next(each for each in get_args(hint) if each is not NoneType)
    if hint is bool:
        return dice.random() < 0.5
    if hint is int:
        return dice.randrange(-(1 << bits - 1), 1 << bits - 1)
    if hint is str:
        return dice.choice(("", "orders", "ключ", "x" * 300))
    if hint is bytes:
        return dice.randbytes(dice.choice((0, 1, 130)))
    if get_origin(hint) is list:
        return [_value(get_args(hint)[0], version, dice) for _ in range(dice.choice((0, 1, 3)))]
    assert issubclass(hint, Part)
    return _part(hint, version, dice)


def _nullable_now(_: Any) -> bool:
    # Some are nullable from a later version on only. The other side refuses null before that.
    return False
