"""Typed columns of JSON values: schemas, parsing, and what happens to values that do not fit."""

from pipeline.values.arrow_types import arrow_field, arrow_type
from pipeline.values.ddl import MAX_DEPTH, check_names, parse_schema
from pipeline.values.typed import (
    CORRUPT,
    DROP_MALFORMED,
    FAIL_FAST,
    MODES,
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
    "MAX_DEPTH",
    "MODES",
    "PERMISSIVE",
    "Column",
    "Parsed",
    "Tally",
    "Texts",
    "ValueShape",
    "arrow_field",
    "arrow_type",
    "check_names",
    "parse",
    "parse_schema",
    "refuse",
    "value_shape",
]
