"""Bounds of offset, seq and timestamp in a query's filters narrow what is fetched.

Spark fails a query with a reader that has `pushFilters` while `spark.sql.python.filterPushdown.enabled` is off, so this
class is used only if Spark is about to push filters. All filters are returned to Spark, which still applies them: the
range here may be wider than the filters, but not narrower.

Segments are in order of commit times, so bounds of create times (option timestampType) narrow nothing.

Source: docs/guides/spark.md#reading.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
)

from pipeline.origins import FullOrigin
from pipeline.planning import Range, seq_at
from pipeline.source.batch import BatchReader

_PUSHING_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
#: The number to add to a column's value for a seq.
_TO_SEQ = {"seq": 0, "offset": 1}


def is_pushing() -> bool:
    """Whether Spark is about to push filters, from the caller's stack: Spark gives no other sign."""
    frame = sys._getframe()  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        spec = frame.f_globals.get("__spec__")
        if _PUSHING_WORKER in (frame.f_globals.get("__name__"), getattr(spec, "name", None)):
            return True
        frame = frame.f_back
    return False


class PushingReader(BatchReader):
    """A batch reader that uses filters."""

    _first_seq = 1
    _end_seq: int | None = None
    _first_ms: int | None = None
    _end_ms: int | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for each in filters:
            if isinstance(each, (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)):
                self._take(each, each.attribute, each.value)
        return filters

    def _take(self, filter: Filter, column: tuple[str, ...], value: Any) -> None:
        lower = isinstance(filter, (EqualTo, GreaterThan, GreaterThanOrEqual))
        upper = isinstance(filter, (EqualTo, LessThan, LessThanOrEqual))
        if column[0] in _TO_SEQ and isinstance(value, int):
            seq = value + _TO_SEQ[column[0]]
            if lower:
                self._first_seq = max(self._first_seq, seq)
            if upper:
                self._end_seq = min(self._end_seq or seq + 1, seq + 1)
        elif column[0] == "timestamp" and not self._options.create_time and isinstance(value, datetime):
            moment = value if value.tzinfo is not None else value.astimezone(UTC)
            stamp = int(moment.timestamp() * 1000)
            if lower:
                self._first_ms = max(self._first_ms or 0, stamp - 1)
            if upper:
                self._end_ms = min(self._end_ms or stamp + 2, stamp + 2)

    def narrowed(self, origin: FullOrigin, found: Range) -> Range:
        start = max(found.start, self._first_seq)
        end = found.end if self._end_seq is None else min(found.end, self._end_seq)
        if self._first_ms is not None:
            start = max(start, seq_at(origin, found.topic, found.view, self._first_ms))
        if self._end_ms is not None:
            end = min(end, seq_at(origin, found.topic, found.view, self._end_ms))
        return replace(found, start=start, end=max(start, end))
