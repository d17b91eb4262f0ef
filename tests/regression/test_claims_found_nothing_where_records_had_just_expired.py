"""Records had expired, but the expiry worker had not announced it yet. A claim took such a record, dropped it, and
returned nothing."""

from __future__ import annotations

import pytest

from tests.unit.storage.machine import Machine
from tests.unit.storage.queues.jobs import add, claim_seqs, with_jobs


@pytest.mark.parametrize("leases_durable", [False, True])
@pytest.mark.parametrize("most", [1, 3])
async def test_a_claim_skips_expired_records_before_the_sweep(leases_durable: bool, most: int) -> None:
    async with Machine() as machine:
        engine = await with_jobs(machine, 2, ttl_ms=600, leases_durable=leases_durable)
        machine.clock.tick(400)
        await add(engine, 3)
        machine.clock.tick(201)
        assert await claim_seqs(engine, most) == [3, 4, 5][:most]
        assert engine.queues.figures("q").lost == 2
