"""A change of a topic that had to ask other cells first (whether the topic may get several partitions) wrote the config
that it had begun with. A change that had been answered meanwhile was undone."""

from __future__ import annotations

import asyncio

import msgspec

from storage import TopicConfig
from tests.unit.storage.machine import Machine


async def test_a_change_that_waits_takes_over_what_has_changed() -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slow(topic: str, look: bool) -> None:
        asked.set()
        await answer.wait()

    async with Machine() as machine:
        engine = await machine.start()
        engine.admin.check_ends = slow
        await engine.put_topic("t", TopicConfig())
        grow = asyncio.create_task(
            engine.change_topic("t", lambda config: msgspec.structs.replace(config, partitions=2))
        )
        await asked.wait()
        await engine.change_topic("t", lambda config: msgspec.structs.replace(config, cap_records=7))
        answer.set()
        await grow
        config = engine.state("t").config
        assert (config.partitions, config.cap_records) == (2, 7)
