"""Limits the HTTP/2 frames that request nothing (RFC 9113 §10.5). Pure.

PING, SETTINGS and RST_STREAM cost a client almost nothing, but each is work for the broker. Answers to the first two
accumulate if the client does not read them. WINDOW_UPDATE does not count: a client that reads much sends many.
"""

from __future__ import annotations

from typing import Final

#: The rate is averaged over this time, so a burst may have as many frames as this many seconds.
BURST_S: Final = 10


class ControlFrameLimiter:
    """The limiter of one connection. Time is an argument."""

    __slots__ = ("_at", "_left", "_per_s")

    def __init__(self, per_s: int, now: float) -> None:
        """`per_s` 0: no limit."""
        self._per_s = per_s
        self._left = float(per_s * BURST_S)
        self._at = now

    def keeps(self, now: float) -> bool:
        """Count a frame. False: there are too many."""
        if not self._per_s:
            return True
        self._left = min(self._per_s * BURST_S, self._left + (now - self._at) * self._per_s) - 1
        self._at = now
        return self._left >= 0
