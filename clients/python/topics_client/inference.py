"""Infers the types of typed columns from JSON values. Pure.

What all seen values have in common is chosen; a conflict gives the next wider type:

    numbers without a point and an exponent
                           bigint; decimal(38,0) if one needs more than 64 bits; double beyond 38 digits
    other numbers          double; decimal(38,s) if a double would change one of them, or if that is preferred
    dates and times        date; timestamp_ntz without zones; timestamp with zones, or if some have one
    texts, or texts and dates, numbers, booleans   string
    objects                struct; map if one has more than MAX_MEMBERS different names
    arrays                 array
    anything else mixed    string, which takes any value as JSON text
    only null              string

Source: docs/guides/spark.md#types-from-a-sample.
"""

from __future__ import annotations

import json
import re
from datetime import date
from typing import Any, NoReturn, cast

from topics_client.column_types import MAX_DIGITS, Array, ColumnType, Decimal, Field, Map, Scalar, Struct, is_list

#: An object with more different names than this is a map. The columns themselves are always fields.
MAX_MEMBERS = 100
#: What is nested deeper is a string.
MAX_DEPTH = 16

_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[Tt ](?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?"
    r"(Z|z|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)?)?",
    re.ASCII,
)
_I64_END = 1 << 63


class _Number(str):
    """A number as it is written, so that no digit is lost."""

    __slots__ = ()


class NotJson(ValueError):
    """The text is not JSON."""


