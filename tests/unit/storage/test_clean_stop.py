"""After a clean stop the next start reads little of the log, and the stop takes a bounded time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from storage import Engine, ReadQuery, TopicConfig
from storage.segments import flusher
from storage.segments.flusher import Flusher
from storage.state.log import Log
from tests.unit.storage.machine import Machine, record

TOPICS = 20


async def filled(machine: Machine) -> Engine:
    """In each topic as much as is worth moving."""
    engine = await machine.start()
    for number in range(TOPICS):
        await engine.append(f"t{number}", [record(number)] * 1000, config=TopicConfig())
    return engine


def moved(engine: Engine) -> list[int]:
    return [number for number in range(TOPICS) if engine.topic(f"t{number}").log.held.flushed == 1000]


async def all_there(engine: Engine) -> bool:
    found = [await engine.read(f"t{number}", ReadQuery(limit=2000)) for number in range(TOPICS)]
    return all([record.seq for record in each.records] == [*range(1, 1001)] for each in found)


async def test_a_clean_stop_flushes_large_logs_only(machine: Machine) -> None:
    engine = await filled(machine)
    await engine.append("few", [record()] * 10, config=TopicConfig())
    assert not moved(engine)
    await engine.close()
    engine = await machine.start()
    assert moved(engine) == [*range(TOPICS)]
    assert engine.topic("few").log.held.flushed == 0
    assert await all_there(engine)


async def test_flushing_at_a_clean_stop_is_bounded_in_time(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await filled(machine)
    mark_flushed = Flusher._flush  # pyright: ignore[reportPrivateUsage]

    async def slowly(of: Flusher, logs: Sequence[Log]) -> None:
        await mark_flushed(of, logs)
        await machine.clock.advance(flusher.FINISH_WITHIN_MS // 2)

    monkeypatch.setattr(Flusher, "_flush", slowly)
    await engine.close()
    monkeypatch.undo()
    engine = await machine.start()
    assert len(moved(engine)) == 16, "two turns of eight topics each"
    assert await all_there(engine)
