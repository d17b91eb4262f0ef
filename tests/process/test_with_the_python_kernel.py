"""Crash sweeps and models of the log hold with the Python kernel too, which serves where there is no compiler.

The compiled kernel serves in all other tests. `tests/kernel` compares the two function by function.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.support.broker_process import ROOT

PATIENCE_S = 900
SWEEPS = ("fsync_batches", "singles_that_rotate", "caps_evict", "records_are_deleted")
#: A sample of the sweeps, and the property test of what a scan of the log finds.
SOME = [
    "tests/crash/test_sweep.py",
    "tests/property/test_log_bytes.py",
    "-k",
    f"after_a_crash and records and few and ({' or '.join(SWEEPS)}) or scanned_units",
]
ALL = ["--tier", "both", "tests/crash", "tests/property"]


def holds(*arguments: str, patience_s: float = PATIENCE_S) -> str:
    """The output of pytest with the Python kernel; none of these tests fails."""
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT,
        env={**os.environ, "TOPICS_KERNEL": "python"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patience_s,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-8000:]
    return ran.stdout


@pytest.mark.timeout(PATIENCE_S + 30)
def test_sweeps_and_scans_hold_with_the_python_kernel() -> None:
    passed = re.search(r"(\d+) passed", holds(*SOME))
    assert passed is not None
    assert int(passed[1]) == len(SWEEPS) + 1


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_all_sweeps_and_models_hold_with_the_python_kernel() -> None:
    holds(*ALL, patience_s=4 * 3600 - 60)
