"""Rounds of background work that fail after nobody waits for them any more."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from types import SimpleNamespace
from typing import Any, cast

import pytest

from storage.errors import StorageFailed
from storage.segments.flusher import Flusher
from storage.segments.housekeeping import Housekeeping
from storage.segments.segment_worker import SegmentWorker
from storage.segments.segments import Segments
from tests.support.fake_clock import FakeClock


class FailingFlusher:
    """Its round begins, and fails when the test says so."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.failing = asyncio.Event()

    async def work(self) -> None:
        self.begun.set()
        await self.failing.wait()
        raise StorageFailed("a sync failed")


def worker(flusher: FailingFlusher) -> SegmentWorker:
    async def nothing() -> None: ...

    segments = SimpleNamespace(logs=SimpleNamespace(clock=FakeClock()), pausing=False)
    parts = cast("Segments", segments), cast("Flusher", flusher)
    return SegmentWorker(*parts, nothing, nothing, cast("Housekeeping", None))


async def test_the_error_of_a_round_reaches_who_waits_for_it() -> None:
    flusher = FailingFlusher()
    flusher.failing.set()
    with pytest.raises(StorageFailed):
        await worker(flusher).tick()


async def test_the_error_of_a_round_that_nobody_waits_for_is_not_reported_later() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    flusher = FailingFlusher()
    tested = worker(flusher)
    waiting = asyncio.ensure_future(tested.tick())
    await flusher.begun.wait()
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    flusher.failing.set()
    await tested.wait_idle()
    del tested, waiting
    gc.collect()
    assert reported == []
