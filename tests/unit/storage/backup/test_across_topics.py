"""Writes to several topics and shards around the instant of a backup: none is doubled or lost."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from storage import Durability, Engine, TopicConfig, TopicType
from storage.state.routers.router import Definition
from tests.unit.storage.backup.conftest import FSYNC, Rig
from tests.unit.storage.machine import data, record


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def shards_of(engine: Engine, *names: str) -> int:
    return len({engine.catalog.topics[name].log.shard for name in names})


@pytest.mark.parametrize("when", range(0, 36, 3))
async def test_copies_of_a_router_come_once(rig: Rig, when: int) -> None:
    names = ("a", "b", "c", "d")
    for name in names:
        await rig.engine.put_topic(name, FSYNC)
    assert shards_of(rig.engine, *names) == 2
    for source, dest in itertools.pairwise(names):
        await rig.engine.routers.put(f"{source}-{dest}", Definition(source=source, dest=dest))
    writing = [asyncio.ensure_future(rig.engine.append("a", [record(each)])) for each in range(9)]
    await turns(when)
    await rig.back_up()
    await asyncio.gather(*writing)
    rig.restore()
    engine = await rig.opened()
    await engine.append("a", [record("more")])
    await turns(400)
    source = await data(engine, "a")
    assert source[-1] == "more"
    for name in names[1:]:
        assert await data(engine, name) == source
    await engine.close()


@pytest.mark.parametrize("when", range(0, 36, 3))
async def test_a_job_moving_to_the_dead_letter_topic_is_restored_exactly_once(rig: Rig, when: int) -> None:
    await rig.engine.put_topic("dead", FSYNC)
    dead_shard = rig.engine.catalog.topics["dead"].log.shard
    queue = TopicConfig(
        type=TopicType.QUEUE, durability=Durability.FSYNC, leases_durable=True, max_deliveries=1, dead_letter="dead"
    )
    name = ""
    for number in range(20):
        name = f"q{number}"
        await rig.engine.put_topic(name, queue)
        if rig.engine.catalog.topics[name].log.shard != dead_shard:
            break
    assert shards_of(rig.engine, name, "dead") == 2
    await rig.engine.append(name, [record(each) for each in range(4)])
    await rig.engine.queues.claim(name, "n", max=4)
    giving_back = asyncio.ensure_future(rig.engine.queues.nack(name, "n", [1, 2, 3, 4]))
    await turns(when)
    await rig.back_up()
    await giving_back
    rig.restore()
    engine = await rig.opened()
    await turns(400)
    there = [*await data(engine, name), *await data(engine, "dead")]
    assert sorted(there) == [0, 1, 2, 3]
    await engine.close()
