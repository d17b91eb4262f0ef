"""Every workload, stopped at every call to the disk, in every way, and with every call failing: promises are kept.

The short form takes a sample, another one in every run: pytest's random seed decides (see its header). A failure
names what repeats it: `examine(w, run_until(w, CrashPoint(...)), Cut(...))` with `w = WORKLOADS[...]`.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Iterable, Iterator
from itertools import islice
from random import Random

import pytest

from tests.crash import cold_workloads, consumed_workloads, segment_workloads
from tests.crash.workloads import WORKLOADS
from tests.support.crash_check import End
from tests.support.crash_run import CrashPoint, Cut, Workload, examine, run_until, run_with_error, trace
from tests.support.crash_session import ROOT
from tests.support.sim_disk import Loss, When

for module in (cold_workloads, consumed_workloads, segment_workloads):
    assert module  # enters its own into the table

SAMPLE_POINTS = 30
SAMPLE_ERRORS = 20
ERRORS = (errno.EIO, errno.ENOSPC)
MAX_FAILURES = 5


def _error_failures(workload: Workload, tries: Iterable[tuple[int, int]], rng: Random) -> Iterator[str]:
    for index, code in tries:
        try:
            crashed = run_with_error(workload, index, code)
            for cut in (Cut(End.KILL, seed=rng.randrange(1 << 30)), Cut(End.POWER, Loss.TORN, rng.randrange(1 << 30))):
                problems = examine(workload, crashed, cut)
                if problems:
                    yield "\n  ".join([f"{workload.name}: errno {code} at call {index}, {cut}", *problems])
        except Exception as error:
            error.add_note(f"{workload.name}: errno {code} at call {index}")
            raise


def _points(workload: Workload) -> list[CrashPoint]:
    calls = trace(workload).disk.crash_points()
    return [CrashPoint(index, when) for index in calls for when in When]


def _all_cuts(rng: Random) -> Iterator[Cut]:
    yield Cut(End.KILL, seed=rng.randrange(1 << 30))
    for loss in (*Loss, Loss.PREFIX, Loss.TORN, Loss.TORN):
        yield Cut(End.POWER, loss, rng.randrange(1 << 30))


def _some_cuts(rng: Random) -> Iterator[Cut]:
    yield Cut(End.KILL, seed=rng.randrange(1 << 30))
    yield Cut(End.POWER, rng.choice([Loss.DROP, Loss.KEEP, Loss.PREFIX]), rng.randrange(1 << 30))
    yield Cut(End.POWER, Loss.TORN, rng.randrange(1 << 30))


def _failures(workload: Workload, tries: Iterable[tuple[CrashPoint, Iterable[Cut]]]) -> Iterator[str]:
    for point, cuts in tries:
        crashed = run_until(workload, point)
        for cut in cuts:
            try:
                problems = examine(workload, crashed, cut)
            except Exception as error:
                error.add_note(f"{workload.name}: {point}, {cut}")
                raise
            if problems:
                yield "\n  ".join([f"{workload.name}: {point}, {cut}", *problems])


@pytest.mark.parametrize("name", WORKLOADS)
def test_promises_survive_a_crash_at_some_calls(name: str) -> None:
    rng = Random(random.getrandbits(32))
    points = _points(WORKLOADS[name])
    sample = rng.sample(points, min(SAMPLE_POINTS, len(points)))
    tries = ((point, _some_cuts(rng)) for point in sample)
    assert list(islice(_failures(WORKLOADS[name], tries), MAX_FAILURES)) == []


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", WORKLOADS)
def test_promises_survive_a_crash_at_any_call(name: str) -> None:
    rng = Random(random.getrandbits(32))
    tries = ((point, _all_cuts(rng)) for point in _points(WORKLOADS[name]))
    assert list(islice(_failures(WORKLOADS[name], tries), MAX_FAILURES)) == []


@pytest.mark.parametrize("name", WORKLOADS)
def test_promises_survive_an_error_at_some_calls(name: str) -> None:
    rng = Random(random.getrandbits(32))
    calls = range(len(trace(WORKLOADS[name]).disk.calls))
    sample = [(index, rng.choice(ERRORS)) for index in rng.sample(calls, min(SAMPLE_ERRORS, len(calls)))]
    assert list(islice(_error_failures(WORKLOADS[name], sample, rng), MAX_FAILURES)) == []


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", WORKLOADS)
def test_promises_survive_an_error_at_any_call(name: str) -> None:
    rng = Random(random.getrandbits(32))
    tries = [(index, code) for index in range(len(trace(WORKLOADS[name]).disk.calls)) for code in ERRORS]
    assert list(islice(_error_failures(WORKLOADS[name], tries, rng), MAX_FAILURES)) == []


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_makes_the_same_calls_every_time(name: str) -> None:
    assert _calls(WORKLOADS[name]) == _calls(WORKLOADS[name])


def _calls(workload: Workload) -> list[str]:
    """Calls to the disk, without the cluster id, which is another one every time."""
    disk = trace(workload).disk
    cluster_id = disk.read_file(f"{ROOT}/FORMAT").split()[1].decode()
    return [str(call).replace(cluster_id, "<cluster id>") for call in disk.calls]
