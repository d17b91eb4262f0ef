"""The types of typed columns, and their text in Spark's DDL. Pure.

struct   a JSON object with known members       map   one with any members, all of one type
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeGuard

#: Types without parts, by their names in Spark's DDL.
SCALARS = (
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
)
#: The most digits of a decimal.
MAX_DIGITS = 38
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Words that Spark reads as something else than a name, in some place of a DDL.
_KEYWORDS = {"not", "comment", "default", "generated", "collate", "null"}


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Whether decoded JSON is an array."""
    return isinstance(value, list)


@dataclass(frozen=True)
class Scalar:
    """A type without parts: one of SCALARS. `is_any`: a string that stands for values of several types."""

    name: str
    is_any: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Decimal:
    """Numbers of at most `precision` digits, `scale` of them behind the point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True)
class Array:
    """Elements of one type; any may be null."""

    element: ColumnType

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True)
class Map:
    """Values of one type by name; any may be null."""

    value: ColumnType

    def __str__(self) -> str:
        return f"map<string,{self.value}>"


@dataclass(frozen=True)
class Field:
    """A named part of a struct. It may be missing or null."""

    name: str
    type: ColumnType

    def __str__(self) -> str:
        return f"{quoted(self.name)}:{self.type}"


@dataclass(frozen=True)
class Struct:
    """Members with names and types."""

    fields: tuple[Field, ...]

    def __str__(self) -> str:
        return f"struct<{','.join(map(str, self.fields))}>"


ColumnType: TypeAlias = "Scalar | Decimal | Array | Map | Struct"


def quoted(name: str) -> str:
    """The name as it stands in a DDL: in backticks if it has to."""
    if _PLAIN_NAME.fullmatch(name) and name.lower() not in _KEYWORDS:
        return name
    return "`" + name.replace("`", "``") + "`"


def ddl_of(fields: Iterable[Field]) -> str:
    """The fields as Spark's DDL, such as `id bigint, item string`."""
    return ", ".join(f"{quoted(each.name)} {each.type}" for each in fields)
