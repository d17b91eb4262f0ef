"""Batch reads: planned in the driver, read in tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pipeline.batches import Shape
from pipeline.errors import Gap
from pipeline.options import ReadOptions
from pipeline.origins import FullOrigin, open_origin
from pipeline.planning import Range, batch_ranges, splits_for, wanted
from pipeline.source.typed import Typed
from pipeline.split_reader import OnGap, SplitReader, fail_on_gap
from pipeline.splits import Split

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log = logging.getLogger("pipeline")


class SplitPartition(InputPartition):
    """A split in the form that Spark sends to a task."""

    def __init__(self, split: Split) -> None:
        super().__init__(None)
        self.split = split


def on_gap_of(options: ReadOptions) -> OnGap:
    """The reaction to a gap: fail, or log a warning, as the options say."""
    return fail_on_gap if options.fail_on_loss else _report


def _report(gap: Gap) -> None:
    _log.warning("records are lost, and failOnDataLoss is false: %s", gap.sentence())


def read_partition(options: ReadOptions, typed: Typed | None, partition: Any) -> Iterator[pa.RecordBatch]:
    """The records of a split. If there is nothing to read, Spark runs a task without a partition."""
    if not isinstance(partition, SplitPartition):
        return
    with open_origin(url=options.url, token=options.token, path=options.path, cold_path=options.cold_path) as origin:
        reader = SplitReader(
            origin,
            partition.split,
            Shape(options.headers, options.create_time),
            on_gap_of(options),
            options.fetch_concurrency,
        )
        for batch in reader.batches():
            yield typed.widen(batch) if typed is not None else batch


class BatchReader(DataSourceReader):
    """Reads everything from the first to the last requested offset, as of the planning of the query."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._typed = Typed.of(schema, options)

    def narrowed(self, origin: FullOrigin, found: Range) -> Range:
        """The part of a range that can contain records for the query."""
        return found

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with open_origin(
            url=options.url, token=options.token, path=options.path, cold_path=options.cold_path
        ) as origin:
            ranges = [
                self.narrowed(origin, each)
                for topic in wanted(origin, options)
                for each in batch_ranges(origin, topic, options)
            ]
            return [SplitPartition(split) for split in splits_for(origin, ranges, options, on_gap_of(options))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, self._typed, partition)
