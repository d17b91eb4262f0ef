"""All records of a round were deleted between their copy into a segment and the mark in the log, and a snapshot was
taken there. Nothing else of the log was needed, so the Delete was not replayed, and the files of the segment said that
the records were live.
"""

from __future__ import annotations

from typing import Any

import pytest

from storage import Durability, Engine, TopicConfig
from storage.format import control
from storage.records.values import TagMatch
from tests.support.fake_clock import FakeClock
from tests.support.sim_disk import Loss, SimDisk
from tests.unit.storage.machine import DATA, options, record, seqs

SMALL = options(segment_max_events=10, checkpoint_records=1)


@pytest.mark.parametrize("power", [False, True])
async def test_records_deleted_between_copy_and_mark_stay_deleted(power: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, clock = SimDisk(), FakeClock()
    engine = Engine(DATA, SMALL, fs=disk, clock=clock, threaded=False)
    await engine.start()
    await engine.append("t", [record(1, tag="x")], config=TopicConfig(durability=Durability.FSYNC))
    submit, between = engine.submit_unit, 0

    async def meanwhile(*arguments: Any, **more: Any) -> None:
        nonlocal between
        between += 1
        await engine.delete_records("t", match=TagMatch(b"x"))
        await engine.snapshotter.take()
        await submit(*arguments, **more)

    def watched(shard: Any, topic_id: int, encoded: Any, **more: Any) -> Any:
        marks = any(isinstance(getattr(step, "value", None), control.CheckpointMark) for step in encoded.unit.steps)
        return (meanwhile if marks else submit)(shard, topic_id, encoded, **more)

    monkeypatch.setattr(engine.logs, "submit_unit", watched)
    await engine.flusher.flush_all()
    assert between == 1
    assert await seqs(engine, "t") == []
    await engine.supervisor.stop()
    for _ in range(2):
        disk = disk.power_cut(Loss.DROP) if power else disk.process_kill()
        engine = Engine(DATA, SMALL, fs=disk, clock=clock, threaded=False)
        await engine.start()
        assert await seqs(engine, "t") == []
        assert engine.state("t").count == 0
        await engine.supervisor.stop()
