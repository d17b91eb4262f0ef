"""Locks by name."""

from __future__ import annotations

import asyncio
import gc

from storage.topics import NamedLocks


async def test_one_name_is_held_by_one_at_a_time_in_order_and_other_names_are_free() -> None:
    locks = NamedLocks()
    order: list[int] = []

    async def use(number: int) -> None:
        async with locks.hold("a"):
            order.append(number)
            await asyncio.sleep(0)
            order.append(number)

    async with locks.hold("b"):
        assert (locks.held("a"), locks.held("b")) == (False, True)
        await asyncio.gather(*(use(number) for number in range(3)))
    assert order == [0, 0, 1, 1, 2, 2]


async def test_names_that_nobody_uses_take_no_memory() -> None:
    locks = NamedLocks()
    for number in range(100):
        async with locks.hold(f"name-{number}"):
            pass
    gc.collect()
    assert not any(locks.held(f"name-{number}") for number in range(100))
    assert len(locks) == 0
