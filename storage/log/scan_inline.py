"""How recovery reads a file of the log: where it is wanted. `scan_ahead` does it before it is wanted, in processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from storage.log.reader import FrameStream
from storage.log.units import Scan, UnitScan
from storage.platform.filesystem import File


class Job(NamedTuple):
    """One file to be read from the offset `start` on, grouped from `group_from` on (see UnitScan)."""

    path: str
    number: int
    start: int
    group_from: int


class Scanner(Protocol):
    """Reads files of the log."""

    def scan(self, file: File, job: Job, idle: Callable[[], None]) -> Scan:
        """The scan of `file`, which is open at job.path. `idle` is called now and then while units() waits for others;
        what it raises, units() raises.
        """
        ...

    def close(self) -> None:
        """Give up what is under way; nothing of it is left on return."""
        ...


class InlineScanner:
    """Reads in the caller's thread."""

    def scan(self, file: File, job: Job, idle: Callable[[], None]) -> Scan:
        return UnitScan(FrameStream(file, job.start), job.number, job.group_from)

    def close(self) -> None:
        pass
