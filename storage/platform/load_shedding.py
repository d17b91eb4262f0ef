"""Defers background work while the broker is under pressure.

Work that keeps the log short (flushing, snapshots) and work that keeps promises is never deferred, because it would
cost more later.

Source: docs/guides/operate.md#pressure.
"""

from __future__ import annotations

from typing import Final

from storage.platform.clock import Clock

#: No work is deferred for longer than this.
MAX_DEFER_NS: Final = 60_000_000_000


class LoadShedding:
    """Whether a worker's round must wait: rewriting segments, moving them to the cold tier."""

    __slots__ = ("_clock", "_since_ns", "deferring")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Whether deferrable work must wait.
        self.deferring = False
        self._since_ns: dict[str, int] = {}

    def must_wait(self, worker: str) -> bool:
        """Whether this round of a worker must wait. After MAX_DEFER_NS one round runs, and the time starts again."""
        if not self.deferring:
            self._since_ns.pop(worker, None)
            return False
        now = self._clock.monotonic_ns()
        if now - self._since_ns.setdefault(worker, now) < MAX_DEFER_NS:
            return True
        del self._since_ns[worker]
        return False
