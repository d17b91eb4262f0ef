"""What keeps a write from being enqueued right away, and is waited for before it is looked at again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

#: Something that has to be waited for; begun by the call.
Blocker: TypeAlias = Callable[[], Awaitable[Any]]


async def wait_done(future: asyncio.Future[Any]) -> None:
    """Wait for somebody else's work, whatever comes of it."""
    await asyncio.wait([future])
