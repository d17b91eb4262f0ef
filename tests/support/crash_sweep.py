"""Stops workloads at calls to the disk in every way, or lets calls fail, and collects what is wrong afterwards.

    SWEEP = Sweep(WORKLOADS, job_run, points=6, errors=3)
    assert SWEEP.crashes("claims and acks", Size.SOME) == []

`SIZES` are the sizes as cases of a test, each in its tier. Every run takes another sample: pytest's random seed decides
(see its header). A failure names what repeats it: `examine(w, run_until(w, CrashPoint(...)), Cut(...))` with `w =
WORKLOADS[...]`.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import islice
from random import Random
from typing import Any, Final, Generic, Protocol, TypeVar

import pytest

from tests.support.crash_check import End
from tests.support.crash_run import CrashPoint, Cut
from tests.support.sim_disk import Loss, SimDisk, When

ERRORS: Final = (errno.EIO, errno.ENOSPC)
#: How many are reported. The others are most likely the same.
MAX_FAILURES: Final = 5
#: A sample of size FEW has one in this many of the cases of SOME, and at least one.
FEWER: Final = 10


class Size(StrEnum):
    """How many calls of a workload are tried."""

    FEW = "few"
    SOME = "some"
    ALL = "all"


SIZES: Final = [
    pytest.param(Size.FEW, id=Size.FEW),
    pytest.param(Size.SOME, id=Size.SOME, marks=pytest.mark.slow),
    pytest.param(Size.ALL, id=Size.ALL, marks=[pytest.mark.soak, pytest.mark.timeout(7200)]),
]


class _Stopped(Protocol):
    disk: SimDisk


W = TypeVar("W", contravariant=True)
C = TypeVar("C", bound=_Stopped)


class Runs(Protocol[W, C]):
    """How to run workloads of one kind and examine what is left. A module can be one."""

    def trace(self, workload: W, /) -> C: ...

    def run_until(self, workload: W, point: CrashPoint, /) -> C: ...

    def run_with_error(self, workload: W, index: int, errno: int, /) -> C: ...

    def examine(self, workload: W, crashed: C, cut: Cut, /) -> list[str]: ...


def all_cuts(rng: Random) -> Iterator[Cut]:
    yield Cut(End.KILL, seed=rng.randrange(1 << 30))
    for loss in (*Loss, Loss.PREFIX, Loss.TORN, Loss.TORN):
        yield Cut(End.POWER, loss, rng.randrange(1 << 30))


def some_cuts(rng: Random) -> Iterator[Cut]:
    yield Cut(End.KILL, seed=rng.randrange(1 << 30))
    yield Cut(End.POWER, rng.choice(list(Loss)), rng.randrange(1 << 30))


def torn_cuts(rng: Random) -> Iterator[Cut]:
    """A cut that tears what was being written, in any case."""
    yield Cut(End.KILL, seed=rng.randrange(1 << 30))
    yield Cut(End.POWER, rng.choice([Loss.DROP, Loss.KEEP, Loss.PREFIX]), rng.randrange(1 << 30))
    yield Cut(End.POWER, Loss.TORN, rng.randrange(1 << 30))


class Sweep(Generic[W, C]):
    """Workloads of one kind. `points` and `errors`: how many of a workload are tried at size SOME."""

    def __init__(
        self,
        workloads: Mapping[str, W],
        runs: Runs[W, C],
        *,
        points: int,
        errors: int,
        cuts: Callable[[Random], Iterator[Cut]] = some_cuts,
    ) -> None:
        self.names = list(workloads)
        self._workloads = workloads
        self._runs: Any = runs
        self._points_of_some = points
        self._errors_of_some = errors
        self._cuts = cuts

    def crashes(self, name: str, size: Size) -> list[str]:
        """What was wrong after the machine had stopped before, in and after calls to the disk."""
        rng = Random(random.getrandbits(32))
        points = self._points(name)
        if size is Size.ALL:
            return self._first(self._crashes(name, ((point, all_cuts(rng)) for point in points)))
        sample = rng.sample(points, min(_share(self._points_of_some, size), len(points)))
        return self._first(self._crashes(name, ((point, self._cuts(rng)) for point in sample)))

    def errors(self, name: str, size: Size) -> list[str]:
        """What was wrong after a call to the disk had failed."""
        rng = Random(random.getrandbits(32))
        calls = range(self._calls(name))
        if size is Size.ALL:
            tries = [(index, code) for index in calls for code in ERRORS]
        else:
            sample = rng.sample(calls, min(_share(self._errors_of_some, size), len(calls)))
            tries = [(index, rng.choice(ERRORS)) for index in sample]
        return self._first(self._errors(name, tries, rng))

    # -- one after the other -----------------------------------------------------------------------------------------

    @staticmethod
    def _first(failures: Iterator[str]) -> list[str]:
        return list(islice(failures, MAX_FAILURES))

    def _points(self, name: str) -> list[CrashPoint]:
        calls = self._runs.trace(self._workloads[name]).disk.crash_points()
        return [CrashPoint(index, when) for index in calls for when in When]

    def _calls(self, name: str) -> int:
        return len(self._runs.trace(self._workloads[name]).disk.calls)

    def _crashes(self, name: str, tries: Iterable[tuple[CrashPoint, Iterable[Cut]]]) -> Iterator[str]:
        workload = self._workloads[name]
        for point, cuts in tries:
            try:
                crashed = self._runs.run_until(workload, point)
            except AssertionError as error:
                error.add_note(f"{name}: {point}")
                raise
            for cut in cuts:
                yield from self._examined(workload, crashed, cut, f"{name}: {point}, {cut}")

    def _errors(self, name: str, tries: Iterable[tuple[int, int]], rng: Random) -> Iterator[str]:
        workload = self._workloads[name]
        for index, code in tries:
            where = f"{name}: errno {code} at call {index}"
            try:
                crashed = self._runs.run_with_error(workload, index, code)
            except Exception as error:
                error.add_note(where)
                raise
            for cut in (Cut(End.KILL, seed=rng.randrange(1 << 30)), Cut(End.POWER, Loss.TORN, rng.randrange(1 << 30))):
                yield from self._examined(workload, crashed, cut, f"{where}, {cut}")

    def _examined(self, workload: W, crashed: C, cut: Cut, where: str) -> Iterator[str]:
        try:
            problems = self._runs.examine(workload, crashed, cut)
        except Exception as error:
            error.add_note(where)
            raise
        if problems:
            yield "\n  ".join([where, *problems])


def _share(some: int, size: Size) -> int:
    return some if size is Size.SOME else max(1, some // FEWER)
