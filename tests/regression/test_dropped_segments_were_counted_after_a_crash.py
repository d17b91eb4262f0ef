"""All segments of a topic were dropped and the process died before the next snapshot. Afterwards the dropped records
were counted.

During a replay the content of segments is not known exactly. It was only counted afterwards if some segments were left.
"""

from __future__ import annotations

from typing import Any

import pytest

from storage import TopicConfig
from storage.records.values import TagMatch
from tests.unit.storage.machine import Machine, record

SMALL: dict[str, Any] = {"segment_max_events": 7, "checkpoint_interval_ms": 10**9}


@pytest.mark.parametrize("how", ["tag", "cap", "ttl"])
@pytest.mark.parametrize("power", [False, True])
async def test_records_of_dropped_segments_are_not_counted_after_a_crash(how: str, power: bool) -> None:
    async with Machine() as machine:
        engine = await machine.start(**SMALL)
        for number in range(14):
            await engine.append("t", [record(number, tag="x")])
        await engine.segment_worker.flush_all()
        machine.clock.tick(60)
        if how == "tag":
            await engine.delete_records("t", match=TagMatch(b"x"))
        else:
            await engine.put_topic("t", TopicConfig(cap_records=3))
            await engine.put_topic("t", TopicConfig(cap_records=3, ttl_ms=50 if how == "ttl" else 0))
        if how == "cap":
            for number in range(3):
                await engine.append("t", [record(number)])
        await engine.segment_worker.tick()
        assert engine.housekeeping.dropped == 2
        before = engine.state("t")
        engine = await (machine.cut_power(**SMALL) if power else machine.kill(**SMALL))
        after = engine.state("t")
        assert (after.count, after.bytes) == (before.count, before.bytes)
        log = engine.catalog.topics["t"].log
        assert (log.assigned_count, log.assigned_bytes) == (before.count, before.bytes)
        assert engine.catalog.usage.bytes == before.bytes
