"""Requests about everything in the broker: all cells answer, and the answers are merged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import TypeVar

from broker.kafka.call import Call
from broker.kafka.codec import Message
from broker.kafka.spread.asking import AWAY_AFTER_S, RETRY_S, Handle, ask
from storage import Unavailable

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)

#: How long a request for everything waits for a cell that is restarting.
LIST_PATIENCE_S = 2.0


async def all_there(call: Call) -> None:
    """Wait for cells that are restarting. Raises Unavailable if one cannot be asked.

    Apart from `from_all`, because large lists are answered one at a time: those that wait must not delay others.
    """
    cells = call.broker.cells
    if cells is None or call.hops:
        return
    deadline = monotonic() + LIST_PATIENCE_S

    async def there(cell: int) -> None:
        while True:
            try:
                await cells.peers.call(cell, "ready", None, timeout_s=LIST_PATIENCE_S)
                return
            except Unavailable:
                if monotonic() >= deadline:
                    raise
                await asyncio.sleep(RETRY_S)

    await asyncio.gather(*(there(cell) for cell in range(cells.count) if cell != cells.me))


async def from_all(call: Call, request: Q, kind: type[R], handle: Handle[Q, R]) -> Sequence[R]:
    """The answer of `handle` and those of all other cells. Only that of `handle` if another cell passed the request on.

    Raises Unavailable if a cell cannot be asked. An answer without its topics would tell clients that they were
    deleted.
    """
    cells = call.broker.cells
    if cells is None or call.hops:
        return [await handle(call, request)]
    others = [cell for cell in range(cells.count) if cell != cells.me]
    asked = [ask(call, cell, request, kind, patience_s=0, large=True) for cell in others]
    return await asyncio.gather(handle(call, request), *asked)


async def from_those_there(call: Call, request: Q, kind: type[R], handle: Handle[Q, R]) -> tuple[list[R], bool]:
    """Like `from_all`, but without the cells that cannot be asked. The flag: whether there are some."""
    cells = call.broker.cells
    if cells is None or call.hops:
        return [await handle(call, request)], False
    others = [cell for cell in range(cells.count) if cell != cells.me]
    asked = [ask(call, cell, request, kind, patience_s=0, large=True, timeout_s=AWAY_AFTER_S) for cell in others]
    mine, *found = await asyncio.gather(handle(call, request), *asked, return_exceptions=True)
    answers: list[R] = []
    for each in (mine, *found):
        if not isinstance(each, BaseException):
            answers.append(each)
        elif each is mine or not isinstance(each, Unavailable):
            raise each
    return answers, len(answers) <= len(others)
