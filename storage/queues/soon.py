"""An outcome for whoever is no future: told at the loop's next turn. Belongs to the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class Soon:
    """`told` is called with the result or the exception, once, so as not to come between what is being done."""

    __slots__ = ("_done", "_loop", "_told")

    def __init__(self, loop: asyncio.AbstractEventLoop, told: Callable[[Any], None]) -> None:
        self._loop = loop
        self._told = told
        self._done = False

    def done(self) -> bool:
        return self._done

    def set_result(self, result: Any, /) -> None:
        if not self._done:
            self._done = True
            self._loop.call_soon(self._told, result)

    set_exception = set_result
