"""The measurement of workers: every job of every variant is done, and the variants are compared."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from loadtest import sdk

ROOT = Path(__file__).parents[3]


def test_all_variants_are_measured() -> None:
    command = [sys.executable, "-m", "loadtest.sdk", "--jobs", "300", "--rounds", "2", "--concurrency", "4", "--json"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (made.returncode, made.stderr) == (0, "")
    seen = msgspec.json.decode(made.stdout, type=sdk.WorkerResult)
    assert seen.jobs_per_s.keys() == seen.us_per_job.keys() == sdk.VARIANTS.keys()
    for found in (*seen.jobs_per_s.values(), *seen.us_per_job.values()):
        assert len(found) == 2
        assert min(found) > 0
    assert [each.metric for each in seen.ratios[sdk.THREADS]] == ["jobs/s", "cpu µs/job"]
