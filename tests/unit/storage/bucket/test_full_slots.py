"""Small slots wait for their time, and full ones do not: a store charges for a slot, whatever its size."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from storage.errors import StorageFailed
from storage.log.behind import FULL_BYTES, Behind
from storage.platform import SystemClock

HOUR_MS = 3_600_000
#: Nothing is expected in this time.
QUIET_S = 0.3
PATIENCE_S = 60


class Log:
    """As `storage.log.behind.Synced`: bytes that are written, and syncs that have begun."""

    def __init__(self) -> None:
        self.failed: OSError | None = None
        self.unsynced = 0
        self.begun = threading.Semaphore(0)

    def begin_sync(self) -> Callable[[], None] | None:
        self.unsynced = 0
        self.begun.release()
        return lambda: None

    def end_sync(self, error: OSError | None) -> None:
        self.failed = error

    def is_synced(self) -> bool:
        return not self.unsynced

    def unsynced_bytes(self) -> int:
        return self.unsynced

    def stop_for(self, error: Exception) -> None:
        raise AssertionError(error)

    def failure(self) -> StorageFailed:
        raise AssertionError


class Writer:
    """Writes to a log whose syncs are an hour apart. The first one is over."""

    def __init__(self) -> None:
        self.log = Log()
        self.behind = Behind(self.log, SystemClock(), HOUR_MS)
        self.behind.start(lambda _: None, lambda: None, None)
        self.write(1)
        assert self.syncs()

    def write(self, size: int) -> None:
        with self.behind.lock:
            self.log.unsynced += size
            self.behind.want()

    def syncs(self, within_s: float = PATIENCE_S) -> bool:
        """Whether another sync begins."""
        return self.log.begun.acquire(timeout=within_s)


@pytest.fixture
def writer() -> Iterator[Writer]:
    made = Writer()
    yield made
    made.behind.stop()


def test_a_small_slot_waits_for_its_time(writer: Writer) -> None:
    writer.write(FULL_BYTES - 1)
    assert not writer.syncs(QUIET_S)


def test_a_full_slot_begins_at_once(writer: Writer) -> None:
    for _ in range(3):
        writer.write(FULL_BYTES)
        assert writer.syncs()


def test_a_slot_begins_when_later_writes_fill_it(writer: Writer) -> None:
    writer.write(FULL_BYTES - 1)
    writer.write(1)
    assert writer.syncs()
