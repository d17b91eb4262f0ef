"""The order in which watchers get their turns."""

from __future__ import annotations

import asyncio
import contextlib

from broker.scheduling import ROUND, DeliveryScheduler


async def test_no_delivery_waits_while_the_round_has_capacity() -> None:
    turns = DeliveryScheduler()
    taking = turns.take(ROUND, lambda: 0)
    with contextlib.suppress(StopIteration):
        taking.send(None)
    assert (turns.waits_total, turns.waiting) == (0, 0)


async def test_after_a_full_round_the_event_loop_runs_once() -> None:
    turns = DeliveryScheduler()
    order: list[str] = []
    await turns.take(ROUND, lambda: 0)
    asyncio.get_running_loop().call_soon(order.append, "others")
    await turns.take(1, lambda: 0)
    order.append("turn")
    assert order == ["others", "turn"]
    assert turns.waits_total == 1


async def test_under_pressure_the_higher_priority_is_first() -> None:
    turns = DeliveryScheduler()
    order: list[int] = []

    async def work(priority: int) -> None:
        await turns.take(ROUND, lambda: priority)
        order.append(priority)

    await asyncio.gather(*(work(priority) for priority in (0, -1000, 0, 100, 1000)))
    assert order[0] == 0  # it asked first, and there was time
    assert order[1] == 1000
    assert order[-1] == -1000


async def test_without_pressure_deliveries_are_first_come_first_served() -> None:
    turns = DeliveryScheduler()
    order: list[int] = []

    async def work(priority: int) -> None:
        await turns.take(1, lambda: priority)
        order.append(priority)

    await asyncio.gather(*(work(priority) for priority in (-1000, 1000)))
    assert order == [-1000, 1000]


async def test_a_topic_of_the_lowest_priority_does_not_starve() -> None:
    turns = DeliveryScheduler()
    done = asyncio.Event()

    async def busy() -> None:
        while not done.is_set():
            await turns.take(ROUND, lambda: 1000)

    async def low() -> None:
        for _ in range(5):
            await turns.take(ROUND, lambda: -1000)
        done.set()

    async with asyncio.timeout(10):
        await asyncio.gather(*(busy() for _ in range(5)), low())


async def test_cancelled_waiter_takes_no_turn() -> None:
    turns = DeliveryScheduler()
    await turns.take(ROUND, lambda: 0)
    gone = asyncio.create_task(turns.take(ROUND, lambda: 1000))
    await asyncio.sleep(0)
    gone.cancel()
    async with asyncio.timeout(5):
        await turns.take(1, lambda: 0)
    assert turns.waiting == 0
