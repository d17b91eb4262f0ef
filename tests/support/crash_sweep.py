"""Stops workloads at every call to the disk, in every way, and has every call fail; or takes a sample of that.

A failure names what repeats it: `drive.examine(w, drive.run_until(w, CrashPoint(...)), Cut(...))`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from itertools import islice
from random import Random
from typing import Any

from tests.support.crash_check import End
from tests.support.crash_drive import Drive, DriveWorkload
from tests.support.crash_run import CrashPoint, Cut
from tests.support.sim_disk import Loss, When

SAMPLE_POINTS = 6
SAMPLE_ERRORS = 3
ERRORS = (errno.EIO, errno.ENOSPC)
MAX_FAILURES = 5


class Sweep:
    """Of one workload. Every method gives the first failures it finds."""

    def __init__(self, drive: Drive[Any], workload: DriveWorkload[Any], seed: int) -> None:
        self._drive = drive
        self._workload = workload
        self._rng = Random(seed)

    def some_crashes(self) -> list[str]:
        points = self._points()
        sample = self._rng.sample(points, min(SAMPLE_POINTS, len(points)))
        return self._first(self._failures((point, self._some_cuts()) for point in sample))

    def all_crashes(self) -> list[str]:
        return self._first(self._failures((point, self._all_cuts()) for point in self._points()))

    def some_errors(self) -> list[str]:
        calls = range(self._calls())
        indices = self._rng.sample(calls, min(SAMPLE_ERRORS, len(calls)))
        return self._first(self._error_failures((index, self._rng.choice(ERRORS)) for index in indices))

    def all_errors(self) -> list[str]:
        return self._first(self._error_failures((index, code) for index in range(self._calls()) for code in ERRORS))

    @staticmethod
    def _first(failures: Iterator[str]) -> list[str]:
        return list(islice(failures, MAX_FAILURES))

    def _calls(self) -> int:
        return len(self._drive.trace(self._workload).disk.calls)

    def _points(self) -> list[CrashPoint]:
        calls = self._drive.trace(self._workload).disk.crash_points()
        return [CrashPoint(index, when) for index in calls for when in When]

    def _seed(self) -> int:
        return self._rng.randrange(1 << 30)

    def _all_cuts(self) -> Iterator[Cut]:
        yield Cut(End.KILL, seed=self._seed())
        for loss in (*Loss, Loss.PREFIX, Loss.TORN, Loss.TORN):
            yield Cut(End.POWER, loss, self._seed())

    def _some_cuts(self) -> Iterator[Cut]:
        yield Cut(End.KILL, seed=self._seed())
        yield Cut(End.POWER, self._rng.choice(list(Loss)), self._seed())

    def _failures(self, tries: Iterable[tuple[CrashPoint, Iterable[Cut]]]) -> Iterator[str]:
        name = self._workload.name
        for point, cuts in tries:
            try:
                crashed = self._drive.run_until(self._workload, point)
            except AssertionError as error:
                error.add_note(f"{name}: {point}")
                raise
            for cut in cuts:
                try:
                    problems = self._drive.examine(self._workload, crashed, cut)
                except Exception as error:
                    error.add_note(f"{name}: {point}, {cut}")
                    raise
                if problems:
                    yield "\n  ".join([f"{name}: {point}, {cut}", *problems])

    def _error_failures(self, tries: Iterable[tuple[int, int]]) -> Iterator[str]:
        name = self._workload.name
        for index, code in tries:
            try:
                crashed = self._drive.run_with_error(self._workload, index, code)
                for cut in (Cut(End.KILL, seed=self._seed()), Cut(End.POWER, Loss.TORN, self._seed())):
                    problems = self._drive.examine(self._workload, crashed, cut)
                    if problems:
                        yield "\n  ".join([f"{name}: errno {code} at call {index}, {cut}", *problems])
            except Exception as error:
                error.add_note(f"{name}: errno {code} at call {index}")
                raise
