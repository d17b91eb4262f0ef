"""Iterates over many items on the loop without blocking others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import TypeVar

from storage.platform.clock import Clock

T = TypeVar("T")

#: The loop serves others after this time,
SLICE_NS = 1_000_000
#: which is checked after this many items.
_EVERY = 64


async def in_slices(things: Iterable[T], clock: Clock) -> AsyncGenerator[T]:
    """Each item, in order. Between two of them, the state may change."""
    begin = clock.monotonic_ns()
    for number, thing in enumerate(things, 1):
        yield thing
        if number % _EVERY == 0 and clock.monotonic_ns() - begin > SLICE_NS:
            await asyncio.sleep(0)
            begin = clock.monotonic_ns()
