"""What can go wrong with the simulated disk: stops, errors, short writes, and slow calls."""

from __future__ import annotations

import errno as errno_numbers
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import NamedTuple


class SimCrash(BaseException):
    """The simulated machine has stopped. Not an Exception, so that no handler in the code under test catches it."""


class When(StrEnum):
    """Where in a call the machine stops."""

    BEFORE = "before"  # nothing of it happened
    AFTER = "after"  # all of it happened, but the caller never learns
    HALF = "half"  # of a pwritev or allocate, the first half happened; other calls have no half and did not happen


class Call(NamedTuple):
    """One line of the disk's trace."""

    number: int
    op: str
    path: str
    args: tuple[int | str, ...]


@dataclass(slots=True)
class Rule:
    """Selects calls by name and path (both shell patterns), from the nth match on, for a number of matches."""

    op: str
    path_glob: str = "*"
    nth: int = 1
    #: None: all of them from the nth on.
    times: int | None = 1
    seen: int = 0

    def picks(self, op: str, path: str) -> bool:
        """Whether this call is selected. Counts it, so ask once for each call."""
        if not (fnmatchcase(op, self.op) and fnmatchcase(path, self.path_glob)):
            return False
        self.seen += 1
        return self.seen >= self.nth and (self.times is None or self.seen < self.nth + self.times)


@dataclass(slots=True)
class Fault:
    """An OSError for the calls of a rule."""

    rule: Rule
    errno: int = errno_numbers.EIO
    #: For a sync that fails: whether some sectors reached the device even so.
    torn: bool = False
    seed: int = 0

    def error(self, path: str) -> OSError:
        return OSError(self.errno, os.strerror(self.errno), path)


@dataclass(slots=True)
class ShortWrite:
    """A pwritev that writes less than it was given: `keep_bytes`, or half."""

    rule: Rule
    keep_bytes: int | None = None

    def allowed(self, size: int) -> int:
        return min(size, size // 2 if self.keep_bytes is None else self.keep_bytes)


@dataclass(slots=True)
class Stop:
    """The point where the machine stops: a call index, or the calls of a rule."""

    when: When
    index: int | None = None
    rule: Rule | None = None

    def due(self, index: int, op: str, path: str) -> bool:
        if self.rule is not None:
            return self.rule.picks(op, path)
        return index == self.index


class Gate:
    """Holds matching calls before they take effect, until opened. As a context manager it opens at the end."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._changed = threading.Condition()
        self._open = False
        self._held = 0

    def pass_through(self, op: str, path: str) -> None:
        """Called by the disk, outside its lock: blocks while the gate is closed."""
        with self._changed:
            if self._open or not self._rule.picks(op, path):
                return
            self._held += 1
            self._changed.notify_all()
            while not self._open:
                self._changed.wait()
            self._held -= 1

    @property
    def held(self) -> int:
        """How many calls are waiting here."""
        with self._changed:
            return self._held

    def wait_held(self, count: int = 1, timeout_s: float = 10.0) -> None:
        """Return when `count` calls wait here. Raises TimeoutError if they do not come."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._held >= count, timeout_s):
                raise TimeoutError(f"{self._held} of {count} calls reached the gate")

    def open(self) -> None:
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self.open()


@contextmanager
def quiet_crashes() -> Generator[None, None, None]:
    """Let threads end silently by SimCrash: the threads of a stopped machine just disappear."""
    before = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        if not issubclass(args.exc_type, SimCrash):
            before(args)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before
