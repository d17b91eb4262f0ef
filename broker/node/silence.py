"""How long a process of a cell may be silent before its node kills it, so that another one can serve the cell. A hung
process does not end by itself, and no other node takes the cell of a node that lives.

Time is counted in steps in which the node itself ran, and each step counts as what it should have taken. So a node
that was suspended, or starved of the processor, does not take its own pause for the silence of its processes.

Source: docs/cluster.md#nodes.
"""

from __future__ import annotations

import enum
from typing import Final

from storage.bucket import TTL_S


class Why(enum.StrEnum):
    """What a process may be killed for."""

    #: It accepts calls, and answers none.
    SILENT = "silent"
    #: Nobody can call it, and it has not said what it does. One that waits for a living owner says so, and may wait for
    #: ever.
    NOT_STARTED = "not_started"
    #: It was asked to end, or accepts no calls any more.
    NOT_ENDED = "not_ended"


#: Behind the drain of its requests: the last writes to the bucket take 20 s (`storage.cells.owner.CLOSE_S`).
END_S: Final = 40.0
#: For so many seconds each. A start takes most of a minute on a crowded machine. The time of an owner that hangs is
#: over after less than TTL, so until it is killed nobody serves the cell.
LIMITS_S: Final = {Why.SILENT: 2 * TTL_S, Why.NOT_STARTED: 120.0, Why.NOT_ENDED: END_S}


class Silence:
    """Counts the silence of one process. Pure."""

    def __init__(self, drain_s: float = 0.0) -> None:
        """`drain_s`: how long requests in flight may take when the process ends."""
        self._drain_s = drain_s
        self._why: Why | None = None
        self._seconds = 0.0

    def add(self, seconds: float, why: Why | None) -> bool:
        """In this time the process was as `why` says; None: it showed that it runs. Whether it has to be killed: then
        counting begins anew."""
        if why is not self._why:
            self._why, self._seconds = why, 0.0
        if why is None:
            return False
        self._seconds += seconds
        if self._seconds < LIMITS_S[why] + (self._drain_s if why is Why.NOT_ENDED else 0.0):
            return False
        self._seconds = 0.0
        return True
