"""When several jobs died at once, one of them created the dead letter topic. The others found it incomplete, and
waited."""

from __future__ import annotations

import pytest

from storage import Durability, ReadQuery, TopicConfig, TopicType
from tests.unit.storage.machine import Machine, records
from tests.unit.storage.queues.jobs import turns


@pytest.fixture
def config() -> TopicConfig:
    return TopicConfig(type=TopicType.QUEUE, durability=Durability.FSYNC, max_deliveries=1, dead_letter="dead")


async def test_jobs_that_die_in_one_nack_are_moved_without_a_retry(config: TopicConfig) -> None:
    async with Machine() as machine:
        engine = await machine.start(wal_shards=2)
        await engine.put_topic("q", config)
        await engine.append("q", records(3))
        await engine.queues.claim("q", "n", max=3)
        await engine.queues.nack("q", "n", [1, 2, 3])
        await turns(400)
        assert engine.queues.figures("q").dead_pending == 0
        assert len((await engine.read("dead", ReadQuery())).records) == 3
