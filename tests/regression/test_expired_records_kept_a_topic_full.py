"""A topic that rejects at its cap answered topic_full for records that had expired but were not yet swept."""

from __future__ import annotations

import pytest

from storage import Discard, Durability, TopicConfig
from storage.errors import TopicFull
from tests.unit.storage.machine import Machine, records, seqs


@pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.DISK, Durability.EPHEMERAL])
async def test_an_append_to_a_full_topic_succeeds_as_soon_as_its_records_expire(durability: Durability) -> None:
    config = TopicConfig(ttl_ms=100, cap_records=3, discard=Discard.REJECT, durability=durability)
    async with Machine() as machine:
        engine = await machine.start(expiry_interval_ms=10**9)
        await engine.append("t", records(3), config=config)
        await machine.clock.advance(100)
        with pytest.raises(TopicFull):
            await engine.append("t", records(1))
        await machine.clock.advance(1)
        await engine.append("t", records(3))
        assert await seqs(engine, "t") == [4, 5, 6]
        with pytest.raises(TopicFull):
            await engine.append("t", records(1))
