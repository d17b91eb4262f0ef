"""A write that created its topic accepted a config with more partitions than a PUT allows."""

from __future__ import annotations

import pytest

from storage import Durability, TopicConfig
from storage.errors import LimitReached, TopicNotFound
from tests.unit.storage.machine import Machine, record


@pytest.mark.parametrize("durability", [Durability.DISK, Durability.EPHEMERAL])
async def test_an_append_with_too_many_partitions_is_refused_and_makes_no_topic(durability: Durability) -> None:
    async with Machine() as machine:
        engine = await machine.start()
        with pytest.raises(LimitReached) as caught:
            await engine.append("t", [record()], config=TopicConfig(partitions=1000, durability=durability))
        assert caught.value.detail["limit"] == "max_partitions"
        with pytest.raises(TopicNotFound):
            engine.state("t")
