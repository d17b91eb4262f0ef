"""A snapshot was taken between a Delete of all records of a segment and the write of its flags. The next start had the
records back.

The segment counted as dead in the snapshot, so the replayed Delete was not looked up in it. Its files did not know of
the deletion yet, and were believed.
"""

from __future__ import annotations

import pytest

from storage.records.values import TagMatch
from tests.unit.storage.machine import Machine, record, seqs


@pytest.mark.parametrize("by_tag", [True, False])
@pytest.mark.parametrize("how", ["clean", "kill", "power"])
async def test_records_of_a_segment_deleted_as_a_whole_stay_deleted(how: str, by_tag: bool) -> None:
    async with Machine() as machine:
        engine = await machine.start(segment_max_events=4)
        for _ in range(3):
            await engine.append("t", [record(0, tag="x") for _ in range(4)])
            await engine.segment_worker.flush_all()
        await engine.append("t", [record(0, tag="y")])
        await (engine.delete_records("t", match=TagMatch(b"x")) if by_tag else engine.delete_records("t", before_seq=9))
        for _ in range(2):
            await engine.snapshotter.take()
        for _ in range(2):
            engine = await {"clean": machine.restart, "kill": machine.kill, "power": machine.cut_power}[how](
                segment_max_events=4
            )
            assert await seqs(engine, "t") == ([13] if by_tag else [*range(9, 14)])
