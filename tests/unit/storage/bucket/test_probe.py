"""Stores that do not do what the log needs are refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from storage.bucket.probe import StoreRefused, probe
from tests.support.memory_bucket import MemoryBucket


class AllWin(MemoryBucket):
    """Ignores the condition."""

    def create(self, key: str, data: bytes) -> bool:
        self.objects[key] = data
        return True


class LateWins(MemoryBucket):
    """Keeps the condition only among simultaneous requests."""

    def create(self, key: str, data: bytes) -> bool:
        return super().create(key, data) or data == b"late"


class LastBytes(MemoryBucket):
    """Refuses, but stores the bytes."""

    def create(self, key: str, data: bytes) -> bool:
        won = super().create(key, data)
        self.objects[key] = data
        return won


class NoListing(MemoryBucket):
    """Lists nothing."""

    def names(self, prefix: str) -> list[str]:
        return []


class StaleListing(MemoryBucket):
    """Lists deleted objects."""

    def __init__(self) -> None:
        super().__init__()
        self.ever: set[str] = set()

    def create(self, key: str, data: bytes) -> bool:
        self.ever.add(key)
        return super().create(key, data)

    def names(self, prefix: str) -> list[str]:
        return [key for key in self.ever if key.startswith(prefix)]


class Undeleted(MemoryBucket):
    """Deletes nothing."""

    def delete(self, keys: Sequence[str]) -> None:
        pass


def test_a_correct_store_passes() -> None:
    store = MemoryBucket()
    probe(lambda: store, "probe", "n")
    assert store.objects == {}


@pytest.mark.parametrize(
    ("store", "told"),
    [
        (AllWin(), "8 of 8 requests created the same object"),
        (LateWins(), "created once more"),
        (LastBytes(), "other bytes"),
        (NoListing(), "does not show"),
        (StaleListing(), "shows an object that was deleted"),
        (Undeleted(), "a deleted object is still there"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_an_incorrect_store_is_refused_with_the_reason(store: MemoryBucket, told: str) -> None:
    with pytest.raises(StoreRefused, match=told):
        probe(lambda: store, "probe", "n")
