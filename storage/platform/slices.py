"""Goes through very many things on the loop without keeping others from their turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import TypeVar

from storage.platform.clock import Clock

T = TypeVar("T")

#: Others get their turn after so long,
SLICE_NS = 1_000_000
#: which is looked at every so many things.
_EVERY = 64


async def in_slices(things: Iterable[T], clock: Clock) -> AsyncGenerator[T]:
    """Each of them, in order. Whoever goes through must be ready for the world to change from one to the next."""
    begin = clock.monotonic_ns()
    for number, thing in enumerate(things, 1):
        yield thing
        if number % _EVERY == 0 and clock.monotonic_ns() - begin > SLICE_NS:
            await asyncio.sleep(0)
            begin = clock.monotonic_ns()
