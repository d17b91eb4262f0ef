"""What the engine puts off while it is told that there is more to do than time. Source: api.md §3 (pressure).

What keeps the log short (absorbing, snapshots) and what keeps promises is never put off: that would cost more later.
"""

from __future__ import annotations

from typing import Final

from storage.platform.clock import Clock

#: Nothing is put off for longer than this: what can wait cannot wait for ever.
MAX_DEFER_NS: Final = 60_000_000_000


class Relief:
    """Whether a worker's round has to wait: rewriting segments, moving them to the cold tier."""

    __slots__ = ("_clock", "_since_ns", "deferring")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Whether what can wait is to wait.
        self.deferring = False
        self._since_ns: dict[str, int] = {}

    def puts_off(self, worker: str) -> bool:
        """Whether this round of a worker has to wait. After MAX_DEFER_NS one does not, and then it begins anew."""
        if not self.deferring:
            self._since_ns.pop(worker, None)
            return False
        now = self._clock.monotonic_ns()
        if now - self._since_ns.setdefault(worker, now) < MAX_DEFER_NS:
            return True
        del self._since_ns[worker]
        return False