def values_of(text: bytes | str) -> Any:
    """The value of JSON text, for `Inference.add`. Raises NotJson."""
    try:
        return json.loads(text, parse_float=_Number, parse_int=_Number, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


class _Numbers:
    """What is known of the numbers of a column."""

    def __init__(self) -> None:
        self.seen = self.is_large = self.is_inexact = False
        #: Whether one has a point or an exponent, which no integer column takes.
        self.is_fraction = False
        #: The most digits before the point, and behind it.
        self.before = self.behind = 0

    def add(self, text: str) -> None:
        self.seen = True
        self.is_fraction |= not text.lstrip("-").isdecimal()
        mantissa, _, exponent = text.lower().lstrip("-").partition("e")
        whole, _, fraction = mantissa.partition(".")
        digits, point = whole + fraction, len(whole) + int(exponent or 0)
        if not digits.strip("0"):
            return
        behind = max(0, len(digits.rstrip("0")) - point)
        self.before = max(self.before, point - (len(digits) - len(digits.lstrip("0"))))
        self.behind = max(self.behind, behind)
        if not behind and self.before <= 20 and not -_I64_END <= int(_plain(text, digits, point)) < _I64_END:
            self.is_large = True
        self.is_inexact |= not _survives(text, digits, point)

    def type(self, prefer_decimal: bool) -> ColumnType:
        if not self.is_fraction:
            if self.before <= 19 and not self.is_large:
                return Scalar("bigint")
            return Decimal(MAX_DIGITS, 0) if self.before <= MAX_DIGITS else Scalar("double")
        if (prefer_decimal or self.is_inexact) and max(0, self.before) + self.behind <= MAX_DIGITS:
            return Decimal(MAX_DIGITS, self.behind)
        return Scalar("double")


def _plain(text: str, digits: str, point: int) -> str:
    """A whole number without its exponent."""
    return ("-" if text.startswith("-") else "") + (
        digits[:point] if point <= len(digits) else digits.ljust(point, "0")
    )


def _survives(text: str, digits: str, point: int) -> bool:
    """Whether a double shows the same number again."""
    shown = repr(abs(float(text)))
    if "inf" in shown:
        return False
    mantissa, _, exponent = shown.partition("e")
    whole, _, fraction = mantissa.partition(".")
    other, other_point = whole + fraction, len(whole) + int(exponent or 0)
    return _significant(digits, point) == _significant(other, other_point)


def _significant(digits: str, point: int) -> tuple[str, int]:
    left = digits.lstrip("0")
    return left.rstrip("0"), point - (len(digits) - len(left))


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


class _Column:
    """What is known of the values of one column."""

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self._numbers = _Numbers()
        self._booleans = self._texts = self._arrays = self._objects = False
        self._dates = self._locals = self._zoned = False
        self._element: _Column | None = None
        #: By name, in the order of their first appearance.
        self.members: dict[str, _Column] = {}

    def add(self, value: Any) -> None:
        if isinstance(value, _Number):
            self._numbers.add(value)
        elif isinstance(value, str):
            self._add_text(value)
        elif isinstance(value, bool):
            self._booleans = True
        elif is_list(value):
            self._arrays = True
            self._element = self._element or _Column(self._depth + 1)
            if self._depth < MAX_DEPTH:
                for each in value:
                    self._element.add(each)
        elif isinstance(value, dict):
            self._objects = True
            if self._depth < MAX_DEPTH:
                for name, each in cast("dict[str, Any]", value).items():
                    self.members.setdefault(name, _Column(self._depth + 1)).add(each)

    def _add_text(self, text: str) -> None:
        found = _MOMENT.fullmatch(text)
        if found is None or not _is_date(found[1]):
            self._texts = True
        elif len(text) == len(found[1]):
            self._dates = True
        elif found[2]:
            self._zoned = True
        else:
            self._locals = True

    def type(self, prefer_decimal: bool) -> ColumnType:
        moments = self._dates or self._locals or self._zoned
        kinds = (self._numbers.seen, self._booleans, self._texts or moments, self._arrays, self._objects)
        if sum(kinds) != 1 or self._texts or (self._depth >= MAX_DEPTH and (self._arrays or self._objects)):
            return Scalar("string", is_any=sum(kinds) != 1 or not kinds[2])
        if self._numbers.seen:
            return self._numbers.type(prefer_decimal)
        if self._booleans:
            return Scalar("boolean")
        if moments:
            return Scalar("timestamp" if self._zoned else "timestamp_ntz" if self._locals else "date")
        if self._arrays:
            element = self._element or _Column()
            return Array(element.type(prefer_decimal))
        return self._object(prefer_decimal)

    def _object(self, prefer_decimal: bool) -> ColumnType:
        if not self.members:
            return Scalar("string", is_any=True)
        if len(self.members) > MAX_MEMBERS or _spellings(self.members):
            every = _Column(self._depth + 1)
            for each in self.members.values():
                every.take_in(each)
            return Map(every.type(prefer_decimal))
        return Struct(self.fields(prefer_decimal))

    def fields(self, prefer_decimal: bool) -> tuple[Field, ...]:
        return tuple(Field(name, each.type(prefer_decimal)) for name, each in self.members.items())

    def take_in(self, other: _Column) -> None:
        """Add all that is known of another column."""
        for name in ("_booleans", "_texts", "_arrays", "_objects", "_dates", "_locals", "_zoned"):
            setattr(self, name, getattr(self, name) or getattr(other, name))
        mine, theirs = self._numbers, other._numbers
        mine.seen, mine.is_large = mine.seen or theirs.seen, mine.is_large or theirs.is_large
        mine.is_inexact = mine.is_inexact or theirs.is_inexact
        mine.is_fraction = mine.is_fraction or theirs.is_fraction
        mine.before, mine.behind = max(mine.before, theirs.before), max(mine.behind, theirs.behind)
        if other._element is not None:
            self._element = self._element or _Column(self._depth + 1)
            self._element.take_in(other._element)
        for name, each in other.members.items():
            self.members.setdefault(name, _Column(self._depth + 1)).take_in(each)


def _spellings(names: dict[str, _Column]) -> list[list[str]]:
    """Names that differ only in upper and lower case."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.lower(), []).append(name)
    return [each for each in found.values() if len(each) > 1]


class Inference:
    """Collects values, and says which columns they have."""

    def __init__(self) -> None:
        self._root = _Column()
        #: Values that were objects, were null, or were neither.
        self.objects = self.nulls = self.others = 0

    def add(self, text: bytes | str) -> None:
        """Add the JSON text of one value. What is not an object is only counted."""
        try:
            value = values_of(text)
        except NotJson:
            value = ""
        if isinstance(value, dict):
            self.objects += 1
            self._root.add(value)
        elif value is None:
            self.nulls += 1
        else:
            self.others += 1

    def fields(self, *, prefer_decimal: bool = False) -> tuple[Field, ...]:
        """The columns, in the order of their first appearance. Of names that differ only in upper and lower case, which
        Spark does not tell apart, only the first."""
        late = {name for names in _spellings(self._root.members) for name in names[1:]}
        return tuple(each for each in self._root.fields(prefer_decimal) if each.name not in late)

    @property
    def spellings(self) -> list[list[str]]:
        """Names of columns that differ only in upper and lower case."""
        return _spellings(self._root.members)
