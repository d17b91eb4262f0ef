"""Crash sweeps through the code of `io_uring`: write and sync are one call of the log and two steps of the disk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from storage.options import IoBackend
from tests.crash import test_threads as threads
from tests.crash.test_sweep import calls_of
from tests.crash.workloads import WORKLOADS
from tests.support import crash_run
from tests.support.backends import OTHERS, VARIABLE, everywhere
from tests.support.broker_process import ROOT
from tests.support.crash_sweep import SIZES, Size, Sweep, torn_cuts
from tests.support.sim_disk import quiet_crashes

CHOSEN = ("fsync_batches", "disk_singles", "reservations_run_out")
SWEEP = Sweep(WORKLOADS, crash_run, points=8, errors=8, cuts=torn_cuts)
BOUNDED = SIZES[:2]
#: What the soak tier runs again with each backend.
SUITES = ("tests/unit/storage", "tests/crash", "tests/property", "tests/process", "tests/regression")


@pytest.fixture(autouse=True)
def _on_a_ring() -> Iterator[None]:
    with everywhere(IoBackend.IO_URING), quiet_crashes():
        yield


@pytest.mark.parametrize("size", BOUNDED)
@pytest.mark.parametrize("name", CHOSEN)
def test_promises_hold_after_a_crash(name: str, size: Size) -> None:
    assert SWEEP.crashes(name, size) == []


@pytest.mark.parametrize("size", BOUNDED)
@pytest.mark.parametrize("name", CHOSEN)
def test_promises_hold_after_a_failed_call(name: str, size: Size) -> None:
    assert SWEEP.errors(name, size) == []


@pytest.mark.parametrize("name", CHOSEN)
def test_the_ring_makes_the_same_disk_calls_as_plain_calls(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_ring = calls_of(WORKLOADS[name])
    monkeypatch.undo()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.support.sim_disk.SimDisk.dress", staticmethod(lambda file: file))
        assert calls_of(WORKLOADS[name]) == on_a_ring


@pytest.mark.parametrize("seed", range(2))
async def test_acked_writes_survive_a_crash_under_load(seed: int) -> None:
    await threads.test_acked_writes_survive_a_crash_under_load(seed)


@pytest.mark.parametrize("op", ["datasync", "pwritev"])
async def test_writes_acked_under_load_on_a_failing_disk_survive(op: str) -> None:
    await threads.test_writes_acked_under_load_on_a_failing_disk_survive(op)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("backend", OTHERS)
def test_every_suite_passes_with_every_backend(backend: IoBackend, suite: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tier", "both", suite]
    environment = {**os.environ, VARIABLE: str(backend), "TOPICS_TEST_SOAK": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
