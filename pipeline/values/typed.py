"""Typed columns of JSON values (option valueSchema), which are parsed in the pass that reads them. Pure.

A value that is not a JSON object, or has a member that does not fit its column, is malformed. A missing member is null,
and members without a column are ignored. A value of null (JSON's, or none) has null in all columns.

Source: docs/guides/spark.md#typed-columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import kernel
from kernel import JsonKind
from pipeline.errors import BadOption, ValueMalformed, log_name
from pipeline.values.arrow_types import arrow_field
from pipeline.values.convert import Numbers, convert, members_of
from pipeline.values.ddl import parse_schema
from topics_client.column_types import ColumnType, Field, Scalar, ddl_of

#: What happens to malformed values: all typed columns are null; the read fails; the record is left out.
PERMISSIVE, FAIL_FAST, DROP_MALFORMED = MODES = ("permissive", "failfast", "dropmalformed")
#: The column with the text of malformed values, unless an option gives another name.
CORRUPT = "_corrupt_record"


class Column(NamedTuple):
    """A typed column: its name, and the member of the value that is in it."""

    name: str
    member: str
    type: ColumnType

    def field(self) -> pa.Field:
        """Its Arrow field."""
        return arrow_field(Field(self.name, self.type))


class ValueShape(NamedTuple):
    """The typed columns. `corrupt`: the column with the text of malformed values; "": none is wanted."""

    columns: tuple[Column, ...]
    mode: str = PERMISSIVE
    corrupt: str = CORRUPT

    def only(self, names: Iterable[str]) -> ValueShape | None:
        """What of it is needed for columns with these names; None: nothing."""
        wanted = {*names}
        columns = tuple(each for each in self.columns if each.name in wanted)
        corrupt = self.corrupt if self.corrupt in wanted else ""
        return self._replace(columns=columns, corrupt=corrupt) if columns or corrupt else None

    def ddl(self) -> str:
        """The columns as Spark's DDL."""
        fields = [Field(each.name, each.type) for each in self.columns]
        return ddl_of([*fields, Field(self.corrupt, Scalar("string"))] if self.corrupt else fields)

    def fields(self) -> list[pa.Field]:
        """The Arrow fields, in order."""
        last = [pa.field(self.corrupt, pa.string())] if self.corrupt else []
        return [*(each.field() for each in self.columns), *last]


def value_shape(
    schema: str, taken: Iterable[str], *, mode: str = PERMISSIVE, prefix: str = "", corrupt: str = CORRUPT
) -> ValueShape:
    """The typed columns of a valueSchema. `taken`: names of columns that the record itself has.

    Raises BadOption for a schema that cannot be read, and for a name that is already taken.
    """
    if mode.lower() not in MODES:
        raise BadOption(f"mode must be {', '.join(MODES[:-1])} or {MODES[-1]}, not {mode!r}.")
    columns = tuple(Column(prefix + each.name, each.name, each.type) for each in parse_schema(schema))
    others = {name.lower(): name for name in taken}
    for each in columns:
        if each.name.lower() in others:
            raise BadOption(
                f"valueSchema has a column {each.name}, but {others[each.name.lower()]} is a column of the record. Set "
                f"valuePrefix (such as value_), which the names of all typed columns then begin with, or leave "
                f"{each.name} out."
            )
    names = {each.name.lower() for each in columns}
    if not corrupt or corrupt.lower() in names or corrupt.lower() in others:
        raise BadOption(
            f"columnNameOfCorruptRecord is {corrupt!r}, which is empty or another column. It names the column with the "
            "text of values that do not fit."
        )
    return ValueShape(columns, mode.lower(), corrupt)


