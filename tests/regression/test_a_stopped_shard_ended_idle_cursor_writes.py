"""Cursors of idle consumers become durable, also while another shard has stopped."""

from __future__ import annotations

from tests.unit.storage.machine import Machine, records
from tests.unit.storage.queues.jobs import turns


async def test_cursors_of_the_other_shards_are_written() -> None:
    async with Machine() as machine:
        engine = await machine.start(wal_shards=2)
        names: dict[int, list[str]] = {0: [], 1: []}
        for number in range(24):
            name = f"t{number}"
            await engine.append(name, records(2))
            names[engine.topic(name).log.shard].append(name)
            await engine.put_consumer(name, "c")
            await engine.consumers.read(name, "c")
        assert min(map(len, names.values())) > 2
        engine.shards[0].log.stop_for(OSError(5, "the disk"))
        for _ in range(6):
            await machine.clock.advance(1000)
            await turns(50)
        assert {engine.consumer_state(name, "c").durable_seq for name in names[1]} == {2}
