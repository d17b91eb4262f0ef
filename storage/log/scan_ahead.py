"""Reads files of the log in processes, before recovery wants them; recovery applies them in order, as ever.

A batch never spans files, so each file can be read, verified and parsed by itself. What is found is judged in one place
(`log_end`), which cannot tell where it was found. A process that dies costs time and nothing else: what it has not
delivered is read in place.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

import structlog

from storage.log.scan_columns import unpack
from storage.log.scan_inline import InlineScanner, Job
from storage.log.scan_process import ScanProcess
from storage.log.scan_worker import Found
from storage.log.units import Scan, ScannedUnit
from storage.platform.filesystem import File

_log = structlog.get_logger("storage")


class AheadScanner:
    """Reads `jobs`, which are asked for in this order, in so many processes; anything else is read in place."""

    def __init__(self, jobs: list[Job], processes: int) -> None:
        self._changed = threading.Condition()
        self._todo = deque(enumerate(jobs))
        self._given: dict[Job, tuple[int, ScanProcess]] = {}
        self.processes: list[ScanProcess] = []
        try:
            for _ in range(min(processes, len(jobs))):
                self.processes.append(ScanProcess(self._changed, self._next_job))
        except OSError as error:
            _log.warning("scan_process_not_started", error=str(error))

    def _next_job(self, process: ScanProcess) -> tuple[int, Job] | None:
        if not self._todo:
            return None
        index, job = self._todo.popleft()
        self._given[job] = index, process
        return index, job

    def scan(self, file: File, job: Job, idle: Callable[[], None]) -> Scan:
        inline = InlineScanner().scan(file, job, idle)
        with self._changed:
            index, process = self._given.pop(job, (0, None))
            if process is None:
                with contextlib.suppress(StopIteration):
                    self._todo.remove(next(each for each in self._todo if each[1] == job))
                return inline
        return _AheadScan(job, index, process, inline, idle)

    def close(self) -> None:
        with self._changed:
            self._todo.clear()
        for process in self.processes:
            process.close()


class _AheadScan(Scan):
    """One file as a process finds it; `inline` is the scan to turn to when that process dies."""

    def __init__(self, job: Job, index: int, process: ScanProcess, inline: Scan, idle: Callable[[], None]) -> None:
        super().__init__(job.start)
        self._job = job
        self._index = index
        self._process = process
        self._inline = inline
        self._idle = idle

    def units(self) -> Iterator[ScannedUnit]:
        count = 0
        while (found := self._next()) is not None:
            for unit in unpack(found.units):
                count += 1
                self.end = unit.end
                yield unit
            if found.findings:
                self.take(found.findings)
                if found.error is not None:
                    raise found.error
                return
        _log.warning("scan_process_died", file=self._job.path, pid=self._process.pid, units=count)
        yield from self._rest(count)

    def _next(self) -> Found | None:
        data = self._process.take(self._index, self._idle)
        return None if data is None else pickle.loads(data)

    def _rest(self, count: int) -> Iterator[ScannedUnit]:
        """From the beginning in place, without the units that were delivered: the same bytes make the same units."""
        try:
            for unit in islice(self._inline.units(), count, None):
                self.end = unit.end
                yield unit
        finally:
            self.take(self._inline.findings())
