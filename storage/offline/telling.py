"""A store that says why it does not answer, for commands that go on asking for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from storage.bucket import Bucket, Unanswered

T = TypeVar("T")


class TellingBucket:
    """As `storage.bucket.Bucket`. `tell` gets each reason once, until the store answers again."""

    def __init__(self, bucket: Bucket, tell: Callable[[str], None]) -> None:
        self._bucket = bucket
        self._tell = tell
        self._last = ""
        #: Requests come from several threads.
        self._lock = threading.Lock()

    def create(self, key: str, data: bytes) -> bool:
        return self._asked(lambda: self._bucket.create(key, data))

    def get(self, key: str) -> bytes | None:
        return self._asked(lambda: self._bucket.get(key))

    def get_range(self, key: str, offset: int, size: int) -> bytes | None:
        return self._asked(lambda: self._bucket.get_range(key, offset, size))

    def put(self, key: str, data: bytes) -> None:
        self._asked(lambda: self._bucket.put(key, data))

    def delete(self, keys: Sequence[str]) -> None:
        self._asked(lambda: self._bucket.delete(keys))

    def stored_at(self, key: str) -> float | None:
        return self._asked(lambda: self._bucket.stored_at(key))

    def names(self, prefix: str) -> list[str]:
        return self._asked(lambda: list(self._bucket.names(prefix)))

    def _asked(self, request: Callable[[], T]) -> T:
        try:
            found = request()
        except Unanswered as error:
            self._tell_once(str(error))
            raise
        self._tell_once("")
        return found

    def _tell_once(self, reason: str) -> None:
        with self._lock:
            is_new = reason != self._last
            self._last = reason
        if reason and is_new:
            self._tell(reason)
