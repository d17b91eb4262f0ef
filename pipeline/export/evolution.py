"""Columns that change over the runs of an export: they are added, and their types widened. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa

from pipeline.errors import BadOption
from pipeline.values import type_named


class Changes(NamedTuple):
    """What a table lacks: new columns, and columns of a wider type."""

    added: list[pa.Field]
    widened: list[pa.Field]


def changes(table: str, there: pa.Schema, ours: pa.Schema) -> Changes:
    """The changes that give the columns `there` of a table those of `ours`.

    Raises BadOption with the names of columns that the export lacks, or whose type cannot change.
    """
    lacking = [name for name in there.names if name not in ours.names]
    if lacking:
        raise BadOption(
            f"The table {table} has the columns {', '.join(lacking)}, but this export does not: give the options of "
            "earlier exports (--headers for the column headers, --value-schema for typed columns), or export to "
            "another --to."
        )
    added = [field for field in ours if field.name not in there.names]
    return Changes(added, widened(table, there, ours))


def widened(table: str, there: pa.Schema, ours: Sequence[pa.Field]) -> list[pa.Field]:
    """The fields that a table has with a narrower type, with their type of `ours`.

    Raises BadOption with the name of a column whose type cannot change.
    """
    found: list[pa.Field] = []
    for field in ours:
        if field.name not in there.names:
            continue
        known = there.field(field.name)
        old, new = plain(known.type), plain(field.type)
        if old == new:
            continue
        if not is_wider(old, new):
            raise BadOption(
                f"The column {field.name} of the table {table} is {type_named(old)}, but this export makes it "
                f"{type_named(new)}: only integers of more bits, float to double, and decimals of more digits can "
                "follow. Give it the earlier type, or export to another --to."
            )
        found.append(field)
    return found


def is_wider(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether every value of the old type is one of the new, within the changes that tables know."""
    if pa.types.is_signed_integer(old) and pa.types.is_signed_integer(new):
        return new.bit_width > old.bit_width
    if pa.types.is_decimal128(old) and pa.types.is_decimal128(new):
        return new.scale == old.scale and new.precision > old.precision
    return (old, new) == (pa.float32(), pa.float64())


def common_columns(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The columns of several files of an export: all that one of them has, each with its widest type.

    The order is that of the file with the most columns.
    """
    fields: dict[str, pa.Field] = {}
    for schema in sorted(schemas, key=len, reverse=True):
        for field in schema:
            known = fields.setdefault(field.name, field)
            if is_wider(plain(known.type), plain(field.type)):
                fields[field.name] = known.with_type(field.type)
    everywhere = set[str].intersection(*(set(schema.names) for schema in schemas))
    return pa.schema([each if each.name in everywhere else each.with_nullable(True) for each in fields.values()])


def with_columns(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly these columns: null in those that it lacks."""
    there = set(batch.schema.names)
    found = [
        batch.column(each.name).cast(each.type) if each.name in there else pa.nulls(len(batch), each.type)
        for each in columns
    ]
    return pa.RecordBatch.from_arrays(found, schema=columns)


def plain(kind: pa.DataType) -> pa.DataType:
    """The type without the differences that tables do not store: sizes of offsets, and names of list items."""
    return _mapped(kind, _plain)


def without_short_integers(kind: pa.DataType) -> pa.DataType:
    """The type as Iceberg has it, whose shortest integer has 32 bits."""
    return _mapped(kind, _without_short_integer)


def _mapped(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type with all the types in it changed. Lists are of one kind then."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", _mapped(kind.value_type, change)))
    if pa.types.is_map(kind):
        return pa.map_(_mapped(kind.key_type, change), _mapped(kind.item_type, change))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _mapped(each.type, change)) for each in kind.fields])
    return change(kind)


def _without_short_integer(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_int8(kind) or pa.types.is_int16(kind) else kind


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    return kind
