"""A write that arrived between the end of a reservation and its callbacks blocked the event loop for ever.

The reservation was done, but its callbacks had not run. Waiting for it did not let the loop continue, so nothing had
changed when the write looked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from storage import Durability, Engine, TopicConfig
from storage.state.log import Log
from tests.unit.storage.machine import Machine, records

ROUNDS = 50


@pytest.fixture
async def engine(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engine]:
    """An engine that fails, instead of looping for ever, when reservations are asked for again and again."""
    async with Machine() as machine:
        engine = await machine.start()
        extend = engine.reservations.extend
        calls = iter(range(ROUNDS))

        async def counted(log: Log, records: int) -> None:
            assert next(calls, None) is not None, "the write spins"
            await extend(log, records)

        monkeypatch.setattr(engine.reservations, "extend", counted)
        yield engine


async def test_a_write_larger_than_a_just_ended_reservation_succeeds(engine: Engine) -> None:
    config = TopicConfig(durability=Durability.DISK)
    await engine.append("t", records(1), config=config)
    # Uses more than half of the reservation, so on return the next one is queued. The first step of the task comes
    # right after the group that commits it, and asks for more than it gives.
    await engine.append("t", records(200))
    larger = asyncio.create_task(engine.append("t", records(5000)))
    assert (await larger).last_seq == 5201
