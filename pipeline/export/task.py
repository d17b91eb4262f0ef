"""The task of one split, in the process where an engine runs it: read, verify, write files, and report them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import pyarrow as pa

from pipeline.batches import Shape
from pipeline.errors import Gap
from pipeline.export.manifest import FileEntry
from pipeline.export.parts import PartSettings, PartWriter
from pipeline.export.store import open_store
from pipeline.origins import open_origin
from pipeline.split_reader import SplitReader, fail_on_gap
from pipeline.splits import Split
from pipeline.values import ValueShape


class Progress(NamedTuple):
    """The progress since the last report."""

    records: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The settings that all tasks of an export share. Contains the key of the broker: do not log it."""

    url: str
    token: str | None = field(default=None, repr=False)
    path: str = ""
    cold_path: str = ""
    to: str
    parts: PartSettings
    catalog: str = ""
    namespace: str = "topics"
    headers: bool = False
    #: Typed columns. Every record is exported, so mode dropmalformed is not for exports.
    values: ValueShape | None = None
    fail_on_loss: bool = True
    fetch_concurrency: int = 2


class Done(NamedTuple):
    """The result of a split."""

    files: list[FileEntry]
    gaps: list[Gap]
    #: Values that do not fit the typed columns.
    malformed: int = 0


class Engine(Protocol):
    """Runs the tasks."""

    def run(self, splits: list[Split], job: Job, progress: Callable[[Progress], None]) -> list[Done]:
        """Run `export_split` for each, in any order. All are done on return. Raises PipelineError."""
        ...


def export_split(split: Split, job: Job, progress: Callable[[Progress], None] | None = None) -> Done:
    """Write the records of a split to files. They are durable on return, under staged names. Raises PipelineError."""
    gaps: list[Gap] = []
    store = open_store(job.to)
    with open_origin(url=job.url, token=job.token, path=job.path, cold_path=job.cold_path) as origin:
        on_gap = fail_on_gap if job.fail_on_loss else gaps.append
        reader = SplitReader(origin, split, Shape(job.headers, values=job.values), on_gap, job.fetch_concurrency)
        writer = PartWriter(store, job.parts, split.topic, split.partition, split.start, split.end, split.view.epoch)
        files = list(writer.write(_counted(reader.batches(), progress)))
    return Done(files, gaps, reader.tally.malformed)


def _counted(
    batches: Iterator[pa.RecordBatch], progress: Callable[[Progress], None] | None
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if progress is not None:
            progress(Progress(len(batch), batch.nbytes))
        yield batch
