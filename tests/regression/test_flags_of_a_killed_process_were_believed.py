"""A process was killed between flagging deleted records in a segment and syncing the flags.

The next start saw the flags in the page cache, took them for durable and dropped the Delete frame. After snapshots and
a power loss the flags were gone, and the records were back or contradicted their index.
"""

from __future__ import annotations

import asyncio

import pytest

from storage.records.values import TagMatch
from tests.support.crash_run import until_crash
from tests.support.sim_disk import Loss
from tests.unit.storage.machine import Machine, record, seqs


@pytest.mark.parametrize("file", ["data", "idx"])
async def test_deletes_with_unsynced_flags_survive_a_kill_and_a_power_loss(file: str) -> None:
    async with Machine() as machine:
        engine = await machine.start(segment_max_events=6)
        await engine.append("t", [record(number, tag="x" if number % 2 else "y") for number in range(6)])
        await engine.segment_worker.flush_all()
        await engine.delete_records("t", match=TagMatch(b"x"))
        machine.disk.crash_on("datasync", f"*/seg-*.{file}", when="before")
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        await until_crash(machine.disk, engine.segment_worker.flush_all())
        assert machine.disk.crashed
        engine = await machine.kill(segment_max_events=6)
        for _ in range(3):
            await engine.segment_worker.flush_all()
            await engine.append("t", [record(1, tag="y")])
            await engine.snapshotter.take()
        machine.disk = machine.disk.power_cut(Loss.DROP)
        engine = await machine.start(segment_max_events=6)
        assert await seqs(engine, "t") == [1, 3, 5, 7, 8, 9]
