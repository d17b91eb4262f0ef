"""Streaming reads: offsets are {topic: {partition: {epoch, seq}}}, seq the first one not yet read.

Which records a batch has follows from its two offsets alone, so that a batch that is run again has the same ones. A
topic that appears (by a pattern) is read from its beginning; one that goes is a loss. What `commit` is told is never a
bookmark: it runs a batch late, and never hears of the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pipeline.broker import TopicMissing
from pipeline.errors import BadOption, Gap, SourceUnreadable
from pipeline.options import ReadOptions
from pipeline.origins import Place, open_origin
from pipeline.planning import Range, earliest, splits_for, starting, wanted
from pipeline.reading import fail_on_gap
from pipeline.source.batch import SplitPartition, on_gap_of, read_partition
from pipeline.source.typed import Typed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

Offsets = dict[str, dict[str, dict[str, int]]]
_PARTITION = "0"


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One stream's reader, alive in the driver as long as the query is."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        if options.path:
            raise BadOption("A stream reads from a broker (url); a path does not grow.")
        if options.ending is not None or options.ending_ts is not None:
            raise BadOption("A stream has no end: endingOffsets and endingTimestamp are for batch reads.")
        self._options = options
        self._typed = Typed.of(schema, options)
        #: Where Trigger.AvailableNow stops.
        self._target: Offsets | None = None

    def initialOffset(self) -> Offsets:
        with self._origin() as origin:
            return {topic: self._first(origin, topic) for topic in wanted(origin, self._options)}

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_records
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def reportLatestOffset(self) -> Offsets:
        return self._ends()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        ends = self._target if self._target is not None else self._ends()
        with self._origin() as origin:
            begins = {topic: start[topic] if topic in start else self._joined(origin, topic) for topic in ends}
        kept = {topic: each for topic, each in start.items() if topic not in ends}
        # A start behind the end (startingOffsets may say so) waits there; offsets never go back.
        ends = {topic: begins[topic] if _is_behind(begins[topic], each) else each for topic, each in ends.items()}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return kept | advance(begins, ends, most)

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        on_gap = on_gap_of(self._options)
        with self._origin() as origin:
            ranges = [
                each
                for topic, partitions in end.items()
                if (each := self._range(origin, topic, start.get(topic), partitions)) is not None
            ]
            return [SplitPartition(split) for split in splits_for(origin, ranges, self._options, on_gap)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, self._typed, partition)

    def commit(self, end: Any) -> None:
        """Nothing: see above."""

    def stop(self) -> None:
        """Nothing is kept open."""

    # -- steps -------------------------------------------------------------------------------------------------------

    def _origin(self) -> Any:
        return open_origin(url=self._options.url, token=self._options.token)

    def _first(self, origin: Place, topic: str) -> dict[str, dict[str, int]]:
        view = origin.view(topic)
        seq = starting(origin, topic, view, self._options, "latest")
        return _at(view.epoch, min(seq, view.end) if self._options.starting is None else seq)

    def _joined(self, origin: Place, topic: str) -> dict[str, dict[str, int]]:
        """Of a topic that was not there when the stream began: all of it."""
        view = origin.view(topic)
        return _at(view.epoch, earliest(view))

    def _ends(self) -> Offsets:
        with self._origin() as origin:
            ends: Offsets = {}
            for topic in wanted(origin, self._options):
                view = origin.view(topic)
                ends[topic] = _at(view.epoch, view.end)
            return ends

    def _range(
        self, origin: Place, topic: str, start: dict[str, dict[str, int]] | None, end: dict[str, dict[str, int]]
    ) -> Range | None:
        last = end[_PARTITION]
        try:
            view = origin.view(topic)
        except TopicMissing:
            if start is None or start == end:
                return None
            self._lost(Gap(topic, 0, start[_PARTITION]["seq"], last["seq"] - 1, "deleted"))
            return None
        first = start[_PARTITION] if start is not None else _at(last["epoch"], 1)[_PARTITION]
        if view.epoch != last["epoch"]:
            # A batch that is run again after the topic was made anew: its records are nowhere.
            if first != last:
                self._lost(Gap(topic, 0, first["seq"], last["seq"] - 1, "recreated"))
            return None
        begin = first["seq"]
        if first["epoch"] != last["epoch"]:
            self._lost(Gap(topic, 0, begin, max(begin, last["seq"] - 1), "recreated"))
            begin = earliest(view)
        if start is None:
            begin = earliest(view)
        if last["seq"] > view.end:
            raise SourceUnreadable(
                f"{topic}: the stream was at seq {last['seq']}, and the last durable seq is {view.durable_seq}. "
                "Records that were durable are not there: look whether this is the same broker and data."
            )
        return Range(topic=topic, view=view, start=begin, end=last["seq"])

    def _lost(self, gap: Gap) -> None:
        if self._options.fail_on_loss:
            fail_on_gap(gap)
        on_gap_of(self._options)(gap)


def _at(epoch: int, seq: int) -> dict[str, dict[str, int]]:
    return {_PARTITION: {"epoch": epoch, "seq": seq}}


def advance(begins: Offsets, ends: Offsets, most: int | None) -> Offsets:
    """Where a batch of at most `most` seqs ends: each topic gets its share of what waits, at least one seq. Pure."""
    waiting = {topic: _waiting(begins[topic], ends[topic]) for topic in ends}
    total = sum(waiting.values())
    if most is None or total <= most:
        return ends
    out: Offsets = {}
    left = most
    for topic in sorted(ends, key=lambda name: (waiting[name], name)):
        first, last = begins[topic][_PARTITION], ends[topic][_PARTITION]
        share = min(left, max(1, waiting[topic] * most // total)) if waiting[topic] else 0
        left -= share
        begin = first["seq"] if first["epoch"] == last["epoch"] else max(1, last["seq"] - waiting[topic])
        out[topic] = _at(last["epoch"], min(last["seq"], begin + share)) if share else begins[topic]
    return out


def _is_behind(first: dict[str, dict[str, int]], last: dict[str, dict[str, int]]) -> bool:
    begin, end = first[_PARTITION], last[_PARTITION]
    return begin["epoch"] == end["epoch"] and begin["seq"] > end["seq"]


def _waiting(first: dict[str, dict[str, int]], last: dict[str, dict[str, int]]) -> int:
    begin, end = first[_PARTITION], last[_PARTITION]
    return max(0, end["seq"] - begin["seq"]) if begin["epoch"] == end["epoch"] else max(0, end["seq"] - 1)


__all__ = ["StreamReader", "advance"]
