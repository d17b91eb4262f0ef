"""Keeps the leases of held jobs alive with a task. In a separate file, so that programs without a loop do not load
asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from topics_client import deadlines
from topics_client.errors import TopicsError
from topics_client.renewing import Holding
from topics_client.values import Job, Settled
from topics_client.wire import Call

if TYPE_CHECKING:
    from typing_extensions import Self


class AsyncRenewing:
    """`Renewing`, with a task instead of a thread."""

    def __init__(self, holding: Holding, call: Callable[[Call[Settled]], Coroutine[Any, Any, Settled]]) -> None:
        self._holding = holding
        self._call = call
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        with deadlines.lifted():
            self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None, "it was entered"
        self._task.cancel()
        await asyncio.wait((self._task,))
        if not self._task.cancelled():
            self._task.result()

    async def wait_for_room(self, most: int) -> None:
        """Wait until fewer jobs than this are held."""
        while len(self._holding) >= most:
            await self._next_change(None)

    def begin(self, job: Job) -> None:
        """See `Holding`."""
        self._holding.begin(job)
        self._notify()

    def end(self, topic: str, node: str, jobs: Iterable[Job | int]) -> None:
        """See `Holding`."""
        self._holding.end(topic, node, jobs)
        self._notify()

    def _notify(self) -> None:
        # Wake everybody who waits now, and nobody who comes later.
        self._changed.set()
        self._changed = asyncio.Event()

    async def _next_change(self, within_s: float | None) -> None:
        # Before Python 3.12, asyncio.wait_for loses a cancellation that arrives together with the event.
        waiting = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((waiting,), timeout=within_s)
        finally:
            waiting.cancel()

    async def _run(self) -> None:
        while True:
            jobs = self._holding.due()
            if not jobs:
                await self._next_change(self._holding.wait_s())
                continue
            outcome: Settled | TopicsError
            try:
                outcome = await self._call(self._holding.renewal(jobs))
            except TopicsError as error:
                outcome = error
            self._holding.renewed(jobs, outcome)
            self._notify()
