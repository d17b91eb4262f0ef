"""How long a writer waits for company before it syncs. Pure. Source: storage.md §3 (window).

A lone write is never made to wait. Once groups hold several writes the writer waits until as many have come as the
last group had, for at most a window that doubles while the wait pays (the company came) and halves when it does not.
"""

from __future__ import annotations


class CommitWindow:
    """gc_min and gc_max in ns bound the wait."""

    __slots__ = ("_expected", "_max_ns", "_min_ns", "_window_ns", "stretch")

    def __init__(self, min_us: int, max_us: int) -> None:
        self._min_ns = min_us * 1000
        self._max_ns = max(max_us, min_us) * 1000
        self._window_ns = self._min_ns
        self._expected = 1
        #: Under pressure: it waits for so many times the company, and as many times as long.
        self.stretch = 1

    def wait_for(self, waiting: int) -> tuple[int, int]:
        """(how many to wait for, at most how many ns) when `waiting` are there; (0, 0) = go now."""
        wanted = self._expected * self.stretch
        if self._expected <= 1 or waiting >= wanted:
            return 0, 0
        return wanted, self._window_ns * self.stretch

    def waited(self, came: int) -> None:
        """After a wait: how many are there now."""
        if came >= self._expected:
            self._window_ns = min(self._max_ns, self._window_ns * 2)
        else:
            self._window_ns = max(self._min_ns, self._window_ns // 2)

    def committed(self, group: int) -> None:
        """A group of this size was synced: the next one is expected to be about as large."""
        self._expected = max(1, (self._expected + group + 1) // 2 if group > self._expected else group)
