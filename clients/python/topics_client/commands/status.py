"""`topics status`: shows the state of a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from click.exceptions import Exit

from topics_client import calls
from topics_client.blocking import Client
from topics_client.commands.connection import JsonOption, broker
from topics_client.commands.reach import ANY, Reach
from topics_client.commands.terminal import (
    BOLD,
    ExitCode,
    Grid,
    amount,
    duration,
    emit,
    note,
    printable,
    say,
    show,
    size,
)
from topics_client.errors import ApiError
from topics_client.values import Health

#: The figures shown from the metrics: a name for programs, and the metric, summed over its labels.
FIGURES = {
    "pressure": "topics_pressure",
    "pressure_step": "topics_pressure_step",
    "live_bytes": "topics_live_bytes",
    "segment_bytes": "topics_segments_stored_bytes",
    "log_shards_full": "topics_wal_full",
    "log_shards_failed": "topics_wal_failed",
    "resident_bytes": "topics_process_resident_bytes",
    "topics": "topics_topics",
    "routers": "topics_routers",
    "consumers": "topics_consumers",
    "connections": "topics_connections",
    "jobs_ready": "topics_queue_ready",
    "jobs_in_flight": "topics_queue_in_flight",
    "jobs_delayed": "topics_queue_delayed",
}
_STEPS = ("normal", "defers work", "defers work", "defers work", "refuses writes")


def status(as_json: JsonOption = False, reach: Reach = ANY) -> None:
    """Show whether the broker serves, its version, its load, its disk, and how much it holds.

    Exit status 3 if it is not ready. With --json: one object, {"url", "status", "ready", "reason"?, "version",
    "kernel"?, "uptime_ms", "cluster_id"?, "figures"?}; figures are left out where the key may not see metrics.
    """
    with broker(reach, as_json) as client:
        health = client.health()
        reason = _unready(client)
        figures = _figures(client)
        if as_json:
            emit(_line(client.url, health, reason, figures))
        else:
            _show(client.url, health, reason, figures)
        if reason is not None:
            raise Exit(ExitCode.UNREACHABLE)


def _unready(client: Client) -> dict[str, Any] | None:
    """Why it does not serve, from the error."""
    try:
        client.ready()
    except ApiError as error:
        if error.status != 503:
            raise
        return {"code": error.code, "message": error.message, "detail": error.detail}
    return None


def _figures(client: Client) -> dict[str, float] | None:
    try:
        return summed(client.run(calls.metrics()).splitlines())
    except ApiError as error:
        note(f"No figures: {error.message}")
        return None


def summed(lines: Iterable[str]) -> dict[str, float]:
    """FIGURES from Prometheus text. A metric without samples is 0."""
    found = dict.fromkeys(FIGURES.values(), 0.0)
    for line in lines:
        name = line.partition(" ")[0].partition("{")[0]
        if name in found:
            found[name] += float(line.rpartition(" ")[2])
    return {name: found[metric] for name, metric in FIGURES.items()}


def _line(url: str, health: Health, reason: dict[str, Any] | None, figures: dict[str, float] | None) -> bytes:
    line: dict[str, Any] = {"url": url, "ready": reason is None, "reason": reason, **msgspec.to_builtins(health)}
    line["figures"] = figures and {name: int(v) if v.is_integer() else v for name, v in figures.items()}
    return msgspec.json.encode({name: value for name, value in line.items() if value is not None})


def _show(url: str, health: Health, reason: dict[str, Any] | None, figures: dict[str, float] | None) -> None:
    say(url, BOLD)
    facts = [
        ("status", "ready" if reason is None else f"not ready: {reason['message']}"),
        ("version", f"{health.version}, kernel {health.kernel or 'unknown'}"),
        ("up for", duration(health.uptime_ms)),
        ("cluster", health.cluster_id or "-"),
    ]
    if figures is not None:
        facts += _said(figures)
    table = Grid("", "")
    for name, value in facts:
        table.add_row(f"  {name}", printable(value))
    show(table)


def _said(figures: dict[str, float]) -> list[tuple[str, str]]:
    whole = {name: int(value) for name, value in figures.items()}
    log = [
        f"{whole[name]} shards of the log {how}"
        for name, how in (("log_shards_full", "find the disk full"), ("log_shards_failed", "have failed"))
        if whole[name]
    ]
    step = _STEPS[min(whole["pressure_step"], len(_STEPS) - 1)]
    return [
        ("pressure", f"{figures['pressure']:.0%}, {step}"),
        ("memory", size(whole["resident_bytes"])),
        ("disk", ", ".join([f"{size(whole['segment_bytes'])} in segments", *log])),
        ("holds", f"{amount(whole['topics'], 'topic')}, {size(whole['live_bytes'])} live"),
        ("jobs", ", ".join(f"{whole[f'jobs_{s}']:,} {s.replace('_', ' ')}" for s in ("ready", "in_flight", "delayed"))),
        ("readers", f"{amount(whole['consumers'], 'consumer')}, {amount(whole['routers'], 'router')}"),
        ("connections", f"{whole['connections']:,}"),
    ]
