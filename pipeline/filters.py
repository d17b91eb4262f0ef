"""Applies the filters of a query to batches, so that rows that the query drops anyway are not passed on. Pure.

Spark applies its filters again to what it gets. So a row may be left in for any reason (a type that Arrow compares
otherwise, a kind of filter that is not known here), but no row may be left out that Spark would keep. Spark's rules
count: a comparison with null is null, which is not true; NaN equals NaN, and is greater than every other number.

Source: docs/guides/spark.md#columns-and-filters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute

#: pyarrow's types do not list the functions that it makes when it is imported.
_pc: Any = pyarrow.compute

#: Kinds of conditions. `IN` has a sequence of values; the unary ones have none.
EQUAL, SAFE_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL = "=", "<=>", "<", "<=", ">", ">="
IN, IS_NULL, IS_NOT_NULL, STARTS, ENDS, CONTAINS = "in", "is null", "is not null", "starts", "ends", "contains"


class Condition(NamedTuple):
    """A filter of one column, or of a field within it. `negated`: its opposite, which is null where it is null."""

    path: tuple[str, ...]
    kind: str
    value: Any = None
    negated: bool = False


class Unknown(Exception):
    """It is not known which rows a condition keeps."""


def filtered(batch: pa.RecordBatch, conditions: Sequence[Condition]) -> pa.RecordBatch:
    """The rows for which no condition is false or null."""
    for condition in conditions:
        if not len(batch):
            break
        try:
            found = _truth(batch, condition)
        except (Unknown, KeyError, pa.ArrowException):
            continue
        batch = batch.filter(found, null_selection_behavior="drop")
    return batch


def _truth(batch: pa.RecordBatch, condition: Condition) -> pa.Array:
    column = _column(batch, condition.path)
    found = _compared(column, condition.kind, condition.value)
    return _pc.invert(found) if condition.negated else found


def _column(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    column = batch.column(path[0])
    for name in path[1:]:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            raise Unknown
        # A field of a null struct is null.
        column = _pc.struct_field(column, name)
    return column


def _compared(column: pa.Array, kind: str, value: Any) -> pa.Array:
    if kind == IS_NULL:
        return _pc.is_null(column)
    if kind == IS_NOT_NULL:
        return _pc.is_valid(column)
    if kind == IN:
        return _one_of(column, cast("Sequence[Any]", value))
    if kind == SAFE_EQUAL:
        found = _pc.is_null(column) if value is None else _pc.fill_null(_equal(column, value), False)
        return cast("pa.Array", found)
    if value is None:
        return pa.nulls(len(column), pa.bool_())
    if kind in (STARTS, ENDS, CONTAINS):
        if not pa.types.is_string(column.type) or not isinstance(value, str):
            raise Unknown
        return _MATCHES[kind](column, pattern=value)
    return _equal(column, value) if kind == EQUAL else _ordered(column, kind, value)


def _one_of(column: pa.Array, values: Sequence[Any]) -> pa.Array:
    """As Spark's IN: null where no value is equal and one of them is null."""
    found = _pc.and_kleene(pa.array([False] * len(column)), _pc.is_null(column))
    for value in values:
        each = pa.nulls(len(column), pa.bool_()) if value is None else _equal(column, value)
        found = _pc.or_kleene(found, each)
    if not values:
        raise Unknown
    return found


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _literal(column: pa.Array, value: Any) -> pa.Scalar[Any]:
    """The value as the column's own type. Raises Unknown if it does not have exactly that value there."""
    kind = column.type
    try:
        found = pa.scalar(value, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise Unknown from error
    if pa.types.is_floating(kind) and not _is_nan(value) and found.as_py() != value:
        raise Unknown
    return found


def _equal(column: pa.Array, value: Any) -> pa.Array:
    if not _is_comparable(column.type):
        raise Unknown
    if pa.types.is_floating(column.type) and _is_nan(value):
        return _pc.is_nan(column)
    return _pc.equal(column, _literal(column, value))


def _ordered(column: pa.Array, kind: str, value: Any) -> pa.Array:
    if not _is_comparable(column.type):
        raise Unknown
    if not pa.types.is_floating(column.type):
        return _ORDERS[kind](column, _literal(column, value))
    nan = _pc.is_nan(column)
    if _is_nan(value):
        # NaN is the greatest: nothing is above it, and all others are below. Null stays null.
        nothing = _pc.and_(nan, False)
        return {GREATER: nothing, GREATER_EQUAL: nan, LESS: _pc.invert(nan), LESS_EQUAL: _pc.invert(nothing)}[kind]
    found = _ORDERS[kind](column, _literal(column, value))
    return _pc.or_(found, nan) if kind in (GREATER, GREATER_EQUAL) else found


def _is_comparable(kind: pa.DataType) -> bool:
    tests = (
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_string,
        pa.types.is_binary,
        pa.types.is_date32,
        pa.types.is_timestamp,
    )
    return any(test(kind) for test in tests)


_ORDERS: dict[str, Callable[..., Any]] = {
    LESS: _pc.less,
    LESS_EQUAL: _pc.less_equal,
    GREATER: _pc.greater,
    GREATER_EQUAL: _pc.greater_equal,
}
_MATCHES: dict[str, Callable[..., Any]] = {
    STARTS: _pc.starts_with,
    ENDS: _pc.ends_with,
    CONTAINS: _pc.match_substring,
}
