"""The instant of a backup: every answered write is below it, even one that overtook a write waiting for its sync."""

from __future__ import annotations

import asyncio

from storage import Durability, Engine, TopicConfig
from tests.support.sim_disk import SimDisk
from tests.unit.storage.machine import DATA, options, record


async def test_an_answer_with_a_sync_pending_in_front_is_below_the_instant() -> None:
    disk = SimDisk()
    engine = Engine(DATA, options(), fs=disk)
    await engine.start()
    await engine.put_topic("slow", TopicConfig(durability=Durability.FSYNC))
    await engine.put_topic("quick", TopicConfig(durability=Durability.DISK))
    await engine.append("quick", [record(0)])
    gates = [disk.hold("datasync", f"{DATA}/wal/*", nth=nth, times=1) for nth in (1, 2)]
    try:
        slow = [asyncio.ensure_future(engine.append("slow", [record(1)]))]
        await asyncio.to_thread(gates[0].wait_held)
        # These two become a group: the first waits for the sync, the second is answered before it.
        slow.append(asyncio.ensure_future(engine.append("slow", [record(2)])))
        quick = asyncio.ensure_future(engine.append("quick", [record(3)]))
        await asyncio.sleep(0)
        gates[0].open()
        await asyncio.to_thread(gates[1].wait_held)
        assert (await quick).first_seq == 2
        assert not slow[1].done()
        [shard] = engine.shards
        assert shard.applied_lsn < shard.completed_end == shard.log.end_lsn
    finally:
        for gate in gates:
            gate.open()
    await asyncio.gather(*slow)
    assert shard.completed_end == shard.applied_lsn == shard.log.end_lsn
    await engine.close()
