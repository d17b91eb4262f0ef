"""A cold tier of objects that are there anyway: those of a cell in a bucket, which its bases name.

A segment moves there without a copy, once the newest base names its object: the local .data goes, and every later base
names the object again. Whoever puts the bases also deletes what they do not name. So there is no topic.json, no .idx
and nothing to tidy up.

Source: docs/reference/bucket.md#cold-segments.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from storage.segments.names import SegmentId
from storage.segments.tiering.store import ColdError, ColdMissing


class NamedObject(NamedTuple):
    """An object with the .data of a segment, and its length in bytes."""

    key: str
    size: int


class NamedTier:
    """As `storage.segments.tiering.Tier`."""

    def __init__(self, read: Callable[[str, int, int], bytes], *, is_open: bool) -> None:
        """`read` returns up to so many bytes of an object, from an offset on: key, offset, size. It blocks, and raises
        ColdMissing, ColdUnavailable. `is_open`: segments may move here."""
        self._read = read
        self.is_open = is_open
        self._objects: Mapping[SegmentId, NamedObject] = {}
        self._counting = threading.Lock()
        self.reads = 0
        self.errors = 0

    def name(self, objects: Mapping[SegmentId, NamedObject]) -> None:
        """The objects of all sealed segments, as of the newest base. Replaces what was named before."""
        self._objects = objects

    def has(self, id: SegmentId, size: int) -> bool:
        """Whether the newest base names an object of that length for the segment."""
        found = self._objects.get(id)
        return found is not None and found.size == size

    def data(self, id: SegmentId) -> NamedData:
        """The segment's .data, without a request yet."""
        return NamedData(self, id)

    def count_error(self) -> None:
        """Count a failed request."""
        with self._counting:
            self.errors += 1

    def find(self, id: SegmentId) -> NamedObject:
        """Raises ColdMissing."""
        found = self._objects.get(id)
        if found is None:
            raise ColdMissing(f"of segment {id.first_seq} of log {id.topic_id:016x}")
        return found

    def read(self, id: SegmentId, offset: int, size: int) -> bytes:
        """Part of the .data, counted. Raises ColdMissing, ColdUnavailable."""
        with self._counting:
            self.reads += 1
        try:
            found = self.find(id)
            # Stores refuse a range that begins at the end.
            size = min(size, found.size - offset)
            return self._read(found.key, offset, size) if size > 0 else b""
        except ColdError:
            self.count_error()
            raise


class NamedData:
    """Reads like an open file, as far as a segment reader needs. Each read asks which object it is by now: two bases
    later it may be another one with the same bytes."""

    def __init__(self, tier: NamedTier, id: SegmentId) -> None:
        self._tier = tier
        self._id = id

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`. Raises ColdMissing, ColdUnavailable."""
        return self._tier.read(self._id, offset, size)

    def size(self) -> int:
        """Bytes of the object. Raises ColdMissing."""
        return self._tier.find(self._id).size

    def close(self) -> None:
        """There is nothing to close."""
