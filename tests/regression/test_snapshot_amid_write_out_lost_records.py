"""A snapshot was taken while an ephemeral topic was being written to the log. The records that were already written
were missing from it."""

from __future__ import annotations

import asyncio

from storage import Durability, TopicConfig
from tests.support.sim_disk import Loss
from tests.unit.storage.machine import Machine, log_of, seqs, sized


async def test_records_written_out_before_the_snapshot_survive_a_power_cut() -> None:
    async with Machine() as machine:
        engine = await machine.start(wal_file_bytes=4 << 20)
        await engine.put_topic("t", TopicConfig(durability=Durability.EPHEMERAL))
        for _ in range(10):  # more than one group of the writer takes
            await engine.append("t", [sized(1_000_000)])
        changing = asyncio.create_task(engine.put_topic("t", TopicConfig(durability=Durability.FSYNC)))
        log = log_of(engine, "t")
        for _ in range(100):
            if log.wal_needed_from() is None:
                await asyncio.sleep(0)
        assert log.ephemeral, "the first group is in the log, the change of class is not"
        await engine.snapshotter.take()
        await changing

        engine = await machine.cut_power(Loss.DROP, wal_file_bytes=4 << 20)
        state = engine.state("t")
        assert (state.count, state.head_seq, state.bytes) == (10, 10, 10_000_000)
        assert await seqs(engine, "t", max_bytes=20_000_000) == list(range(1, 11))
