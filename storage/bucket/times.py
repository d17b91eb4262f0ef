"""How long the requests to a bucket take, and how many are not answered. Counted in several threads."""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import Final

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
KINDS: Final[tuple[str, ...]] = ("create", "get", "put", "delete", "stat", "names")


class RequestTimes:
    """By kind of request, since the start of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Not cumulative; the last one counts those above all bounds. Answered requests only.
        self.counts = {kind: [0] * (len(SECONDS) + 1) for kind in KINDS}
        self.sums = dict.fromkeys(KINDS, 0.0)
        self.unanswered = dict.fromkeys(KINDS, 0)

    def answered(self, kind: str, seconds: float) -> None:
        with self._lock:
            self.counts[kind][bisect_left(SECONDS, seconds)] += 1
            self.sums[kind] += seconds

    def failed(self, kind: str) -> None:
        with self._lock:
            self.unanswered[kind] += 1
