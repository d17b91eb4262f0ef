"""The cold store for the segments of one cluster: the keys of their objects, and .data that reads like a file.

    <cluster id>/topics/<topic_id, 16 hex>/seg-….data|.idx      named as in the hot tier
    <cluster id>/topics/<topic_id, 16 hex>/topic.json           names the segments that count

Source: docs/reference/format.md#directory, docs/reference/format.md#cold-tier.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Protocol

from storage.platform import Readable
from storage.segments import names
from storage.segments.names import SegmentId
from storage.segments.tiering.store import ColdError, ColdStore

TOPIC_FILE = "topic.json"

_BELOW = re.compile(r"([0-9a-f]{16})/([^/]+)")


class Tier(Protocol):
    """Where the .data of cold segments is. Every method may be called from any thread."""

    #: Counters for the metrics: reads of .data, and requests of any kind that failed.
    reads: int
    errors: int
    #: Segments may move there.
    is_open: bool

    def data(self, id: SegmentId) -> Readable:
        """The segment's .data, without a request yet. Its methods raise ColdMissing, ColdUnavailable."""
        ...

    def count_error(self) -> None:
        """Count a failed request."""
        ...


class ColdTier:
    """A tier with objects of its own, which the relocator puts and removes. Every method may be called from any thread;
    those that use the store only from the cold pool."""

    is_open = True

    def __init__(self, store: ColdStore, cluster_id: str, mark_used: Callable[[bool], None] | None = None) -> None:
        """`mark_used` must be called before anything moves there: see `Marker.mark_used`."""
        self.store = store
        self.cluster_id = cluster_id
        self.mark_used = mark_used
        #: Key of the folder with all logs.
        self.folder = f"{cluster_id}/{names.TOPICS}"
        self._counting = threading.Lock()
        #: Counters for the metrics: reads of .data, and requests of any kind that failed.
        self.reads = 0
        self.errors = 0

    def log_folder(self, topic_id: int) -> str:
        """Key of a log's folder."""
        return f"{self.folder}/{topic_id:016x}"

    def key(self, id: SegmentId, ext: str) -> str:
        """Key of one of a segment's objects: `ext` is DATA or IDX."""
        return f"{self.log_folder(id.topic_id)}/{names.file_name(id.first_seq, id.gen, ext)}"

    def topic_key(self, topic_id: int) -> str:
        """Key of the log's topic.json."""
        return f"{self.log_folder(topic_id)}/{TOPIC_FILE}"

    def parse(self, key: str) -> tuple[int, str] | None:
        """(topic_id, name) of an object in a log's folder; None for any other."""
        match = _BELOW.fullmatch(key.removeprefix(f"{self.folder}/"))
        return (int(match[1], 16), match[2]) if match else None

    def data(self, id: SegmentId) -> ColdData:
        """The segment's .data, without a request yet."""
        return ColdData(self, self.key(id, names.DATA))

    def count_error(self) -> None:
        """Count a failed request."""
        with self._counting:
            self.errors += 1

    def read(self, key: str, offset: int, size: int) -> bytes:
        """Part of an object, counted. Raises ColdMissing, ColdUnavailable."""
        with self._counting:
            self.reads += 1
        try:
            return self.store.get_range(key, offset, size)
        except ColdError:
            self.count_error()
            raise


class ColdData:
    """An object that reads like an open file, as far as a segment reader needs. Objects never change."""

    def __init__(self, tier: ColdTier, key: str) -> None:
        self._tier = tier
        self._key = key
        self._size: int | None = None

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`. Raises ColdMissing, ColdUnavailable."""
        return self._tier.read(self._key, offset, size)

    def size(self) -> int:
        """Bytes of the object. Raises ColdMissing, ColdUnavailable."""
        if self._size is None:
            try:
                self._size = self._tier.store.size(self._key)
            except ColdError:
                self._tier.count_error()
                raise
        return self._size

    def close(self) -> None:
        """There is nothing to close."""
