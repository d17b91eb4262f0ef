"""A clean stop kept the idempotency keys of an ephemeral topic but not its records, so retries reported success."""

from __future__ import annotations

from storage import Durability, TopicConfig
from tests.unit.storage.machine import Machine, record, seqs


async def test_a_retry_after_its_ephemeral_records_are_lost_writes_new_records() -> None:
    async with Machine() as machine:
        engine = await machine.start()
        await engine.append("t", [record()], idempotency_key="before", config=TopicConfig(durability=Durability.FSYNC))
        await engine.put_topic("t", TopicConfig(durability=Durability.EPHEMERAL))
        await engine.append("t", [record()], idempotency_key="within")
        engine = await machine.restart()
        assert await seqs(engine, "t") == [1]
        assert (await engine.append("t", [record()], idempotency_key="before")).deduped
        again = await engine.append("t", [record()], idempotency_key="within")
        assert (again.first_seq, again.deduped) == (3, False)
        assert await seqs(engine, "t", from_seq=2) == [3]
