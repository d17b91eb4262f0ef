"""Exports to one place, and what readers of its manifests find there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow.parquet as pq
from typer.testing import CliRunner

from pipeline.broker import Broker
from pipeline.cli import app
from pipeline.export.arrow_engine import ArrowEngine
from pipeline.export.chains import chain_of
from pipeline.export.exporter import Exporter, Limits, Outcome
from pipeline.export.manifest import Chain
from pipeline.export.parts import PartSettings
from pipeline.export.publication import whereabouts
from pipeline.export.store import Store, open_store
from pipeline.export.task import Done, Engine, Job, Progress
from pipeline.splits import Split


def ended_pid() -> int:
    """The pid of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def command(*arguments: str, status: int = 0) -> str:
    """The output of `python -m pipeline`, which must end with that exit status."""
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    assert result.exit_code == status, (result.exit_code, result.output, result.exception)
    return result.output


def aged(table: Path, days: int) -> None:
    """Make it look as if the files of a Delta table had been written, and replaced, so many days earlier."""
    for commit in (table / "_delta_log").glob("*.json"):
        commit.write_text(
            re.sub(
                r'"deletionTimestamp":(\d+)',
                lambda found: f'"deletionTimestamp":{int(found[1]) - days * 86_400_000}',
                commit.read_text(),
            )
        )
    for file in table.rglob("*.parquet"):
        then = file.stat().st_mtime - days * 86_400
        os.utime(file, (then, then))


class Overtaken:
    """An engine that runs a given function once, before or after its own work."""

    def __init__(self, overtake: Callable[[], object], engine: Engine | None = None, *, before: bool = False) -> None:
        self._overtake: Callable[[], object] | None = overtake
        self._engine = engine or ArrowEngine()
        self._before = before

    def run(self, splits: list[Split], job: Job, progress: Callable[[Progress], None]) -> list[Done]:
        overtake, self._overtake = self._overtake or (lambda: None), None
        if self._before:
            overtake()
        done = self._engine.run(splits, job, progress)
        if not self._before:
            overtake()
        return done


class Exports:
    """Export from the broker at `url` to `to`."""

    def __init__(self, url: str, to: str, token: str | None = None) -> None:
        self.origin = Broker(url, token)
        self.store: Store = open_store(to)
        self.job = Job(url=url, token=token, to=to, parts=PartSettings())
        self.said: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.origin.close()

    def exporter(
        self,
        *,
        store: Store | None = None,
        engine: Engine | None = None,
        pid: int | None = None,
        limits: Limits | None = None,
        **job: Any,
    ) -> Exporter:
        return Exporter(
            self.origin,
            store or self.store,
            engine or ArrowEngine(),
            replace(self.job, **job),
            limits or Limits(),
            version="test",
            pid=pid,
            say=self.said.append,
        )

    def export(self, topic: str, **settings: Any) -> Outcome:
        return self.exporter(**settings).export(topic)

    def chain(self, topic: str) -> Chain:
        return chain_of(self.store, topic)

    def rows(self, topic: str) -> list[dict[str, Any]]:
        """The rows that a reader of the manifests finds, in the order of the files."""
        found: list[dict[str, Any]] = []
        for entry in self.chain(topic).files():
            with self.store.local(whereabouts(self.store, topic, entry.file)) as path:
                found += pq.ParquetFile(path).read().to_pylist()
        return found

    def seqs(self, topic: str) -> list[int]:
        return [row["seq"] for row in self.rows(topic)]

    def seen(self, topic: str) -> list[tuple[int, int]]:
        """(partition, seq) of all rows that a plain reader of the folder finds without manifests, sorted."""
        files = sorted(Path(self.job.to).glob(f"{topic}/**/*.parquet"))
        assert all(file.stat().st_size for file in files), "a file without content"
        rows = [row for file in files for row in pq.ParquetFile(file).read(["partition", "seq"]).to_pylist()]
        return sorted((row["partition"], row["seq"]) for row in rows)

    def parts(self, topic: str) -> list[str]:
        """Every file with records, listed or not."""
        return [key for key, _ in self.store.list(topic)]

    def path(self, key: str) -> Path:
        return Path(self.job.to, key)
