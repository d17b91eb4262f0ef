"""Typed columns of JSON values (option valueSchema), which are parsed in the pass that reads them.

A value that is not a JSON object, or has a member that does not fit its column, gives nulls in all typed columns, and
its text in `_corrupt`. A missing member is null, and members without a column are ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pyarrow as pa

from pipeline.options import ReadOptions
from pipeline.schema import CORRUPT, arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log = logging.getLogger("pipeline")
_object = msgspec.json.Decoder(dict[str, Any])


class Typed:
    """Adds the typed columns to batches."""

    def __init__(self, fields: list[pa.Field]) -> None:
        self._fields = fields
        self.corrupt = 0

    @classmethod
    def of(cls, schema: StructType, options: ReadOptions) -> Typed | None:
        """None: no typed columns are requested."""
        if not options.value_schema:
            return None
        from pyspark.sql.pandas.types import to_arrow_schema

        known = {*arrow_schema(headers=options.headers).names, CORRUPT}
        return cls([field for field in to_arrow_schema(schema, timezone="UTC") if field.name not in known])

    def widen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch, followed by the typed columns and `_corrupt`."""
        values = cast("list[bytes | None]", batch.column("value").to_pylist())
        rows = [self._row(value) for value in values]
        columns: list[pa.Array] = [
            pa.array([None if row is None else row[at] for row in rows], field.type)
            for at, field in enumerate(self._fields)
        ]
        texts = [
            value.decode("utf-8", "replace") if row is None and value is not None else None
            for value, row in zip(values, rows, strict=True)
        ]
        bad = sum(row is None for row in rows)
        if bad:
            self.corrupt += bad
            _log.warning("%d values do not fit valueSchema so far; they are in %s", self.corrupt, CORRUPT)
        corrupt = pa.array(texts, pa.string())
        schema = pa.schema([*batch.schema, *self._fields, pa.field(CORRUPT, pa.string())])
        return pa.RecordBatch.from_arrays([*batch.columns, *columns, corrupt], schema=schema)

    def _row(self, value: bytes | None) -> list[Any] | None:
        try:
            found = _object.decode(value or b"")
            return [_fit(found.get(field.name), field.type) for field in self._fields]
        except (msgspec.DecodeError, ValueError, TypeError, ArithmeticError):
            return None


def _fit(value: Any, kind: pa.DataType) -> Any:
    """The value as a column of that type takes it. Raises ValueError or TypeError when it does not fit."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        members = _expect(value, dict)
        return {field.name: _fit(members.get(field.name), field.type) for field in kind.fields}
    if pa.types.is_list(kind):
        return [_fit(each, kind.value_type) for each in _expect(value, list)]
    if pa.types.is_map(kind):
        return [(name, _fit(each, kind.item_type)) for name, each in _expect(value, dict).items()]
    for fits, convert in _CONVERSIONS:
        if fits(kind):
            return convert(value, kind)
    raise TypeError(f"valueSchema cannot have a column of type {kind}")


def _expect(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"not a {kind.__name__}")
    return value


def _integer(value: Any, kind: pa.DataType) -> int:
    number = _expect(value, int)
    bits = kind.bit_width - 1
    if not -(1 << bits) <= number < 1 << bits:
        raise ValueError("out of range")
    return number


def _floating(value: Any, kind: pa.DataType) -> float:
    return float(_expect(value, float if type(value) is float else int))


def _decimal(value: Any, kind: pa.DataType) -> Decimal:
    if type(value) not in (int, float, str):
        raise TypeError("not a number")
    number = Decimal(str(value)).quantize(Decimal(1).scaleb(-kind.scale))
    if len(number.as_tuple().digits) > kind.precision:
        raise ValueError("out of range")
    return number


def _text(value: Any, kind: pa.DataType) -> str:
    # As Spark's from_json: a column of text takes any value, as its JSON text.
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _moment(value: Any, kind: pa.DataType) -> datetime:
    found = datetime.fromisoformat(_expect(value, str))
    if kind.tz is None:
        return found.replace(tzinfo=None)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


_CONVERSIONS: list[tuple[Callable[[pa.DataType], bool], Callable[[Any, Any], Any]]] = [
    (pa.types.is_boolean, lambda value, kind: _expect(value, bool)),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _floating),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_string, _text),
    (pa.types.is_binary, lambda value, kind: _expect(value, str).encode()),
    (pa.types.is_date, lambda value, kind: date.fromisoformat(_expect(value, str))),
    (pa.types.is_timestamp, _moment),
]
