"""Columns that change over the runs of an export: they are added, and their types widened. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from pipeline.errors import BadOption


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
            "earlier exports (--headers for the column headers), or export to another --to."
        )
    added = [field for field in ours if field.name not in there.names]
    widened: list[pa.Field] = []
    for field in ours:
        if field.name not in there.names:
            continue
        old, new = plain(there.field(field.name).type), plain(field.type)
        if old == new:
            continue
        if not is_wider(old, new):
            raise BadOption(
                f"The column {field.name} of the table {table} is {old}, but this export makes it {new}: only int32 "
                "to int64, float to double, and decimals of more digits can follow. Export to another --to."
            )
        widened.append(field)
    return Changes(added, widened)


def is_wider(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether every value of the old type is one of the new, as Iceberg's type promotion defines it."""
    if pa.types.is_decimal128(old) and pa.types.is_decimal128(new):
        return new.scale == old.scale and new.precision > old.precision
    return (old, new) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


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
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", plain(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, plain(each.type)) for each in kind.fields])
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    return kind
