"""How results are shown and kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from loadtest.machine import facts
from loadtest.measure import Measured

RESULTS = Path(__file__).resolve().parent / "results"

_COLUMNS = (
    "scenario", "records/s", "requests/s", "p50 ms", "p90 ms", "p99 ms", "max ms", "cpu µs/record", "loop µs/record",
    "broker cores", "load cores", "other cores", "fsyncs", "writes/group", "fsync ms",
)  # fmt: skip


def table(results: Sequence[Measured]) -> str:
    """A Markdown table, one line a result."""
    rows = [_row(each) for each in results]
    widths = [max(len(row[column]) for row in [_COLUMNS, *rows]) for column in range(len(_COLUMNS))]
    rules = ["-" * width if not column else "-" * (width - 1) + ":" for column, width in enumerate(widths)]
    return "\n".join(_line(row, widths) for row in [_COLUMNS, rules, *rows])


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
    return f"| {' | '.join(cells)} |"


def _row(each: Measured) -> tuple[str, ...]:
    latency = each.latency_ms
    return (
        each.scenario.name,
        f"{each.records_per_s:,.0f}",
        f"{each.requests_per_s:,.0f}",
        *(f"{latency.get(name, 0.0):.2f}" for name in ("p50", "p90", "p99", "max")),
        f"{each.cpu_us_per_record:.2f}",
        f"{each.loop_us_per_record:.2f}",
        f"{each.broker_cores:.2f}",
        f"{each.generator_cores:.2f}",
        f"{each.other_cores:.2f}",
        f"{each.wal.fsyncs:,.0f}",
        f"{each.wal.writes_per_group:.1f}",
        f"{each.wal.fsync_ms:.2f}",
    )


def remarks(each: Measured) -> list[str]:
    """Notes without which a figure misleads: refusals, backlog, where records were read from, the ledger's verdict."""
    lines: list[str] = []
    if each.failed:
        lines.append(f"{each.scenario.name}: not acknowledged, by status (0 = connection lost): {each.failed}")
    if each.max_backlog:
        lines.append(f"{each.scenario.name}: at most {each.max_backlog} requests were due and waited for a connection")
    if each.proof:
        lines.append(f"{each.scenario.name}: {each.proof}")
    if each.verdict is not None:
        verdict = each.verdict
        lines.append(
            f"{each.scenario.name}: {verdict.acknowledged:,} records acknowledged, {verdict.found:,} found "
            f"({verdict.unacknowledged:,} of them never acknowledged): "
            + ("all there" if verdict.holds else "NOT as promised")
        )
        lines += verdict.problems
    return lines


def keep(name: str, command: str, outcome: object, folder: Path = RESULTS) -> Path:
    """Write the results, with the command and the machine's facts, to `folder`/`name`.json."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    whole = {"date": time.strftime("%Y-%m-%d"), "command": command, "machine": facts(), "results": outcome}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n")
    return path
