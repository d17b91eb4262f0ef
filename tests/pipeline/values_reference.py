"""What typed columns contain, written plainly: json.loads, and one value after the other."""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np

from topics_client import column_types as t

_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
_NUMERAL = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)([Tt ](\d\d:\d\d(:\d\d)?)((?<=\d\d:\d\d:\d\d)\.\d{1,9})?(Z|z|[+-]\d\d(:?\d\d)?)?)?", re.ASCII
)


class Misfit(Exception):
    """The value does not fit the type."""


class Number(str):
    """A number as it is written."""


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def loaded(text: str) -> Any:
    """The value; numbers as they are written."""
    return json.loads(text, parse_float=Number, parse_int=Number, parse_constant=_refuse)


def row_of(text: bytes | None, fields: tuple[t.Field, ...]) -> dict[str, Any] | None:
    """The typed columns of a value; None: it is malformed."""
    if text is None:
        return dict.fromkeys(each.name for each in fields)
    try:
        value = loaded(text.decode())
        if value is None:
            return dict.fromkeys(each.name for each in fields)
        if not isinstance(value, dict):
            return None
        return {each.name: fitted(value.get(each.name), each.type) for each in fields}
    except (ValueError, Misfit):
        return None


def fitted(value: Any, kind: t.ColumnType) -> Any:
    """The value in a column of that type, as pyarrow shows it. Raises Misfit."""
    if value is None:
        return None
    if isinstance(kind, t.Struct):
        members = _expected(value, dict)
        return {each.name: fitted(members.get(each.name), each.type) for each in kind.fields}
    if isinstance(kind, t.Array):
        return [fitted(each, kind.element) for each in _expected(value, list)]
    if isinstance(kind, t.Map):
        # In the order of the members that count, which are the last of their name.
        return sorted((_sound(name), fitted(each, kind.value)) for name, each in _expected(value, dict).items())
    if isinstance(kind, t.Decimal):
        return _decimal(value, kind)
    return _scalar(value, kind.name)


def _expected(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise Misfit
    return value


def _sound(text: str) -> str:
    if any(0xD800 <= ord(each) < 0xE000 for each in text):
        raise Misfit
    return text


def _decimal(value: Any, kind: t.Decimal) -> Decimal:
    if not isinstance(value, str) or not _NUMERAL.fullmatch(value):
        raise Misfit
    with localcontext(prec=3000, Emin=-99999, Emax=99999) as context:
        context.rounding = ROUND_HALF_UP
        number = Decimal(value).quantize(Decimal(1).scaleb(-kind.scale))
        if abs(number) >= Decimal(10) ** (kind.precision - kind.scale):
            raise Misfit
        return number + 0  # no negative zero


def _scalar(value: Any, name: str) -> Any:
    if name == "boolean":
        return _expected(value, bool)
    if name == "string":
        return _sound(value) if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if name in _BITS:
        if type(value) is not Number or not value.lstrip("-").isdecimal():
            raise Misfit
        number = int(value)
        if not -(1 << _BITS[name]) <= number < 1 << _BITS[name]:
            raise Misfit
        return number
    if name in ("float", "double"):
        return _floating(value, name)
    text = _sound(_expected(value, str))
    if name == "binary":
        try:
            return b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise Misfit from error
    return _moment(text, name)


def _floating(value: Any, name: str) -> float:
    if type(value) is str:
        words = {"NaN": "nan", "INF": "inf", "+INF": "inf", "-INF": "-inf"}
        if value not in (*words, "Infinity", "+Infinity", "-Infinity"):
            raise Misfit
        return float(words.get(value, value.lower()))
    number = float(_expected(value, Number))
    with np.errstate(over="ignore"):
        return float(np.float32(number)) if name == "float" else number


def _moment(text: str, name: str) -> date | datetime:
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise Misfit
    try:
        if name == "date":
            if match[2] is not None:
                raise Misfit
            return date.fromisoformat(text)
        zone = match[6] or ""
        if name == "timestamp_ntz" and zone:
            raise Misfit
        micros = (match[5] or ".0")[:7]
        found = datetime.fromisoformat(
            f"{match[1]} {match[3] or '00:00'}" + ("" if match[4] else ":00") + micros + zone.upper()
        )
        if name == "timestamp_ntz":
            return found
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise Misfit from error
