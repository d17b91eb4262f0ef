"""`python -m loadtest.trip` counts the calls of one request, in a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import kernel
from loadtest.trip import OPERATIONS
from tests.support.broker_process import ROOT

#: Most calls and most files of each operation (docs/adr/0092-files-that-a-request-passes.md).
LIMITS = {"append": (60, 15), "claim": (90, 20), "ack": (80, 18), "produce": (110, 24), "diff": (60, 15)}
#: On a crowded machine the work of timers can fall into every request of one count.
REPEATS = 4


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "loadtest.trip", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=600
    )


def counted(*operations: str) -> dict[str, dict[str, Any]]:
    return {each["operation"]: each for each in json.loads(run(*operations, "--json").stdout)}


def too_long(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Those that are beyond their limits."""
    return {
        name: each
        for name, each in found.items()
        if each["calls"] > LIMITS[name][0] or len(each["files"]) > LIMITS[name][1]
    }


def test_each_operation_is_counted_from_the_handler_to_the_log() -> None:
    found = counted()
    assert list(found) == list(OPERATIONS)
    for name, each in found.items():
        assert each["files"] == sorted({function.partition(":")[0] for function in each["functions"]})
        assert each["calls"] == sum(each["functions"].values())
        door = "broker/kafka/" if name == "produce" else "broker/api"
        assert any(file.startswith(door) for file in each["files"]), name
        if name != "diff":
            assert "storage/log/writer.py" in each["files"], name  # calls on the writer's thread are counted too
        assert not any(file.startswith("loadtest/") for file in each["files"])
    if kernel.COMPILED:  # the twin in Python is a file more, and a call for each function of it
        long = too_long(found)
        for _ in range(REPEATS):
            if long:
                long = too_long(counted(*long))
        assert long == {}


def test_an_unknown_operation_is_refused_by_name() -> None:
    answer = run("apend")
    assert answer.returncode == 2
    assert "unknown operation 'apend'; there are append, claim, ack, produce, diff" in answer.stderr
