"""Batch reads: planned in the driver, read in tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pipeline.errors import Gap, NotDurable, counted, log_name
from pipeline.options import ReadOptions
from pipeline.origins import FullOrigin, open_origin
from pipeline.planning import Range, batch_ranges, splits_for, wanted_first
from pipeline.spark_worker import freeze_imports
from pipeline.split_reader import OnGap, SplitReader, fail_on_gap
from pipeline.splits import Split
from pipeline.values import DROP_MALFORMED, Tally
from pipeline.view import LogView

if TYPE_CHECKING:
    import pyarrow as pa

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


def refuse_memory(topic: str, views: Iterable[LogView], options: ReadOptions) -> None:
    """Raises NotDurable for an ephemeral topic, or logs a warning, as the options say."""
    error = NotDurable(topic, sum(each.head_seq - each.durable_seq for each in views), reads=True)
    if options.fail_on_loss:
        raise error
    _log.warning("records are missing, and failOnDataLoss is false: %s", error)


def read_partition(options: ReadOptions, partition: Any) -> Iterator[pa.RecordBatch]:
    """The records of a split. If there is nothing to read, Spark runs a task without a partition."""
    if not isinstance(partition, SplitPartition):
        return
    freeze_imports()
    split = partition.split
    with open_origin(url=options.url, token=options.token, path=options.path, cold_path=options.cold_path) as origin:
        reader = SplitReader(origin, split, options.shape, on_gap_of(options), options.fetch_concurrency)
        for batch in reader.batches():
            yield batch.rename_columns(list(options.spelling)) if options.spelling else batch
    if reader.tally.malformed:
        _log.warning("%s", misfits_said(reader.tally, options, split))


def misfits_said(tally: Tally, options: ReadOptions, split: Split) -> str:
    """How many values of a split were malformed, and what became of them."""
    assert options.values is not None
    dropped = options.values.mode == DROP_MALFORMED
    return (
        f"{log_name(split.topic, split.partition)}, seqs {split.start} to {split.end - 1}: "
        f"{counted(tally.malformed, 'value', 'does|do')} not fit valueSchema; "
        f"{'their records are left out' if dropped else 'their typed columns are null'}"
    )


class BatchReader(DataSourceReader):
    """Reads everything from the first to the last requested offset, as of the planning of the query."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def narrowed(self, origin: FullOrigin, found: Range) -> Range:
        """The part of a range that can contain records for the query."""
        return found

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with open_origin(
            url=options.url, token=options.token, path=options.path, cold_path=options.cold_path, first="url"
        ) as origin:
            ranges: list[Range] = []
            for topic in wanted_first(origin, options):
                found = batch_ranges(origin, topic, options)
                # A read that ends before does not want what is only in memory.
                whole = [each.view for each in found if each.end >= each.view.end]
                if any(each.head_seq > each.durable_seq for each in whole) and origin.is_ephemeral(topic):
                    refuse_memory(topic, whole, options)
                ranges += [self.narrowed(origin, each) for each in found]
            return [SplitPartition(split) for split in splits_for(origin, ranges, options, on_gap_of(options))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition)
