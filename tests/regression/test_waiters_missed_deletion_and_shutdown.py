"""A reader waited for records and was woken although there were none. It waited on, although the topic had been deleted
or the engine had stopped meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from storage import TagMatch
from storage.errors import ShuttingDown, TopicNotFound
from tests.unit.storage.machine import Machine, outcome, record

LONG_MS = 5_000


async def test_a_waiter_woken_by_a_delete_gets_topic_not_found_when_the_topic_is_deleted() -> None:
    async with Machine() as machine:
        engine = await machine.start()
        await engine.append("t", [record(tag="x")])
        waiting = asyncio.create_task(outcome(engine.wait_beyond("t", 1, LONG_MS)))
        await asyncio.sleep(0)
        await asyncio.gather(engine.delete_records("t", match=TagMatch(b"x")), engine.delete_topic("t"))
        async with asyncio.timeout(LONG_MS / 5000):
            error = await waiting
        assert isinstance(error, TopicNotFound)
        assert error.detail == {"topic": "t"}


async def test_a_waiter_woken_by_a_delete_gets_shutting_down_when_the_engine_stops() -> None:
    async with Machine() as machine:
        engine = await machine.start()
        await engine.append("t", [record(tag="x")])
        waiting = asyncio.create_task(engine.wait_beyond("t", 1, LONG_MS))
        await asyncio.sleep(0)
        engine.publisher.wake(log_id := engine.catalog.topics["t"].topic_id)
        assert log_id
        engine.begin_shutdown()
        async with asyncio.timeout(LONG_MS / 5000):
            with pytest.raises(ShuttingDown):
                await waiting
