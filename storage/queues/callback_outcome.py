"""An outcome for whoever is no future: told at the loop's next turn. Belongs to the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class CallbackOutcome:
    """`callback` is called with the result or the exception, once, so as not to come between what is being done."""

    __slots__ = ("_callback", "_done", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[Any], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._done = False

    def done(self) -> bool:
        return self._done

    def set_result(self, result: Any, /) -> None:
        if not self._done:
            self._done = True
            self._loop.call_soon(self._callback, result)

    set_exception = set_result
