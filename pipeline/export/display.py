"""The output of an export: a progress line on a terminal, and a table at the end."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from pipeline.errors import PipelineError, counted
from pipeline.export import task
from pipeline.export.exporter import Outcome

#: The width of output that is not a terminal.
_UNFOLDED = 1000


class _Rate(ProgressColumn):
    """Records a second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed or 0:,.0f} records/s")


class Display:
    """Progress of an export on stderr: records/s, bytes, topics left, ETA. Only on a terminal."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            _Rate(),
            TextColumn("{task.fields[size]}"),
            TextColumn("{task.fields[left]}"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("exporting", total=None, size="", left="")
        self._left: set[str] = set()
        self._bytes = 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def plan(self, todo: Mapping[str, int]) -> None:
        """Set the most records to export of each topic."""
        self._left = set(todo)
        self._bar.update(self._task, total=sum(todo.values()) or None)
        self._show()

    def progress(self, topic: str, step: task.Progress) -> None:
        """Add progress of a topic."""
        self._bytes += step.bytes
        self._bar.update(self._task, description=topic, advance=step.records, size=f"{size(self._bytes)} read")

    def done(self, topic: str) -> None:
        """A topic is complete or has failed."""
        self._left.discard(topic)
        self._show()

    def say(self, text: str) -> None:
        """Print a message above the line."""
        self._bar.console.print(text, style="dim", markup=False, soft_wrap=True)

    def _show(self) -> None:
        count = len(self._left)
        self._bar.update(self._task, left=f"{counted(count, 'topic')} left")


def size(count: float) -> str:
    """Format bytes in a unit with few digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def grid(*headings: str) -> Table:
    """A table without lines. Headings with > are of numbers. Long names are folded, not cut."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        number = heading.startswith(">")
        table.add_column(
            heading.removeprefix(">"), justify="right" if number else "left", no_wrap=number, overflow="fold"
        )
    return table


def show(table: Table) -> None:
    """Print a table on stdout; as wide as it needs to be if stdout is not a terminal."""
    Console(highlight=False, width=None if sys.stdout.isatty() else _UNFOLDED).print(table)


def summary(outcomes: Sequence[Outcome], failed: Mapping[str, PipelineError]) -> None:
    """Print the result of each topic."""
    losses = [sum(gap.missed_estimate for gap in each.gaps) for each in outcomes]
    # These columns are shown only if they are not 0 everywhere, so that losses are noticed.
    table = grid(
        "topic",
        ">records",
        ">bytes",
        ">files",
        ">up to seq",
        *([">lost at most"] if any(losses) else []),
        *([">malformed"] if any(each.malformed for each in outcomes) else []),
        ">seconds",
        ">records/s",
    )
    for each, lost in zip(outcomes, losses, strict=True):
        rate = f"{each.records / each.seconds:,.0f}" if each.records and each.seconds else ""
        table.add_row(
            each.topic,
            f"{each.records:,}",
            size(each.bytes),
            f"{each.files:,}",
            f"{each.end - 1:,}" + (f" in {each.partitions} partitions" if each.partitions > 1 else ""),
            *([f"{lost:,}"] if any(losses) else []),
            *([f"{each.malformed:,}"] if any(each.malformed for each in outcomes) else []),
            f"{each.seconds:.1f}",
            rate,
        )
    if outcomes:
        show(table)
    errors = Console(stderr=True, highlight=False)
    for text in (text for each in outcomes for text in [*(gap.sentence() for gap in each.gaps), *each.warnings]):
        errors.print(f"Warning: {text}", style="yellow", markup=False, soft_wrap=True)
    for topic, error in failed.items():
        text = str(error)
        named = text if text.startswith(f"{topic}:") else f"{topic}: {text}"
        errors.print(f"Error: {named}", style="red", markup=False, soft_wrap=True)
