"""A store in memory that does what `storage.bucket.driver.Bucket` asks for."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence


class MemoryBucket:
    """A store that does everything right."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.lock = threading.Lock()

    def create(self, key: str, data: bytes) -> bool:
        with self.lock:
            if key in self.objects:
                return False
            self.objects[key] = data
            return True

    def get(self, key: str) -> bytes | None:
        return self.objects.get(key)

    def get_range(self, key: str, offset: int, size: int) -> bytes | None:
        found = self.objects.get(key)
        return None if found is None else found[offset : offset + size]

    def put(self, key: str, data: bytes) -> None:
        self.objects[key] = data

    def stored_at(self, key: str) -> float | None:
        return time.time() if key in self.objects else None

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)

    def names(self, prefix: str) -> list[str]:
        return [key for key in self.objects if key.startswith(prefix)]
