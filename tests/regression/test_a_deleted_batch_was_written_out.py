"""The last batch of an ephemeral topic was deleted by tag, and came back when the topic was made durable.

The batch is written to the log even so, because its seqs must not be used again. But its deletion was not written.
"""

from __future__ import annotations

import pytest

from storage import Durability, TopicConfig
from storage.records.values import TagMatch
from tests.unit.storage.machine import Machine, record, seqs


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("how", ["clean", "kill", "power"])
async def test_an_ephemeral_batch_deleted_by_tag_stays_deleted_after_the_topic_is_made_durable(
    how: str, before: int
) -> None:
    async with Machine() as machine:
        engine = await machine.start()
        for _ in range(before):
            await engine.append("t", [record()])
        await engine.put_topic("t", TopicConfig(durability=Durability.EPHEMERAL))
        await engine.delete_records("t", before_seq=before + 1)
        for _ in range(3):
            await engine.append("t", [record(tag="x"), record(tag="x")])
        assert (await engine.delete_records("t", match=TagMatch(b"x"))).deleted == 6
        await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC))
        for _ in range(2):
            assert await seqs(engine, "t") == []
            state = engine.state("t")
            assert (state.count, state.bytes, state.head_seq, state.evict_floor) == (0, 0, before + 6, 1)
            engine = await {"clean": machine.restart, "kill": machine.kill, "power": machine.cut_power}[how]()
        assert (await engine.append("t", [record()])).first_seq == before + 7
