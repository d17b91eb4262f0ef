"""When a topic was made ephemeral, its records on disk were counted as records in memory."""

from __future__ import annotations

from storage import Durability, TopicConfig
from tests.unit.storage.machine import Machine, record, records, sized

EPHEMERAL = TopicConfig(durability=Durability.EPHEMERAL)


async def test_only_records_without_a_copy_on_disk_count_as_ephemeral() -> None:
    async with Machine() as machine:
        engine = await machine.start(ephemeral_max_bytes=100)
        await engine.append("t", [sized(2000)])
        await engine.put_topic("t", EPHEMERAL)
        assert engine.catalog.usage.ephemeral_bytes == 0
        await engine.append("t", [sized(60)])
        assert engine.catalog.usage.ephemeral_bytes == 60
        await engine.delete_records("t", before_seq=2)
        assert engine.catalog.usage.ephemeral_bytes == 60
        await engine.delete_records("t", before_seq=3)
        assert engine.catalog.usage.ephemeral_bytes == 0


async def test_the_ephemeral_count_is_right_after_a_restart_and_a_return_to_disk() -> None:
    async with Machine() as machine:
        engine = await machine.start()
        await engine.append("t", records(7))
        await engine.put_topic("t", EPHEMERAL)
        await engine.append("t", records(2))
        engine = await machine.restart()
        assert engine.catalog.usage.ephemeral_bytes == 0
        await engine.append("t", [record(), record()])
        assert engine.catalog.usage.ephemeral_bytes == 2
        await engine.put_topic("t", TopicConfig())
        assert engine.catalog.usage.ephemeral_bytes == 0
        assert engine.catalog.usage.bytes == 9
