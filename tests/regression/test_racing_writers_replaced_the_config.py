"""Two writes created the same ephemeral topic at once. The config of the second replaced that of the first, which had
created it."""

from __future__ import annotations

import asyncio

from storage import Durability, TopicConfig
from tests.unit.storage.machine import Machine, record


async def test_the_config_applies_only_for_the_write_that_creates_the_topic() -> None:
    async with Machine() as machine:
        engine = await machine.start()
        answers = await asyncio.gather(
            *(
                engine.append("t", [record(n)], config=TopicConfig(durability=Durability.EPHEMERAL, cap_records=10 + n))
                for n in range(3)
            )
        )
        assert [each.created for each in answers].count(True) == 1
        assert engine.state("t").config.cap_records == 10
        assert sorted(each.first_seq for each in answers) == [1, 2, 3]
