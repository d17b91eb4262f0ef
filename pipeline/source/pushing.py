"""The filters of a query narrow what is fetched, and what is passed on to Spark.

Bounds of offset, seq and timestamp narrow the range that is fetched; a filter on topic or partition leaves logs out.
All filters that `pipeline.filters` knows, also on typed columns, are applied to the batches before Spark gets them.

Spark fails a query with a reader that has `pushFilters` while `spark.sql.python.filterPushdown.enabled` is off, so this
class is used only if Spark is about to push filters. All filters are returned to Spark, which still applies them: what
is read here may be more than the filters let through, but not less.

Spark (up to 4.3) keeps one plan of a read for each frame that `load()` returns. Every query of that frame uses the plan
that was made last, whatever its own filters are. So filters are used only with the option pushFilters: a program says
with it that no frame has several queries, or several filters in one query.

Segments are in order of commit times, so bounds of create times (option timestampType) narrow no range.

Source: docs/guides/spark.md#columns-and-filters.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from pipeline import filters as known
from pipeline.filters import Condition, filtered
from pipeline.options import ReadOptions
from pipeline.origins import FullOrigin
from pipeline.planning import Range, seq_at
from pipeline.source.batch import BatchReader

if TYPE_CHECKING:
    import pyarrow as pa

_PUSHING_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
#: The number to add to a column's value for a seq.
_TO_SEQ = {"seq": 0, "offset": 1}
_KINDS: list[tuple[type[Any], str]] = [
    (EqualTo, known.EQUAL),
    (EqualNullSafe, known.SAFE_EQUAL),
    (LessThan, known.LESS),
    (LessThanOrEqual, known.LESS_EQUAL),
    (GreaterThan, known.GREATER),
    (GreaterThanOrEqual, known.GREATER_EQUAL),
    (In, known.IN),
    (IsNull, known.IS_NULL),
    (IsNotNull, known.IS_NOT_NULL),
    (StringStartsWith, known.STARTS),
    (StringEndsWith, known.ENDS),
    (StringContains, known.CONTAINS),
]


#: Spark passes filters on in Java's calendar, which lacks the days from 1582-10-05 to 1582-10-14: it makes all of them
#: 1582-10-15. Times have the zone of the session then, so their days may be others in UTC.
_UNSURE_DAYS = (date(1582, 10, 14), date(1582, 10, 16))


def is_pushing() -> bool:
    """Whether Spark is about to push filters, from the caller's stack: Spark gives no other sign."""
    frame = sys._getframe()  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        spec = frame.f_globals.get("__spec__")
        if _PUSHING_WORKER in (frame.f_globals.get("__name__"), getattr(spec, "name", None)):
            return True
        frame = frame.f_back
    return False


def condition_of(filter: Filter, *, negated: bool = False) -> Condition | None:
    """The filter as the pipeline knows it. None: it does not."""
    if isinstance(filter, Not):
        return condition_of(filter.child, negated=not negated)
    for kind, word in _KINDS:
        if isinstance(filter, kind):
            path: tuple[str, ...] = getattr(filter, "attribute")  # noqa: B009
            value = getattr(filter, "value", None)
            if any(map(_is_unsure, value if isinstance(value, (tuple, list)) else (value,))):
                return None
            return Condition(path, word, value, negated)
    return None


def _is_unsure(value: Any) -> bool:
    """Whether the query may have another day or time than the one that Spark passes on."""
    if isinstance(value, datetime):
        value = value.date()
    return isinstance(value, date) and _UNSURE_DAYS[0] <= value <= _UNSURE_DAYS[1]


class PushingReader(BatchReader):
    """A batch reader that uses filters."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._first_seq = 1
        self._end_seq: int | None = None
        self._first_ms: int | None = None
        self._end_ms: int | None = None
        self._conditions: list[Condition] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for each in filters:
            condition = condition_of(each)
            if condition is not None:
                self._conditions.append(condition)
                if not condition.negated and len(condition.path) == 1:
                    self._narrow(condition)
        return filters

    def _narrow(self, condition: Condition) -> None:
        column, kind, value = condition.path[0], condition.kind, condition.value
        lower = kind in (known.EQUAL, known.GREATER, known.GREATER_EQUAL)
        upper = kind in (known.EQUAL, known.LESS, known.LESS_EQUAL)
        if column in _TO_SEQ and isinstance(value, int):
            seq = value + _TO_SEQ[column]
            if lower:
                self._first_seq = max(self._first_seq, seq)
            if upper:
                self._end_seq = seq + 1 if self._end_seq is None else min(self._end_seq, seq + 1)
        elif column == "timestamp" and not self._options.create_time and isinstance(value, datetime):
            moment = value if value.tzinfo is not None else value.astimezone(UTC)
            stamp = int(moment.timestamp() * 1000)
            if lower:
                self._first_ms = max(self._first_ms or 0, stamp - 1)
            if upper:
                self._end_ms = stamp + 2 if self._end_ms is None else min(self._end_ms, stamp + 2)

    def narrowed(self, origin: FullOrigin, found: Range) -> Range:
        if not self._reads(found):
            return replace(found, end=found.start)
        start = max(found.start, self._first_seq)
        end = found.end if self._end_seq is None else min(found.end, self._end_seq)
        if self._first_ms is not None:
            start = max(start, seq_at(origin, found.topic, found.view, self._first_ms))
        if self._end_ms is not None:
            end = min(end, seq_at(origin, found.topic, found.view, self._end_ms))
        return replace(found, start=start, end=max(start, end))

    def _reads(self, found: Range) -> bool:
        """Whether a log can have records for the query."""
        mine = {"topic": found.topic, "partition": found.view.partition}
        for path, kind, value, negated in self._conditions:
            if len(path) == 1 and path[0] in mine and kind in (known.EQUAL, known.IN):
                wanted: tuple[Any, ...] = tuple(value) if kind == known.IN else (value,)
                if (mine[path[0]] in wanted) == negated and None not in wanted:
                    return False
        return True

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in super().read(partition):
            rows = filtered(batch, self._conditions)
            if len(rows):
                yield rows
