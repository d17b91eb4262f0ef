"""The answers of a connection, in the order of their requests, however they become ready."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from broker.kafka.call import Body

#: Bytes of a whole answer, None: there is none to this request.
Whole: TypeAlias = Body | None


class _Slot:
    __slots__ = ("done", "finish", "whole")

    def __init__(self, finish: Callable[[Whole], None]) -> None:
        self.done = False
        self.whole: Whole = None
        self.finish = finish


class Outbox:
    """Holds back what is ready before its turn.

    `send` gets one body after the other, `failed` what an answer on its way has ended in instead.
    """

    __slots__ = ("_closed", "_failed", "_slots", "_tasks")

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._slots: deque[_Slot] = deque()
        self._tasks: set[asyncio.Future[Whole]] = set()
        self._failed = failed
        self._closed = False

    def __len__(self) -> int:
        """How many are on their way."""
        return len(self._slots)

    def add(self, body: Whole, finish: Callable[[Whole], None]) -> None:
        """An answer that is ready: `finish` is called with it when its turn has come, maybe at once."""
        if not self._slots:
            finish(body)
            return
        slot = _Slot(finish)
        slot.whole, slot.done = body, True
        self._slots.append(slot)

    def expect(self, coming: asyncio.Future[Whole], finish: Callable[[Whole], None]) -> None:
        """One that is on its way."""
        slot = _Slot(finish)
        self._slots.append(slot)
        self._tasks.add(coming)

        def arrived(_: asyncio.Future[Whole]) -> None:
            self._tasks.discard(coming)
            if coming.cancelled():
                return
            error = coming.exception()
            if error is not None:
                if not self._closed:
                    self._failed(error)
                return
            slot.whole, slot.done = coming.result(), True
            self._pass_on()

        coming.add_done_callback(arrived)

    def close(self) -> None:
        """Nobody wants them any more. Those on their way are let go on: what they wait for is handed in already."""
        self._slots.clear()
        self._closed = True

    def _pass_on(self) -> None:
        while self._slots and self._slots[0].done:
            slot = self._slots.popleft()
            slot.finish(slot.whole)
