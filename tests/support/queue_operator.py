"""An operator who works on a queue while others use it: pauses and resumes it, purges it, and redrives its dead
jobs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.support.kill_connection import Connection, Cut
from tests.support.queue_history import Pause, Purge, Redrive

if TYPE_CHECKING:
    from tests.support.queue_load import QueueLoad

_AGAIN_S = 0.02
_BETWEEN_S = (0.05, 0.25)
#: Longer than the tolerance of times, so that a lease that begins in between is detected.
_PAUSED_S = (0.3, 0.5)
#: A purge of all ready jobs is made when no more are produced, so that some work remains.
_PURGED_AT_MOST = 30
#: About as long as a redrive of some jobs takes.
_AMID_S = 0.01


class Operator:
    """Does one thing after the other, each equally often, until the faults are over. `done`: nothing is in progress any
    more, and the queue is not paused."""

    def __init__(self, load: QueueLoad) -> None:
        self._load = load
        self._calls = load.calls
        self._dice = load.dice
        self._deck: list[type[Pause | Purge | Redrive]] = []
        self.done = asyncio.Event()

    async def run(self) -> None:
        service = self._load.service
        while not self.done.is_set():
            await service.serving()
            try:
                async with service.connect() as connection:
                    while not service.calm:
                        await self._turn(connection)
                    await self._calls.pause(connection, Pause(node="operator", paused=False))
                    self.done.set()
            except Cut:
                await asyncio.sleep(_AGAIN_S)

    async def _turn(self, connection: Connection) -> None:
        await asyncio.sleep(self._dice.uniform(*_BETWEEN_S))
        if not self._deck:
            self._deck = [Pause, Purge, Redrive, Redrive]
            self._dice.shuffle(self._deck)
        self._load.counts["looked after"] += 1
        match self._deck.pop():
            case kind if kind is Pause:
                await self._pause(connection)
            case kind if kind is Purge:
                await self._purge(connection)
            case _:
                await self._redrive(connection)

    async def _pause(self, connection: Connection) -> None:
        await self._calls.pause(connection, Pause(node="operator", paused=True))
        self._load.service.strike_at(Pause)
        await asyncio.sleep(self._dice.uniform(*_PAUSED_S))
        await self._calls.pause(connection, Pause(node="operator", paused=False))
        self._load.counts["paused"] += 1

    async def _purge(self, connection: Connection) -> None:
        few = self._calls.ready <= _PURGED_AT_MOST
        states = self._dice.choice((("ready",), ("ready", "delayed"))) if few else ("delayed",)
        purged = await self._calls.purge(connection, Purge(node="operator", states=states))
        self._load.service.strike_at(Purge)
        self._load.purged += purged
        self._load.counts["purged"] += purged

    async def _redrive(self, connection: Connection) -> None:
        redriving = asyncio.create_task(
            self._calls.redrive(connection, Redrive(node="operator", max=self._dice.choice((1, 5, 1000))))
        )
        try:
            await asyncio.sleep(self._dice.uniform(0, _AMID_S))
            self._load.service.strike_at(Redrive)
        finally:
            self._load.counts["redriven"] += await redriving