class Texts(NamedTuple):
    """JSON texts in a buffer, one a row. `valid`: where there is a value at all. `sure`: each begins with the data of a
    verified frame, which the log has checked as JSON when it was appended."""

    data: kernel.Buffer
    starts: Numbers
    ends: Numbers
    valid: Numbers
    sure: bool = False

    @classmethod
    def of(cls, array: pa.Array) -> Texts:
        """The texts of a binary column."""
        _, offsets, data = array.buffers()
        borders = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.uint64)
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        return cls(memoryview(data) if data is not None else b"", borders[:-1], borders[1:], valid)

    def first(self) -> Texts:
        """Only the first of them."""
        return self._replace(starts=self.starts[:1], ends=self.ends[:1], valid=self.valid[:1])

    def text(self, row: int) -> str:
        """One of them. Bytes that are not text are replaced."""
        return bytes(memoryview(self.data)[int(self.starts[row]) : int(self.ends[row])]).decode("utf-8", "replace")


class Tally:
    """Counts malformed values."""

    def __init__(self) -> None:
        self.malformed = 0


class Parsed(NamedTuple):
    """The typed columns, in the order of `ValueShape.fields`, and the rows that are malformed."""

    arrays: list[pa.Array]
    bad: Numbers
    #: Whether each text is JSON, or there is none.
    is_json: bool


def parse(shape: ValueShape, texts: Texts) -> Parsed:
    """The typed columns of these values."""
    fields = [Field(each.member, each.type) for each in shape.columns]
    kinds, members = members_of(texts.data, texts.starts, texts.ends, fields, sure=texts.sure)
    good = kinds == JsonKind.OBJECT
    arrays: list[pa.Array] = []
    for field, pieces in zip(fields, members, strict=True):
        converted = convert(field.type, pieces)
        good = good & converted.fits
        arrays.append(converted.array)
    bad = ~good & texts.valid & (kinds != JsonKind.NULL)
    if bad.any():
        rows = pa.array(np.arange(len(bad)), mask=bad)
        arrays = [each.take(rows) for each in arrays]
    if shape.corrupt:
        arrays.append(_corrupt(texts, bad))
    return Parsed(arrays, bad, bool((kinds != JsonKind.NONE).all()))


def _corrupt(texts: Texts, bad: Numbers) -> pa.Array:
    if not bad.any():
        return pa.nulls(len(bad), pa.string())
    found: list[str | None] = [None] * len(bad)
    for row in np.flatnonzero(bad).tolist():
        found[row] = texts.text(row)
    return pa.array(found, pa.string())


def reason(shape: ValueShape, texts: Texts, row: int) -> str:
    """Why a value is malformed."""
    one = Texts(texts.data, texts.starts[row : row + 1], texts.ends[row : row + 1], texts.valid[row : row + 1])
    fields = [Field(each.member, each.type) for each in shape.columns]
    kinds, members = members_of(one.data, one.starts, one.ends, fields)
    if kinds[0] == JsonKind.NONE:
        return "it is not JSON"
    if kinds[0] != JsonKind.OBJECT:
        return f"it is not an object, but {_WORDS[JsonKind(int(kinds[0]))]}"
    for field, pieces in zip(fields, members, strict=True):
        if not convert(field.type, pieces).fits[0]:
            return f"its member {field.name} is {_WORDS[JsonKind(int(pieces.kinds[0]))]} that does not fit {field.type}"
    return "a member does not fit its column"


_WORDS = {
    JsonKind.NULL: "null",
    JsonKind.FALSE: "a boolean",
    JsonKind.TRUE: "a boolean",
    JsonKind.INTEGER: "a number",
    JsonKind.NUMBER: "a number",
    JsonKind.TEXT: "a string",
    JsonKind.ESCAPED: "a string",
    JsonKind.ARRAY: "an array",
    JsonKind.OBJECT: "an object",
}


def refuse(shape: ValueShape, texts: Texts, bad: Numbers, seqs: Any, topic: str, partition: int) -> None:
    """Raises ValueMalformed for the first of these rows."""
    row = int(np.flatnonzero(bad)[0])
    raise ValueMalformed(
        f"{log_name(topic, partition)}: the value of seq {int(seqs[row])} does not fit valueSchema: "
        f"{reason(shape, texts, row)}. With mode permissive, such values are null in typed columns, with their text in "
        f"{CORRUPT}; with dropmalformed, their records are left out."
    )
