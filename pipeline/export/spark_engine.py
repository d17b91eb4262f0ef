"""Runs the tasks of an export on Spark: a task for each split, in the cluster of the session.

Tasks write files themselves, because exactly-once depends on names, hashes and locations of files. The reports of tasks
are compared with the counts of `observe` in the same pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from pipeline.errors import Gap, PipelineError, SourceUnreadable, error_in
from pipeline.export.manifest import FileEntry
from pipeline.export.task import Done, Job, Progress, export_split
from pipeline.spark_worker import freeze_imports
from pipeline.splits import Split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FACTS = "split int, rows bigint, done binary"
_TICK_S = 0.5


class _Done(msgspec.Struct):
    files: list[FileEntry]
    gaps: list[Gap]
    malformed: int = 0


class SparkEngine:
    """Splits as tasks of one job of `session`."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def run(self, splits: list[Split], job: Job, progress: Callable[[Progress], None]) -> list[Done]:
        """See `Engine`."""
        from pyspark.errors import PySparkException
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        context = self._session.sparkContext
        records, size = context.accumulator(0), context.accumulator(0)

        def step(done: Progress) -> None:
            records.add(done.records)
            size.add(done.bytes)

        def task(numbered: tuple[int, Split]) -> tuple[int, int, bytes]:
            freeze_imports()
            number, split = numbered
            return _facts(number, export_split(split, job, step))

        counted = Observation()
        # A split is a partition. Not by way of mapInArrow, which cannot do without pandas.
        tasks = context.parallelize(list(enumerate(splits)), len(splits)).map(task)
        facts = self._session.createDataFrame(tasks, _FACTS).observe(counted, f.sum("rows").alias("rows"))
        with _ticking(lambda: (records.value, size.value), progress):
            try:
                rows = facts.collect()
            except PySparkException as error:
                raise _plain(error) from error
        dones = [_done(bytes(row["done"])) for row in rows]
        written = sum(entry.rows for done in dones for entry in done.files)
        if sorted(row["split"] for row in rows) != list(range(len(splits))) or counted.get["rows"] != written:
            raise SourceUnreadable("Spark did not run every split exactly once: this run is not valid.")
        return dones


def _facts(number: int, done: Done) -> tuple[int, int, bytes]:
    rows = sum(entry.rows for entry in done.files)
    return number, rows, msgspec.msgpack.encode(_Done(done.files, list(done.gaps), done.malformed))


def _done(body: bytes) -> Done:
    found = msgspec.msgpack.decode(body, type=_Done)
    return Done(found.files, found.gaps, found.malformed)


def _plain(error: Any) -> PipelineError:
    """The error of the task, from the text of a traceback that Spark reports."""
    said = str(error)
    return error_in(said) or SourceUnreadable(
        f"Spark could not run the export: {said.splitlines()[0] if said else type(error).__name__}"
    )


class _ticking:
    """Calls `progress` at intervals. Spark adds the progress of a task when the task ends."""

    def __init__(self, read: Callable[[], tuple[int, int]], progress: Callable[[Progress], None]) -> None:
        self._read = read
        self._progress = progress
        self._reported = (0, 0)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._report()

    def _run(self) -> None:
        while not self._ended.wait(_TICK_S):
            self._report()

    def _report(self) -> None:
        now = self._read()
        self._progress(Progress(now[0] - self._reported[0], now[1] - self._reported[1]))
        self._reported = now
