"""`python -m loadtest.trip` counts the calls of one request, in a separate process."""

from __future__ import annotations

import json
import subprocess
import sys

from loadtest.trip import OPERATIONS
from tests.support.broker_process import ROOT

#: Most calls and most files of each operation (docs/adr/0092-files-that-a-request-passes.md).
LIMITS = {"append": (60, 15), "claim": (90, 20), "ack": (80, 18), "produce": (150, 25), "diff": (60, 15)}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "loadtest.trip", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120
    )


def test_each_operation_is_counted_from_the_handler_to_the_log() -> None:
    found = {each["operation"]: each for each in json.loads(run("--json").stdout)}
    assert list(found) == list(OPERATIONS)
    for name, each in found.items():
        assert each["files"] == sorted({function.partition(":")[0] for function in each["functions"]})
        assert each["calls"] == sum(each["functions"].values())
        door = "broker/kafka/" if name == "produce" else "broker/api"
        assert any(file.startswith(door) for file in each["files"]), name
        if name != "diff":
            assert "storage/log/writer.py" in each["files"], name  # calls on the writer's thread are counted too
        assert not any(file.startswith("loadtest/") for file in each["files"])
        most_calls, most_files = LIMITS[name]
        assert each["calls"] <= most_calls, each
        assert len(each["files"]) <= most_files, each


def test_an_unknown_operation_is_refused_by_name() -> None:
    answer = run("apend")
    assert answer.returncode == 2
    assert "unknown operation 'apend'; there are append, claim, ack, produce, diff" in answer.stderr
