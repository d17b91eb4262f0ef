"""A write that made its topic took a config with several partitions, which PUT refuses."""

from __future__ import annotations

import pytest

from storage import Durability, TopicConfig
from storage.errors import InvalidRequest, TopicNotFound
from tests.unit.storage.machine import Machine, record


@pytest.mark.parametrize("durability", [Durability.DISK, Durability.EPHEMERAL])
async def test_it_is_refused_and_nothing_is_made(durability: Durability) -> None:
    async with Machine() as machine:
        engine = await machine.start()
        with pytest.raises(InvalidRequest) as caught:
            await engine.append("t", [record()], config=TopicConfig(partitions=4, durability=durability))
        assert caught.value.detail["field"].endswith("partitions")
        with pytest.raises(TopicNotFound):
            engine.state("t")
