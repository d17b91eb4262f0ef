"""Files that a backup in progress keeps from being removed or changed. In memory: they end with the process.

Used on the loop and on the I/O pool. A full disk takes precedence: when one fills up during the backup, all pins are
released, and the backup fails (`intact`), because the files that it has not copied yet may have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from storage.segments.names import SegmentId


class Pins:
    """The pins of one engine, which has at most one backup at a time. `full`: whether a disk is full."""

    def __init__(self, full: Callable[[], bool]) -> None:
        self._full = full
        self._log = False
        self._full_before = False
        self._segments: set[SegmentId] = set()
        self._broken = False

    def begin(self) -> None:
        """From now on the log is not trimmed."""
        self._full_before = self._full()
        self._log = True

    def add(self, ids: Iterable[SegmentId]) -> None:
        """The files of these segments are neither flagged, nor moved, nor unlinked."""
        self._segments.update(ids)

    def release(self, ids: Iterable[SegmentId]) -> None:
        self._segments.difference_update(ids)

    def release_log(self) -> None:
        self._log = False

    def end(self) -> None:
        """Release everything, also what a full disk has broken: the next backup begins with pins of its own."""
        self._log = self._broken = False
        self._segments.clear()

    def holds_log(self) -> bool:
        """Whether log files and snapshots must stay."""
        return self._log and not self._is_broken()

    def holds(self, id: SegmentId) -> bool:
        """Whether the files of this segment must stay as they are."""
        return bool(self._segments) and id in self._segments and not self._is_broken()

    def topics(self) -> set[int]:
        """The topic_ids of logs with a pinned segment."""
        return set() if not self._segments or self._is_broken() else {id.topic_id for id in self._segments}

    def intact(self) -> bool:
        """Whether all pins were respected all the time."""
        return not self._is_broken()

    def _is_broken(self) -> bool:
        if self._log or self._segments:
            self._broken = self._broken or (not self._full_before and self._full())
        return self._broken
