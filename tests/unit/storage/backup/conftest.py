"""An engine with segments on a simulated disk, backed up and restored when a test says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest

from storage import Durability, Engine, TopicConfig
from storage.backup.restoring import Restored, restore
from storage.backup.taking import Summary
from storage.segments.tiering.store import ColdStore
from tests.support.backup_rig import BACKUPS, TARGET, differences
from tests.support.crash_view import TopicView, view
from tests.unit.storage.machine import Machine, options, record

FSYNC = TopicConfig(durability=Durability.FSYNC)
MOUNT = "/mnt/cold"


class Rig(Machine):
    """Enough records for three segments each time. The workers run when told to."""

    SETTINGS: ClassVar[dict[str, Any]] = {
        "wal_shards": 2,
        "segment_max_events": 10,
        "checkpoint_records": 1,
        "checkpoint_interval_ms": 10**9,
        "snapshot_interval_ms": 10**9,
        "hot_retain_segments": 1,
    }

    def __init__(self) -> None:
        super().__init__()
        self.engine: Engine
        self.settings = dict(self.SETTINGS)

    async def start(self, **changes: Any) -> Engine:
        self.settings = {**self.settings, **changes}
        self.engine = await super().start(**self.settings)
        return self.engine

    async def fill(self, topic: str = "t", count: int = 25, *, tag: str | None = None, first: int = 0) -> None:
        """Records that contain their number."""
        if topic not in {state.topic for state in self.engine.topics()}:
            await self.engine.put_topic(topic, FSYNC)
        await self.engine.append(topic, [record(first + each, tag=tag) for each in range(count)])

    async def mark_flushed(self) -> None:
        await self.engine.segment_worker.flush_all()

    async def back_up(self, directory: str = BACKUPS, **more: Any) -> Summary:
        return await self.engine.backups.take(directory, **more)

    async def seen(self) -> dict[str, TopicView]:
        return await view(self.engine)

    def restore(
        self, target: str = TARGET, *, backup: str = BACKUPS, number: int = 0, cold: ColdStore | None = None
    ) -> Restored:
        return restore(
            self.disk, backup, target, number=number, cold=cold, options=options(**self.settings), clock=self.clock
        )

    async def opened(self, target: str = TARGET, **changes: Any) -> Engine:
        """A second engine on the restored directory."""
        settings = options(**{**self.settings, "cold_dir": "", **changes})
        engine = Engine(target, settings, fs=self.disk, clock=self.clock, threaded=False)
        await engine.start()
        return engine

    async def found(self, target: str = TARGET, **more: Any) -> dict[str, TopicView]:
        """The contents of the newest backup, found by a restore."""
        self.restore(target, **more)
        engine = await self.opened(target)
        there = await view(engine)
        await engine.close()
        return there

    def files(self, folder: str = BACKUPS) -> dict[str, bytes]:
        return {path: data for path, data in self.disk.content().items() if path.startswith(folder + "/")}


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with Rig() as rig:
        await rig.start()
        yield rig


__all__ = ["BACKUPS", "FSYNC", "MOUNT", "TARGET", "Rig", "differences"]
