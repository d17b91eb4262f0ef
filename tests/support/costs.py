"""Says at the end of a run what each file of tests has cost: processor time, that of ended child processes included.

    make test ARGS="-p tests.support.costs"

Unlike the time on a clock it hardly depends on what else the machine does.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

#: So many files are listed, the costliest first.
LISTED = 60
#: File: seconds, tests.
_costs: dict[str, tuple[float, int]] = {}


def _spent() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _add(file: str, seconds: float, tests: int) -> None:
    before = _costs.get(file, (0.0, 0))
    _costs[file] = before[0] + seconds, before[1] + tests


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    before = _spent()
    done = yield
    _add(item.nodeid.partition("::")[0], _spent() - before, 1)
    return done


def pytest_sessionfinish(session: pytest.Session) -> None:
    """What a process of pytest-xdist sends to the one that prints."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["costs"] = _costs


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    for file, (seconds, tests) in getattr(node, "workeroutput", {}).get("costs", {}).items():
        _add(file, seconds, tests)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    total = sum(seconds for seconds, _ in _costs.values())
    terminalreporter.section(f"{total:.0f} processor seconds")
    for file, (seconds, tests) in sorted(_costs.items(), key=lambda cost: -cost[1][0])[:LISTED]:
        terminalreporter.write_line(f"{seconds:8.1f} s {tests:5d} tests  {file}")
