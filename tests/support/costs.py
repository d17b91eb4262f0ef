"""Prints at the end of a run what each test file has cost in processor time, including that of ended child processes.

    make test ARGS="-p tests.support.costs"

Unlike elapsed time, this hardly depends on what else the machine does. The same is true of the time that a file waited:
for sleeps, other threads and processes, and disks, but not for a processor.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

#: How many files are listed, the most expensive first.
LISTED = 60
#: The kernel's figures for the main thread: nanoseconds that it ran, and that it waited for a processor.
_SCHEDULED = Path("/proc/thread-self/schedstat")


class Cost(NamedTuple):
    """What the tests have cost so far."""

    processor_s: float
    waited_s: float
    tests: int

    def plus(self, other: Cost) -> Cost:
        return Cost(self.processor_s + other.processor_s, self.waited_s + other.waited_s, self.tests + other.tests)


_NOTHING = Cost(0.0, 0.0, 0)
_costs: dict[str, Cost] = {}


def _spent() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _waited() -> float:
    """Elapsed time without the time in which the main thread ran or could have run."""
    busy = sum(map(int, _SCHEDULED.read_text().split()[:2])) / 1e9 if _SCHEDULED.exists() else 0.0
    return time.monotonic() - busy


def _add(file: str, cost: Cost) -> None:
    _costs[file] = _costs.get(file, _NOTHING).plus(cost)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    spent, waited = _spent(), _waited()
    done = yield
    _add(item.nodeid.partition("::")[0], Cost(_spent() - spent, _waited() - waited, 1))
    return done


def pytest_sessionfinish(session: pytest.Session) -> None:
    """What a process of pytest-xdist sends to the process that prints."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["costs"] = {file: tuple(cost) for file, cost in _costs.items()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    for file, cost in getattr(node, "workeroutput", {}).get("costs", {}).items():
        _add(file, Cost(*cost))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    processor = sum(cost.processor_s for cost in _costs.values())
    waited = sum(cost.waited_s for cost in _costs.values())
    terminalreporter.section(f"{processor:.0f} processor seconds, {waited:.0f} seconds waited")
    for file, cost in sorted(_costs.items(), key=lambda item: -item[1].processor_s - item[1].waited_s)[:LISTED]:
        line = f"{cost.processor_s:8.1f} s {cost.waited_s:8.1f} s waited {cost.tests:5d} tests  {file}"
        terminalreporter.write_line(line)
