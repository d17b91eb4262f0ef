"""Streaming reads: offsets are {topic: {partition: {epoch, seq}}}, seq the first one not yet read.

The records of a batch, and their tasks, depend only on its two offsets: a repeated batch has the same records in the
same tasks. A new topic (that matches a pattern) is read from its beginning, an added partition from its first seq, and
a removed one is a loss. `commit` is not a bookmark: it is called one batch late, and never for the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pipeline.admission import Delay, Offset, Offsets, advance, at_seq
from pipeline.broker import TopicMissing
from pipeline.errors import BadOption, Gap, SourceUnreadable, log_name
from pipeline.options import ReadOptions
from pipeline.origins import FullOrigin, open_origin
from pipeline.planning import Range, earliest, gaps_of, starting, wanted, wanted_partitions
from pipeline.source.batch import SplitPartition, on_gap_of, read_partition
from pipeline.split_reader import fail_on_gap
from pipeline.splits import even_splits_of
from pipeline.view import LogView

if TYPE_CHECKING:
    import pyarrow as pa

#: The most seqs that a task of a stream reads.
TASK_SEQS = 100_000


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one stream. It lives in the driver while the query runs."""

    def __init__(self, options: ReadOptions) -> None:
        if options.path:
            raise BadOption("A stream needs a broker (url): a path does not get new records.")
        if options.ending is not None or options.ending_ts is not None:
            raise BadOption("A stream has no end: endingOffsets and endingTimestamp are for batch reads.")
        self._options = options
        #: The offsets where Trigger.AvailableNow stops.
        self._target: Offsets | None = None
        self._delay = Delay(options.min_records, options.max_delay_ms)

    def initialOffset(self) -> Offsets:
        with self._origin() as origin:
            return {
                topic: {
                    str(at): self._first(origin, topic, at) for at in wanted_partitions(origin, topic, self._options)
                }
                for topic in wanted(origin, self._options)
            }

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark passes on one limit of Python's sources, so `latestOffset` takes minOffsetsPerTrigger from the options.
        if self._options.max_records is not None:
            return ReadMaxRows(self._options.max_records)
        return ReadAllAvailable() if self._options.min_records is None else ReadMinRows(self._options.min_records)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def reportLatestOffset(self) -> Offsets:
        return self._ends()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        ends = self._target if self._target is not None else self._ends()
        begins: Offsets = {}
        with self._origin() as origin:
            for topic, partitions in ends.items():
                known = start.get(topic)
                begins[topic] = {
                    at: (
                        known[at] if known is not None and at in known else self._start_of_new(origin, topic, at, known)
                    )
                    for at in partitions
                }
        # Spark asks for everything with Trigger.Once; with Trigger.AvailableNow nothing comes to wait for.
        if not isinstance(limit, ReadAllAvailable) and self._target is None and self._delay.holds(begins, ends):
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        moved = advance(begins, ends, most)
        # Offsets of topics that no longer exist stay.
        return {topic: start.get(topic, {}) | moved.get(topic, {}) for topic in [*start, *moved]}

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        on_gap = on_gap_of(self._options)
        with self._origin() as origin:
            ranges = [
                found
                for topic in sorted(end)
                for at in sorted(end[topic], key=int)
                if (found := self._range(origin, topic, int(at), start.get(topic), end[topic][at])) is not None
            ]
            for each in ranges:
                for gap in gaps_of(origin, each):
                    on_gap(gap)
        total = sum(each.end - each.start for each in ranges)
        most = min(TASK_SEQS, self._options.max_task_records or TASK_SEQS)
        step = max(1, min(most, -(-total // self._options.min_partitions)))
        return [
            SplitPartition(split)
            for each in ranges
            for split in even_splits_of(each.topic, each.view, each.start, each.end, step=step)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition)

    def commit(self, end: Any) -> None:
        """Does nothing: see the module."""

    def stop(self) -> None:
        """Does nothing: no resources are open."""

    # -- steps -------------------------------------------------------------------------------------------------------

    def _origin(self) -> Any:
        return open_origin(url=self._options.url, token=self._options.token)

    def _first(self, origin: FullOrigin, topic: str, partition: int) -> Offset:
        view = origin.view(topic, partition)
        seq = starting(origin, topic, view, self._options, "latest")
        return at_seq(view.epoch, min(seq, view.end) if self._options.starting is None else seq)

    def _start_of_new(self, origin: FullOrigin, topic: str, at: str, known: dict[str, Offset] | None) -> Offset:
        """The start offset of a topic or partition that did not exist when the stream began."""
        view = origin.view(topic, int(at))
        return at_seq(view.epoch, _beginning(view, known is not None))

    def _ends(self) -> Offsets:
        with self._origin() as origin:
            ends: Offsets = {}
            for topic in wanted(origin, self._options):
                views = [origin.view(topic, at) for at in self._there(origin, topic)]
                ends[topic] = {str(view.partition): at_seq(view.epoch, view.end) for view in views}
            return ends

    def _there(self, origin: FullOrigin, topic: str) -> list[int]:
        # startingOffsets apply to the start of the stream, not to partitions that were added since.
        return wanted_partitions(origin, topic, replace(self._options, starting=None, starting_ts=None))

    def _range(
        self, origin: FullOrigin, topic: str, partition: int, known: dict[str, Offset] | None, last: Offset
    ) -> Range | None:
        start = known.get(str(partition)) if known is not None else None
        try:
            view = origin.view(topic, partition)
        except TopicMissing:
            if start is None or start == last:
                return None
            self._lost(Gap(topic, partition, start["seq"], last["seq"] - 1, "deleted"))
            return None
        first = start if start is not None else at_seq(last["epoch"], 1)
        if view.epoch != last["epoch"]:
            # A repeated batch after the topic was created again: its records no longer exist.
            if first != last:
                self._lost(Gap(topic, partition, first["seq"], last["seq"] - 1, "recreated"))
            return None
        begin = first["seq"]
        if first["epoch"] != last["epoch"]:
            self._lost(Gap(topic, partition, begin, max(begin, last["seq"] - 1), "recreated"))
            begin = earliest(view)
        if start is None:
            begin = _beginning(view, known is not None)
        if last["seq"] > view.end:
            raise SourceUnreadable(
                f"{log_name(topic, partition)}: the stream was at seq {last['seq']}, but the last durable seq is "
                f"{view.durable_seq}. Durable records are missing: check whether this is the same broker "
                "and data."
            )
        return Range(topic=topic, view=view, start=begin, end=max(begin, last["seq"]))

    def _lost(self, gap: Gap) -> None:
        if self._options.fail_on_loss:
            fail_on_gap(gap)
        on_gap_of(self._options)(gap)


def _beginning(view: LogView, added: bool) -> int:
    """The first seq of a topic or partition that is new to a stream. In a partition that was `added` to a topic,
    records that are gone are reported as a loss; a new topic begins with its existing records."""
    return 1 if added else earliest(view)


__all__ = ["StreamReader"]
