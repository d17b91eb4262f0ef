"""Makes Arrow columns from the pieces of JSON text that the kernel has found. Pure.

A piece that is missing, or `null`, is null. A piece that is not of the column's type does not fit: `fits` is False
there (and the column has anything). A string column takes any piece: strings as they are, all others as JSON text.

Source: docs/guides/spark.md#typed-columns.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import kernel
from kernel import JsonColumn, JsonKind, Moment
from pipeline.values.arrow_types import arrow_field, arrow_type
from topics_client.column_types import Array, ColumnType, Decimal, Field, Map, Scalar, Struct

Numbers: TypeAlias = "np.ndarray[Any, Any]"

_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
_DAY_US = 86_400_000_000
#: What Spark takes for a number that is none: its JSON reader does so, too.
_NOT_FINITE = {
    b"NaN": float("nan"),
    **dict.fromkeys((b"Infinity", b"+Infinity", b"INF", b"+INF"), float("inf")),
    **dict.fromkeys((b"-Infinity", b"-INF"), float("-inf")),
}


class Pieces(NamedTuple):
    """Pieces of `data`, one a row, and their kinds."""

    data: kernel.Buffer
    starts: Numbers
    ends: Numbers
    kinds: Numbers

    @property
    def column(self) -> JsonColumn:
        """As the kernel takes them."""
        return JsonColumn(_bytes(self.starts), _bytes(self.ends), _bytes(self.kinds))

    @property
    def given(self) -> Numbers:
        """Where there is a value other than null."""
        return self.kinds > JsonKind.NULL

    def only(self, *kinds: JsonKind) -> Pieces:
        """The pieces of these kinds; all others are nothing."""
        chosen = np.zeros(max(JsonKind) + 1, np.uint8)
        chosen[[*kinds]] = kinds
        return self._replace(kinds=chosen[self.kinds])

    def without_escapes(self) -> Pieces:
        """The same, but with strings without escapes."""
        if not (self.kinds == JsonKind.ESCAPED).any():
            return self
        offsets, text, fits = kernel.json_texts(self.data, self.column)
        borders = np.frombuffer(offsets, np.int32).astype(np.uint64)
        kinds = np.where(self.kinds == JsonKind.ESCAPED, JsonKind.TEXT, self.kinds)
        # A string with half of a surrogate pair has no text, and fits nothing that has one.
        kinds[(np.frombuffer(fits, np.uint8) == 0) & (kinds == JsonKind.TEXT)] = JsonKind.OBJECT
        return Pieces(text, borders[:-1], borders[1:], kinds.astype(np.uint8))


class Converted(NamedTuple):
    """A column, and where its pieces fit."""

    array: pa.Array
    fits: Numbers


def pieces_of(data: kernel.Buffer, column: JsonColumn) -> Pieces:
    """The pieces that the kernel has found."""
    starts, ends = (np.frombuffer(each, np.uint64) for each in column[:2])
    return Pieces(data, starts, ends, np.frombuffer(column.kinds, np.uint8))


def _bytes(numbers: Numbers) -> memoryview:
    return np.ascontiguousarray(numbers).data.cast("B") if len(numbers) else memoryview(b"")


def members_of(
    data: kernel.Buffer, starts: Numbers, ends: Numbers, fields: Sequence[Field], *, sure: bool = False
) -> tuple[Numbers, list[Pieces]]:
    """The kinds of the values in the rows, and the pieces of each field. `sure`: the rows were checked before."""
    names = [each.name.encode() for each in fields]
    found = kernel.json_members(data, _bytes(starts), _bytes(ends), names, sure=sure)
    return np.frombuffer(found.kinds, np.uint8), [pieces_of(data, each) for each in found.members]


def convert(kind: ColumnType, pieces: Pieces) -> Converted:
    """The pieces as a column of this type."""
    if isinstance(kind, Decimal):
        return _decimals(kind, pieces)
    if isinstance(kind, Array):
        return _arrays(kind, pieces)
    if isinstance(kind, Map):
        return _maps(kind, pieces)
    if isinstance(kind, Struct):
        return _structs(kind, pieces)
    return _SCALARS[kind.name](kind, pieces)


def _bitmap(valid: Numbers) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())


def _from_numbers(kind: pa.DataType, numbers: Any, valid: Numbers) -> pa.Array:
    return pa.Array.from_buffers(kind, len(valid), [_bitmap(valid), pa.py_buffer(numbers)])


def _fit(pieces: Pieces, valid: Numbers) -> Numbers:
    """Where there is a valid value, or none."""
    return valid | ~pieces.given


def _booleans(kind: Scalar, pieces: Pieces) -> Converted:
    valid = (pieces.kinds == JsonKind.TRUE) | (pieces.kinds == JsonKind.FALSE)
    return Converted(pa.array(pieces.kinds == JsonKind.TRUE, mask=~valid), _fit(pieces, valid))


def _integers(kind: Scalar, pieces: Pieces) -> Converted:
    numbers, fits = kernel.json_integers(pieces.data, pieces.column, _BITS[kind.name])
    valid = np.frombuffer(fits, np.bool_)
    wanted = arrow_type(kind)
    values: Any = numbers
    if wanted != pa.int64():
        values = np.frombuffer(numbers, np.int64).astype(wanted.to_pandas_dtype())
    return Converted(_from_numbers(wanted, values, valid), _fit(pieces, valid))


def _decimals(kind: Decimal, pieces: Pieces) -> Converted:
    plain = pieces.without_escapes()
    numbers, fits = kernel.json_decimals(plain.data, plain.column, kind.precision, kind.scale)
    valid = np.frombuffer(fits, np.bool_)
    return Converted(_from_numbers(arrow_type(kind), numbers, valid), _fit(pieces, valid))


def _floats(kind: Scalar, pieces: Pieces) -> Converted:
    plain = pieces.only(JsonKind.INTEGER, JsonKind.NUMBER)
    valid = plain.given
    texts, _ = _text_array(plain, valid)
    values = pc.cast(texts, pa.float64())
    named = np.flatnonzero((pieces.kinds == JsonKind.TEXT) | (pieces.kinds == JsonKind.ESCAPED))
    if len(named):
        values, valid = _with_named(values, valid, pieces, named)
    if kind.name == "float":
        # In two steps: Spark's reader also goes through a double. What is too large becomes infinite.
        with np.errstate(over="ignore"):
            narrow = values.fill_null(0.0).to_numpy(zero_copy_only=False).astype(np.float32)
        values = _from_numbers(pa.float32(), narrow, valid)
    return Converted(values, _fit(pieces, valid))


def _with_named(values: pa.Array, valid: Numbers, pieces: Pieces, named: Numbers) -> tuple[pa.Array, Numbers]:
    """The numbers, and those strings that name one."""
    data, valid = memoryview(pieces.data), valid.copy()
    numbers = values.fill_null(0.0).to_numpy(zero_copy_only=False).copy()
    for row in named.tolist():
        number = _NOT_FINITE.get(bytes(data[int(pieces.starts[row]) : int(pieces.ends[row])]))
        if number is not None:
            numbers[row], valid[row] = number, True
    return _from_numbers(pa.float64(), numbers, valid), valid


def _text_array(pieces: Pieces, valid: Numbers) -> tuple[pa.Array, Numbers]:
    """The texts of the pieces, and where they are text."""
    offsets, text, fits = kernel.json_texts(pieces.data, pieces.column)
    buffers = [_bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.string(), len(valid), buffers), np.frombuffer(fits, np.bool_)


def _texts(kind: Scalar, pieces: Pieces) -> Converted:
    return Converted(*_text_array(pieces, pieces.given))


def _binaries(kind: Scalar, pieces: Pieces) -> Converted:
    plain = pieces.only(JsonKind.TEXT, JsonKind.ESCAPED)
    texts, are_text = _text_array(plain, plain.given)
    values: list[bytes | None] = []
    for text, is_text in zip(texts.to_pylist(), are_text.tolist(), strict=True):
        try:
            values.append(b64decode(text, validate=True) if text is not None and is_text else None)
        except (binascii.Error, ValueError):
            values.append(None)
    found = pa.array(values, pa.binary())
    return Converted(found, _fit(pieces, found.is_valid().to_numpy(zero_copy_only=False)))


def _moments(pieces: Pieces) -> tuple[Numbers, Numbers]:
    plain = pieces.without_escapes()
    micros, kinds = kernel.json_moments(plain.data, plain.column)
    return np.frombuffer(micros, np.int64), np.frombuffer(kinds, np.uint8)


def _dates(kind: Scalar, pieces: Pieces) -> Converted:
    micros, kinds = _moments(pieces)
    valid = kinds == Moment.DATE
    return Converted(_from_numbers(pa.date32(), (micros // _DAY_US).astype(np.int32), valid), _fit(pieces, valid))


def _timestamps(kind: Scalar, pieces: Pieces) -> Converted:
    micros, kinds = _moments(pieces)
    valid = kinds != Moment.NONE
    if kind.name == "timestamp_ntz":
        valid &= kinds != Moment.ZONED
    return Converted(_from_numbers(arrow_type(kind), micros, valid), _fit(pieces, valid))


_SCALARS: dict[str, Callable[[Scalar, Pieces], Converted]] = {
    "boolean": _booleans,
    **dict.fromkeys(_BITS, _integers),
    "float": _floats,
    "double": _floats,
    "string": _texts,
    "binary": _binaries,
    "date": _dates,
    "timestamp": _timestamps,
    "timestamp_ntz": _timestamps,
}


# -- types with parts -------------------------------------------------------------------------------------------------


def _ranges_where(pieces: Pieces, chosen: Numbers) -> tuple[Numbers, Numbers]:
    return np.where(chosen, pieces.starts, 0).astype(np.uint64), np.where(chosen, pieces.ends, 0).astype(np.uint64)


def _structs(kind: Struct, pieces: Pieces) -> Converted:
    valid = pieces.kinds == JsonKind.OBJECT
    kinds, members = members_of(pieces.data, *_ranges_where(pieces, valid), kind.fields)
    valid &= kinds == JsonKind.OBJECT
    parts = [convert(field.type, each) for field, each in zip(kind.fields, members, strict=True)]
    fits = _fit(pieces, valid)
    for part in parts:
        fits = fits & part.fits
    fields = [arrow_field(each) for each in kind.fields]
    mask = None if valid.all() else pa.array(~valid)
    return Converted(pa.StructArray.from_arrays([part.array for part in parts], fields=fields, mask=mask), fits)


def _elements(pieces: Pieces, valid: Numbers) -> tuple[Numbers, Numbers, kernel.JsonElements]:
    """Where the valid pieces are JSON, the counts of elements in each row, and the elements."""
    starts, ends = _ranges_where(pieces, valid)
    found = kernel.json_elements(pieces.data, _bytes(starts), _bytes(ends))
    counts = np.frombuffer(found.counts, np.uint64).astype(np.int64)
    if len(empty := np.flatnonzero(valid & (counts == 0))):
        kinds, _ = members_of(pieces.data, starts[empty], ends[empty], [])
        valid = valid.copy()
        valid[empty] = kinds != JsonKind.NONE
    return valid, counts, found


def _all_of(counts: Numbers, fits: Numbers) -> Numbers:
    """For each row, whether all its elements fit."""
    if fits.all():
        return np.ones(len(counts), np.bool_)
    owners = np.repeat(np.arange(len(counts)), counts)
    return np.bincount(owners[~fits], minlength=len(counts)) == 0


def _borders(counts: Numbers, valid: Numbers) -> pa.Array:
    """Offsets; one that is null makes its row null."""
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))).astype(np.int32)
    return pa.array(offsets, pa.int32(), mask=np.append(~valid, False))


def _arrays(kind: Array, pieces: Pieces) -> Converted:
    valid = pieces.kinds == JsonKind.ARRAY
    valid, counts, found = _elements(pieces, valid)
    values = convert(kind.element, pieces_of(pieces.data, found.elements))
    array = pa.ListArray.from_arrays(_borders(counts, valid), values.array, type=arrow_type(kind))
    return Converted(array, _fit(pieces, valid) & _all_of(counts, values.fits))


def _maps(kind: Map, pieces: Pieces) -> Converted:
    valid = pieces.kinds == JsonKind.OBJECT
    valid, counts, found = _elements(pieces, valid)
    names = convert(Scalar("string"), pieces_of(pieces.data, found.names))
    values = convert(kind.value, pieces_of(pieces.data, found.elements))
    fits = _fit(pieces, valid) & _all_of(counts, names.fits & values.fits)
    keys, items = names.array, values.array
    last = _last_of_each(counts, keys)
    if last is not None:
        owners = np.repeat(np.arange(len(counts)), counts)[last]
        counts = np.bincount(owners, minlength=len(counts))
        keys, items = keys.take(pa.array(last)), items.take(pa.array(last))
    return Converted(pa.MapArray.from_arrays(_borders(counts, valid), keys, items, type=arrow_type(kind)), fits)


def _last_of_each(counts: Numbers, keys: pa.Array) -> Numbers | None:
    """The indexes of members that no later one of the same object replaces. None: all."""
    numbers = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    owners = np.repeat(np.arange(len(counts)), counts)
    pairs = owners * (int(numbers.max(initial=0)) + 1) + numbers
    _, first = np.unique(pairs[::-1], return_index=True)
    return None if len(first) == len(pairs) else np.sort(len(pairs) - 1 - first)
