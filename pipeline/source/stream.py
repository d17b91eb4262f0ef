"""Streaming reads: offsets are {topic: {partition: {epoch, seq, cluster_id}}}, seq the first one not yet read.

The records of a batch, and their tasks, depend only on its two offsets: a repeated batch has the same records in the
same tasks. A new topic (that matches a pattern) is read from its beginning, an added partition from its first seq. A
topic or partition that was removed is a loss, and leaves the offsets, so it is told once. `commit` is not a bookmark:
it is called one batch late, and never for the last one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
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

from pipeline.admission import Delay, Offset, Offsets, advance, at_seq, is_other, why_other
from pipeline.broker import TopicMissing
from pipeline.errors import DELETED, RECREATED, BadOption, Gap, SourceUnreadable, log_name
from pipeline.options import ReadOptions
from pipeline.origins import FullOrigin, open_origin
from pipeline.planning import Range, earliest, gaps_of, starting, wanted, wanted_first, wanted_partitions
from pipeline.source.batch import SplitPartition, on_gap_of, read_partition, refuse_memory
from pipeline.split_reader import fail_on_gap
from pipeline.splits import even_splits_of
from pipeline.view import LogView

if TYPE_CHECKING:
    import pyarrow as pa

#: The most seqs that a task of a stream reads.
TASK_SEQS = 100_000

_log = logging.getLogger("pipeline")


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
        #: Topics whose durability was looked at, and those that are missing, which is said once.
        self._looked_at: set[str] = set()
        self._missing: set[str] = set()
        #: Whether the broker has answered. From then on, the stream waits for it while it restarts.
        self._is_reached = False

    def initialOffset(self) -> Offsets:
        with self._origin() as origin:
            topics = wanted_first(origin, self._options)
            self._look_at_memory(origin, topics)
            return {
                topic: {
                    str(at): self._first(origin, topic, at) for at in wanted_partitions(origin, topic, self._options)
                }
                for topic in topics
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
            start = self._without_deleted(origin, start, ends)
            self._check_missing(origin, start, ends)
            self._look_at_memory(origin, ends)
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
        # Offsets of what the options no longer name stay.
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

    @contextmanager
    def _origin(self) -> Generator[FullOrigin]:
        first = "" if self._is_reached else "url"
        with open_origin(url=self._options.url, token=self._options.token, first=first) as origin:
            self._is_reached = True
            yield origin

    def _first(self, origin: FullOrigin, topic: str, partition: int) -> Offset:
        view = origin.view(topic, partition)
        seq = starting(origin, topic, view, self._options, "latest")
        if seq > view.end and origin.is_ephemeral(topic):
            seq = view.end  # what was evicted was only in memory, too
        return at_seq(view, seq)

    def _start_of_new(self, origin: FullOrigin, topic: str, at: str, known: dict[str, Offset] | None) -> Offset:
        """The start offset of a topic or partition that did not exist when the stream began."""
        view = origin.view(topic, int(at))
        return at_seq(view, _beginning(view, known is not None))

    def _ends(self) -> Offsets:
        """The ends of what is there: `latestOffset` handles what is missing."""
        with self._origin() as origin:
            ends: Offsets = {}
            for topic in wanted(origin, self._options):
                try:
                    views = [origin.view(topic, at) for at in self._there(origin, topic)]
                except TopicMissing:
                    continue
                ends[topic] = {str(view.partition): at_seq(view, view.end) for view in views}
            return ends

    def _there(self, origin: FullOrigin, topic: str) -> list[int]:
        everything = range(origin.partitions(topic))
        chosen = self._options.assigned.get(topic, everything)
        return [at for at in everything if at in chosen]

    def _without_deleted(self, origin: FullOrigin, start: Offsets, ends: Offsets) -> Offsets:
        """The offsets without topics and partitions that no longer exist. Each of these is a loss."""
        left: Offsets = {}
        for topic, partitions in start.items():
            missing = [at for at in partitions if at not in ends.get(topic, {}) and self._wants(topic, int(at))]
            # The ends may be older, and a list of topics has only those that the token may read: ask.
            count = _count(origin, topic) if missing else 0
            gone = [at for at in missing if int(at) >= count]
            if gone:
                self._missing.add(topic)
            for at in gone:
                seq = partitions[at]["seq"]
                self._lost(Gap(topic, int(at), seq, seq, RECREATED if count else DELETED))
            if rest := {at: each for at, each in partitions.items() if at not in gone}:
                left[topic] = rest
        return left

    def _wants(self, topic: str, partition: int) -> bool:
        """Whether the options name a partition. A query may be started again with others."""
        options = self._options
        if options.pattern is not None:
            return re.fullmatch(options.pattern, topic) is not None
        return topic in options.topics and partition in options.assigned.get(topic, (partition,))

    def _check_missing(self, origin: FullOrigin, start: Offsets, ends: Offsets) -> None:
        """Refuse topics and partitions that are named, but neither exist nor were ever read."""
        for topic in self._options.topics:
            named = map(str, self._options.assigned.get(topic, (0,)))
            if all(at in ends.get(topic, {}) or at in start.get(topic, {}) for at in named):
                continue
            try:
                # startingOffsets apply to the start of the stream, not to partitions that were added since.
                wanted_partitions(origin, topic, replace(self._options, starting=None, starting_ts=None))
            except (TopicMissing, BadOption) as error:
                # Without failOnDataLoss it may have been read until it was deleted.
                if self._options.fail_on_loss:
                    raise
                if topic not in self._missing:
                    self._missing.add(topic)
                    _log.warning("%s It is read when it exists.", error)

    def _look_at_memory(self, origin: FullOrigin, topics: Iterable[str]) -> None:
        """Refuse ephemeral topics, also empty ones: a stream would never get a record of them."""
        for topic in topics:
            if topic not in self._looked_at and origin.is_ephemeral(topic):
                refuse_memory(topic, [origin.view(topic, at) for at in self._there(origin, topic)], self._options)
            self._looked_at.add(topic)

    def _range(
        self, origin: FullOrigin, topic: str, partition: int, known: dict[str, Offset] | None, last: Offset
    ) -> Range | None:
        start = known.get(str(partition)) if known is not None else None
        first: Offset = start if start is not None else {**last, "seq": 1}
        is_empty = first["seq"] == last["seq"] and not is_other(first, last)
        try:
            view = origin.view(topic, partition)
        except TopicMissing:
            if start is not None and not is_empty:
                self._lost(Gap(topic, partition, first["seq"], last["seq"] - 1, DELETED))
            return None
        begin = first["seq"]
        there = at_seq(view, view.end)
        if is_other(there, last):
            # A repeated batch after the topic was created again: its records no longer exist.
            if not is_empty:
                self._lost(Gap(topic, partition, begin, last["seq"] - 1, why_other(there, last)))
            return None
        if is_other(first, last):
            self._lost(Gap(topic, partition, begin, max(begin, last["seq"] - 1), why_other(first, last)))
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


def _count(origin: FullOrigin, topic: str) -> int:
    """The number of partitions; 0: the topic does not exist."""
    try:
        return origin.partitions(topic)
    except TopicMissing:
        return 0


def _beginning(view: LogView, added: bool) -> int:
    """The first seq of a topic or partition that is new to a stream. In a partition that was `added` to a topic,
    records that are gone are reported as a loss; a new topic begins with its existing records."""
    return 1 if added else earliest(view)


__all__ = ["StreamReader"]
