"""Records of other days: a data directory whose records were committed at times that the test chooses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import msgspec

from storage.engine import Engine
from storage.options import Options
from storage.platform.clock import SystemClock
from storage.records.values import NewRecord


class _SetClock(SystemClock):
    """The machine's clock with a wall clock that can be set."""

    def __init__(self, wall_ms: int) -> None:
        self.now_ms = wall_ms

    def wall_ns(self) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.now_ms * 1_000_000


def write_dated(path: Path, topic: str, batches: Iterable[tuple[int, list[bytes]]]) -> None:
    """A stopped directory with a topic. Each batch of JSON texts is committed at its time (ms, ascending).

    A batch may be some ms late: the engine's time moves on between two of them.
    """
    asyncio.run(_write(path, topic, list(batches)))


async def _write(path: Path, topic: str, batches: list[tuple[int, list[bytes]]]) -> None:
    clock = _SetClock(batches[0][0])
    async with Engine.open(path, Options(wal_file_bytes=1 << 20, wal_reserve_bytes=1 << 16), clock=clock) as engine:
        for now_ms, texts in batches:
            clock.now_ms = now_ms
            await engine.append(topic, [NewRecord(data=msgspec.Raw(text)) for text in texts])
