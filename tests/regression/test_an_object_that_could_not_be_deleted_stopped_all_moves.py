"""Objects of a deleted topic that cannot be deleted keep no other topic out of the cold tier."""

from __future__ import annotations

from typing import Any

import pytest

from storage import Durability, Engine, TopicConfig
from storage.segments.tiering.open import open_store
from storage.segments.tiering.store import ColdUnavailable
from storage.state.manifest import COLD
from tests.unit.storage.conftest import machine as machine
from tests.unit.storage.machine import DATA, Machine, options, record

FSYNC = TopicConfig(durability=Durability.FSYNC)


async def test_moves_go_on_while_a_deleted_topic_cannot_be_removed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store("/mnt/cold", machine.disk)
    engine = Engine(
        DATA,
        options(segment_max_events=10, checkpoint_records=1, hot_retain_segments=1, checkpoint_interval_ms=10**9),
        fs=machine.disk,
        clock=machine.clock,
        threaded=False,
        cold=store,
    )
    await engine.start()
    machine._engine = engine

    async def fill(name: str) -> None:
        for number in range(25):
            await engine.append(name, [record(number)], config=FSYNC)
        await engine.segment_worker.flush_all()

    await fill("gone")
    await engine.relocator.tick()
    assert engine.topic("gone").log.held.manifest.segments[0].tier == COLD

    def delete(key: str) -> Any:
        raise ColdUnavailable(key, "AccessDenied: the object is locked until 2027")

    monkeypatch.setattr(store, "delete", delete)
    await engine.delete_topic("gone")
    await fill("t")
    with pytest.raises(ColdUnavailable):  # it is tried again in the next round
        await engine.relocator.tick()
    assert engine.topic("t").log.held.manifest.segments[0].tier == COLD
