"""A purge whose caller had left put its jobs back while their Delete was being written. The jobs were delivered, and
then lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.storage.machine import Machine
from tests.unit.storage.queues.jobs import claim_seqs, states, turns, with_jobs


async def test_jobs_of_a_cancelled_purge_are_not_claimed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await with_jobs(machine, 3)
    disk = asyncio.Event()
    submit = engine.logs.submit_controls

    def submit_slowly(*asked: Any, **how: Any) -> asyncio.Future[int | None]:
        async def later() -> int | None:
            await disk.wait()
            return await submit(*asked, **how)

        return asyncio.ensure_future(later())

    monkeypatch.setattr(engine.logs, "submit_controls", submit_slowly)
    purging = asyncio.create_task(engine.queues.purge("q"))
    await turns()
    purging.cancel()
    await turns()
    assert await claim_seqs(engine, 3) == []
    disk.set()
    await turns()
    assert purging.cancelled()
    assert states(engine) == {}
