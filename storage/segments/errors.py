"""What goes wrong with segment files. Neither is an OSError: those pass through as they are.

SegmentError
  SegmentCorrupt     bytes that were durable are missing or are not what was written: file, offset, what
    SegmentShort     a file ends before the segment does: everything behind is missing as well
  SegmentBroken      a write or sync failed earlier: the files may not be used for writing again
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
    """A file ends, at `offset`, before the segment does. What would lie behind is missing, to the segment's end."""


class SegmentBroken(SegmentError):
    """A write or sync of the segment failed before; its files must never be synced again.

    What was marked durable stays readable; the caller goes on in a new generation written from that and the WAL.
    """
