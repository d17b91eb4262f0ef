"""`topics state`: shows a topic and its settings."""

from __future__ import annotations

import sys
import time
from typing import Any

import msgspec

from topics_client import calls
from topics_client.commands.connection import JsonOption, TopicArgument, broker
from topics_client.commands.reach import ANY, Reach
from topics_client.commands.terminal import BOLD, Grid, amount, duration, emit, moment, printable, say, show, size
from topics_client.values import PartitionState, TopicState


def state(
    topic: TopicArgument,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Show a topic: its records, seqs, times and settings."""
    with broker(reach, as_json) as client:
        answer = client.run(calls.verbatim(calls.state(topic, touch=False, complete=False)))
        if as_json:
            emit(answer)
            return
        _show(msgspec.json.decode(answer, type=TopicState), now_ms=time.time_ns() // 1_000_000)


def _show(state: TopicState, *, now_ms: int) -> None:
    facts: list[tuple[str, str]] = [
        ("type", state.type),
        ("records", f"{state.count:,}"),
        ("bytes", f"{size(state.bytes)} ({state.bytes:,})" if state.bytes >= 1000 else size(state.bytes)),
        ("earliest seq", str(state.earliest_seq)),
        ("head seq", str(state.head_seq)),
        ("next seq", str(state.next_seq)),
        ("last write", _when(state.last_write_ts, now_ms)),
        ("last read", _when(state.last_read_ts, now_ms)),
        ("epoch", str(state.epoch)),
        ("effective priority", _plain(state.effective_priority)),
    ]
    facts += [(f"queue {name.replace('_', ' ')}", _plain(value)) for name, value in (state.queue or {}).items()]
    facts += [(f"consumers {name}", _plain(value)) for name, value in (state.consumers or {}).items()]
    say(state.topic, BOLD)
    parts = {each.partition: _partition(each) for each in state.partitions}
    parts |= {each.partition: f"offline: cell {each.cell} cannot be reached" for each in state.offline_partitions}
    for heading, fields in (
        ("", facts),
        ("Partitions", [(f"partition {number}", parts[number]) for number in sorted(parts)]),
        ("Settings", [(name, _plain(v)) for name, v in state.config.items()]),
    ):
        if not fields:
            continue
        if heading:
            sys.stdout.write("\n")
            say(heading, BOLD)
        table = Grid("", "")
        for name, value in fields:
            table.add_row(f"  {printable(name)}", printable(value))
        show(table)


def _partition(state: PartitionState) -> str:
    return f"{amount(state.count, 'record')}, {size(state.bytes)}, seqs {state.earliest_seq} to {state.head_seq}"


def _when(ts_ms: int | None, now_ms: int) -> str:
    return "never" if ts_ms is None else f"{moment(ts_ms)} ({duration(now_ms - ts_ms)} ago)"


def _plain(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
