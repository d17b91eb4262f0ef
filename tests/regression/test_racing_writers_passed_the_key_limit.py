"""Keys of writes in progress were not counted, so many simultaneous writes could exceed max_idempotency_keys."""

from __future__ import annotations

import asyncio

from storage.errors import LimitReached
from tests.unit.storage.machine import Machine, errors_among, outcome, record


async def test_the_key_limit_holds_for_concurrent_writes() -> None:
    async with Machine() as machine:
        engine = await machine.start(max_idempotency_keys=3)
        outcomes = await asyncio.gather(
            *(outcome(engine.append("t", [record(n)], idempotency_key=f"k{n}")) for n in range(8))
        )
        refused = errors_among(outcomes)
        assert len(refused) == 5
        assert all(isinstance(each, LimitReached) for each in refused)
        assert engine.catalog.usage.keys == 3
