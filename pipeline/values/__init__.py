"""Typed columns of JSON values: schemas, parsing, and what happens to values that do not fit."""

from pipeline.values.arrow_types import arrow_field, type_named
from pipeline.values.ddl import parse_schema, with_zones
from pipeline.values.typed import (
    CORRUPT,
    DROP_MALFORMED,
    FAIL_FAST,
    PERMISSIVE,
    Column,
    Parsed,
    Tally,
    Texts,
    ValueShape,
    parse,
    refuse,
    value_shape,
)

__all__ = [
    "CORRUPT",
    "DROP_MALFORMED",
    "FAIL_FAST",
    "PERMISSIVE",
    "Column",
    "Parsed",
    "Tally",
    "Texts",
    "ValueShape",
    "arrow_field",
    "parse",
    "parse_schema",
    "refuse",
    "type_named",
    "value_shape",
    "with_zones",
]
