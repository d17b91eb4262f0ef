"""What a Delta table knows of a file: how many records it has, and of each column the least and the greatest value and
how many values are null. Pure.

Readers leave files out by these bounds. Some take a column without bounds, if other columns have them, for one without
values, and find nothing in the file (datasets of deltalake). So a file has the bounds of all columns, or none at all.

Source: the Delta protocol, Per-file Statistics.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

#: The most characters of a bound that is a text.
TEXT = 32
_LAST_CHARACTER = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
_encoder = msgspec.json.Encoder(decimal_format="number")
#: The functions that pyarrow makes when it is imported.
_compute: Any = pc


class ColumnBounds:
    """The bounds of a file with these columns, whose rows are added in any order."""

    def __init__(self, columns: pa.Schema) -> None:
        #: Structs would need bounds of their members, and readers differ in how they use them.
        self._complete = not any(pa.types.is_struct(field.type) for field in columns)
        self._flat = [field for field in columns if not pa.types.is_nested(field.type)]
        self._rows = 0
        self._nulls = dict.fromkeys((field.name for field in self._flat), 0)
        self._low: dict[str, Any] = {}
        self._high: dict[str, Any] = {}

    def add(self, rows: pa.Table) -> None:
        """Add rows."""
        self._rows += len(rows)
        for field in self._flat if self._complete else ():
            column = rows.column(field.name)
            self._nulls[field.name] += column.null_count
            if column.null_count == len(column) or not _has_bounds(field.type):
                continue
            if pa.types.is_floating(field.type) and not _compute.all(_compute.is_finite(column)).as_py():
                self._complete = False  # JSON has neither NaN nor infinite numbers
                return
            try:
                self._widen(field.name, _compute.min_max(column).as_py())
            except (OverflowError, ValueError):
                self._complete = False  # a time that Python does not have
                return

    def stats(self) -> str:
        """The statistics of the file, as JSON."""
        found: dict[str, Any] = {"numRecords": self._rows}
        high = {name: _ceiling(value) for name, value in self._high.items()}
        if self._complete and self._rows and None not in high.values():
            low = {name: _floor(value) for name, value in self._low.items()}
            found |= {"minValues": low, "maxValues": high, "nullCount": self._nulls}
        return _encoder.encode(found).decode()

    def _widen(self, name: str, found: dict[str, Any]) -> None:
        self._low[name] = min(found["min"], self._low.get(name, found["min"]))
        self._high[name] = max(found["max"], self._high.get(name, found["max"]))


def _has_bounds(kind: pa.DataType) -> bool:
    return not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_boolean(kind))


def _floor(value: Any) -> Any:
    """The value, or one before it: texts are cut, and times have milliseconds."""
    if isinstance(value, str):
        return value[:TEXT]
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else value


def _ceiling(value: Any) -> Any:
    """The value, or one after it; None: there is none that a bound can be."""
    if isinstance(value, str) and len(value) > TEXT:
        return _after(value[:TEXT])
    if isinstance(value, datetime) and value.microsecond % 1000:
        try:
            value += timedelta(milliseconds=1)
        except OverflowError:
            return None  # the last millisecond of the year 9999
    return _floor(value)


def _after(text: str) -> str | None:
    """A text after all that begin with this one."""
    shorter = text.rstrip(chr(_LAST_CHARACTER))
    if not shorter:
        return None
    code = ord(shorter[-1]) + 1
    return shorter[:-1] + chr(_SURROGATES.stop if code in _SURROGATES else code)
