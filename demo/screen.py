"""What the demonstration shows: progress while it runs, a summary at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from demo.story import Outcome

_TENTH_S = 0.1


class Screen:
    """Progress bars on a terminal; plain lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        #: Whether a person is watching.
        self.is_live = console.is_terminal

    def say(self, text: str) -> None:
        """One line, above the progress bar if there is one."""
        self._console.print(text, markup=False, highlight=False)

    @contextmanager
    def phase(self, name: str, total: int | None) -> Generator[Callable[[int], None]]:
        """Show a phase while it runs. Yields a function to call with each number of finished records."""
        if not self.is_live:
            self.say(f"{name} ...")
            yield lambda count: None
            return
        counts = (MofNCompleteColumn(), TextColumn("{task.fields[rate]}")) if total is not None else ()
        remaining = (TextColumn("ETA"), TimeRemainingColumn()) if total is not None else ()
        columns = (SpinnerColumn(), TextColumn("{task.description:<20}"), BarColumn(), *counts, *remaining)
        with Progress(*columns, console=self._console) as progress:
            task = progress.add_task(name, total=total, rate="")
            began_s = time.monotonic()
            done, shown_s = 0, began_s

            def advance(count: int) -> None:
                nonlocal done, shown_s
                done += count
                now_s = time.monotonic()
                # Drawing costs more than a batch does. The last state is always drawn.
                if now_s - shown_s >= _TENTH_S or done == total:
                    shown_s = now_s
                    progress.update(task, completed=done, rate=f"{done / (now_s - began_s):,.0f} records/s")

            yield advance
            if total is None:
                progress.update(task, total=1, completed=1)

    def summary(self, outcome: Outcome) -> None:
        """Print the figures and the verdict."""
        verdict = outcome.verdict
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column()
        table.add_column(justify="right")
        table.add_column(style="dim")
        megabytes = outcome.bytes / 1e6
        rows = [
            ("sent", f"{outcome.records:,}", f"records, {megabytes:,.1f} MB of JSON, in {outcome.topics} topics"),
            ("acked", f"{outcome.acked:,}", f"{outcome.acked_at_kill:,} of them when the broker was killed"),
            ("sent again", f"{outcome.repeated:,}", f"batches; {outcome.already_stored} were stored already"),
            ("read back", f"{outcome.found:,}", "records"),
            ("lost", f"{verdict.lost:,}", ""),
            ("doubled", f"{verdict.doubled:,}", ""),
            ("damaged", f"{verdict.foreign:,}", ""),
            ("out of order", f"{len(verdict.out_of_order):,}", " ".join(["topics", *verdict.out_of_order])),
            (
                "write",
                _rate(outcome.records, outcome.write_s),
                f"records/s, {outcome.down_s:.2f} s of downtime included",
            ),
            ("read", _rate(outcome.found, outcome.read_s), "records/s"),
        ]
        for row in rows:
            table.add_row(*row)
        self._console.print()
        self._console.print(table)
        if verdict.clean:
            self._console.print("\nNothing lost, nothing doubled, everything in order.", style="bold green")
        else:
            self._console.print("\nWhat was read back is not what was sent.", style="bold red")


def _rate(count: int, seconds: float) -> str:
    return f"{count / max(seconds, 1e-9):,.0f}"
