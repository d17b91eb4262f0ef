"""Requests about everything that there is: all cells answer, and the answers become one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from broker.kafka.call import Call
from broker.kafka.codec import Message
from broker.kafka.spread.asking import Handle, ask

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)

#: A request for everything waits so long for a cell that starts again.
LIST_PATIENCE_S = 2.0


async def from_all(call: Call, request: Q, kind: type[R], handle: Handle[Q, R]) -> Sequence[R]:
    """The answer of `handle`, and those of all other cells, if this request was not passed on by one of them.

    Raises Unavailable if one cannot be asked: an answer that lacks topics would tell clients that they were deleted.
    """
    cells = call.broker.cells
    if cells is None or call.hops:
        return [await handle(call, request)]
    others = [cell for cell in range(cells.count) if cell != cells.me]
    asked = [ask(call, cell, request, kind, patience_s=LIST_PATIENCE_S, large=True) for cell in others]
    return await asyncio.gather(handle(call, request), *asked)
