"""Requests with a list of names. Each cell answers for the names that it has, and the client gets one list in its
order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from broker.content import in_slices
from broker.kafka.call import LIST_ITEMS, Call
from broker.kafka.codec import Message
from broker.kafka.errors import ErrorCode, code_of, message_of
from broker.kafka.node import Cells
from broker.kafka.spread.asking import MAX_HOPS, PATIENCE_S, Handle, ask, passable
from storage import StorageError

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


def spread(
    api_key: int,
    request_kind: type[Q],
    answer_kind: type[R],
    handle: Handle[Q, R],
    *,
    owner: Callable[[Cells, Any], int],
    refused: Callable[[Any, ErrorCode, str | None], Any],
    into: Sequence[tuple[str, str]],
    unavailable: ErrorCode = ErrorCode.LEADER_NOT_AVAILABLE,
    patience_s: float = PATIENCE_S,
    timeout_s: float = 30.0,
) -> Handle[Q, R]:
    """Wrap `handle`, which answers for the names of this cell, so that it answers for the names of all cells.

    `into`: pairs of a list field in the request and the list field in the answer that has one entry for each of its
    entries. Of several pairs, the first with a list that is not empty is used. `owner`: the cell of an entry.
    `refused`: makes the answer for an entry whose cell did not answer. Its code is `unavailable` if the cell cannot be
    reached, or REQUEST_TIMED_OUT if the request may have been carried out.
    """

    async def handle_all(call: Call, request: Q) -> R:
        cells = call.broker.cells
        if cells is None or call.hops >= MAX_HOPS:
            return await handle(call, request)
        field, result = next((pair for pair in into if getattr(request, pair[0])), into[0])
        entries: list[Any] = getattr(request, field) or []
        positions: dict[int, list[int]] = {}
        async for at, entry in in_slices(enumerate(entries)):
            positions.setdefault(owner(cells, entry), []).append(at)
        if positions.keys() <= {cells.me}:
            return await handle(call, request)
        found: list[Any] = [None] * len(entries)
        whole: list[R] = []

        async def of(cell: int, wanted: list[int]) -> None:
            part = msgspec.structs.replace(request, **{field: [entries[at] for at in wanted]})
            try:
                if cell == cells.me:
                    answer = await handle(call, part)
                else:
                    large = len(wanted) > LIST_ITEMS
                    answer = await ask(
                        call, cell, part, answer_kind, patience_s=patience_s, large=large, timeout_s=timeout_s
                    )
            except StorageError as error:
                code = code_of(error, unavailable=unavailable if error.outcome == "none" else _UNKNOWN)
                for at in wanted:
                    found[at] = refused(entries[at], code, message_of(error))
                return
            whole.append(answer)
            for at, one in zip(wanted, getattr(answer, result), strict=True):
                found[at] = one

        await asyncio.gather(*(of(cell, wanted) for cell, wanted in positions.items()))
        return msgspec.structs.replace(whole[0] if whole else answer_kind(), **{result: found})

    passable(api_key, request_kind, handle_all)
    return handle_all


_UNKNOWN = ErrorCode.REQUEST_TIMED_OUT
