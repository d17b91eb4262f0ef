"""The types of typed columns as Arrow has them, exactly as Spark makes them from its own. Pure."""

from __future__ import annotations

import pyarrow as pa

from topics_client.column_types import Array, ColumnType, Decimal, Field, Map, Scalar, Struct

_SCALARS = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def arrow_type(kind: ColumnType) -> pa.DataType:
    """The Arrow type of a column."""
    if isinstance(kind, Decimal):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, Array):
        return pa.list_(pa.field("element", arrow_type(kind.element)))
    if isinstance(kind, Map):
        return pa.map_(pa.string(), pa.field("value", arrow_type(kind.value)))
    if isinstance(kind, Struct):
        return pa.struct([arrow_field(each) for each in kind.fields])
    return _SCALARS[kind.name]


def type_named(kind: pa.DataType) -> ColumnType:
    """The type of a column in the words of DDL. A type that DDL does not have keeps the name that Arrow gives it."""
    if pa.types.is_decimal(kind):
        return Decimal(kind.precision, kind.scale)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return Array(type_named(kind.value_type))
    if pa.types.is_map(kind):
        # A key is a string in all columns of an export.
        return Map(type_named(kind.item_type))
    if pa.types.is_struct(kind):
        return Struct(tuple(Field(each.name, type_named(each.type)) for each in kind.fields))
    found = next((name for name, each in _SCALARS.items() if each == kind), None)
    return Scalar(found or str(kind))


def arrow_field(field: Field) -> pa.Field:
    """The Arrow field of a column or a member."""
    return pa.field(field.name, arrow_type(field.type))
