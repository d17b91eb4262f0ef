"""Errors of segment files. None of them is an OSError; those pass through unchanged.

SegmentError
  SegmentCorrupt     bytes that were durable are missing or are not what was written: file, offset, what
    SegmentShort     a file ends before the segment does: everything after that point is missing as well
  SegmentBroken      a write or sync failed earlier: nothing may be written to these files again
"""

from __future__ import annotations


class SegmentError(Exception):
    """A segment cannot be used as asked."""


class SegmentCorrupt(SegmentError):
    """Bytes of a segment are missing, or are not what was written. Nothing was changed by the call that raised it."""

    def __init__(self, file: str, offset: int, what: str) -> None:
        super().__init__(f"{file}, offset {offset}: {what}")
        self.file = file
        self.offset = offset
        self.what = what


class SegmentShort(SegmentCorrupt):
    """A file ends at `offset`, before the segment does. The rest of the segment is missing."""


class SegmentBroken(SegmentError):
    """A write or sync of the segment failed before; its files must never be synced again.

    What was marked durable stays readable. The caller continues in a new generation, written from that and the WAL.
    """
