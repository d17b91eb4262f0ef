"""Requests about everything in the broker: all cells answer, and the answers are merged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from broker.kafka.call import Call
from broker.kafka.codec import Message
from broker.kafka.spread.asking import Handle, ask

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)

#: How long a request for everything waits for a cell that is restarting.
LIST_PATIENCE_S = 2.0


async def from_all(call: Call, request: Q, kind: type[R], handle: Handle[Q, R]) -> Sequence[R]:
    """The answer of `handle` and those of all other cells. Only that of `handle` if another cell passed the request on.

    Raises Unavailable if a cell cannot be asked. An answer without its topics would tell clients that they were
    deleted.
    """
    cells = call.broker.cells
    if cells is None or call.hops:
        return [await handle(call, request)]
    others = [cell for cell in range(cells.count) if cell != cells.me]
    asked = [ask(call, cell, request, kind, patience_s=LIST_PATIENCE_S, large=True) for cell in others]
    return await asyncio.gather(handle(call, request), *asked)
