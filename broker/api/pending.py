"""An answer that the engine will call back for: a handler returns it instead of waiting in a task.

The HTTP/1.1 protocol asks to be called (`then`) and sends the answer from within the engine's callback. All others
await it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, TypeAlias, TypeVar

import msgspec

from broker.api import strict_json
from broker.api.answers import Answer

T = TypeVar("T")

#: What a handler returns: the answer, or what will have it.
Outcome: TypeAlias = Answer | Awaitable[Answer]
#: What a pending answer comes to: an answer, an error, or work that takes a task after all.
Result: TypeAlias = Answer | Exception | Coroutine[Any, Any, Answer]


class Pending(Awaitable[Answer]):
    """`finish` makes the result of what the engine has done. It may return a coroutine, where it turns out that
    something must be waited for. `instead`: what takes a task, where the engine turns out to have done nothing.
    """

    __slots__ = ("_finish", "_instead", "_result", "_then")

    def __init__(
        self,
        finish: Callable[[Any], Answer | Coroutine[Any, Any, Answer]],
        instead: Callable[[], Coroutine[Any, Any, Answer]] | None = None,
    ) -> None:
        self._finish = finish
        self._instead = instead
        self._then: Callable[[Result], None] | None = None
        self._result: Result | None = None

    def resolve(self, outcome: Any) -> None:
        """The engine has done it, or failed with an exception. To be called once. Never raises."""
        result: Result
        if isinstance(outcome, Exception):
            result = outcome
        else:
            try:
                result = self._finish(outcome)
            except Exception as error:
                result = error
        if self._then is None:
            self._result = result
        else:
            self._then(result)

    def leave(self) -> None:
        """The engine has done nothing, because something must be waited for. In place of `resolve`; never raises."""
        assert self._instead is not None
        result = self._instead()
        if self._then is None:
            self._result = result
        else:
            self._then(result)

    def then(self, call: Callable[[Result], None]) -> None:
        """`call` is given the result, now or later. It must not raise."""
        if self._result is None:
            self._then = call
        else:
            call(self._result)

    def run(self, work: Coroutine[Any, Any, Any], cancelled: Callable[[], Exception]) -> Pending:
        """Resolve with what `work` returns or raises; with `cancelled()` where it was cancelled."""
        task = asyncio.ensure_future(work)
        _running.add(task)
        task.add_done_callback(partial(self._ran, cancelled))
        return self

    def _ran(self, cancelled: Callable[[], Exception], task: asyncio.Task[Any]) -> None:
        _running.discard(task)
        if task.cancelled():
            self.resolve(cancelled())
        else:
            error = task.exception()
            self.resolve(task.result() if error is None else error)

    def __await__(self) -> Generator[Any, None, Answer]:
        waiting: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.then(partial(_give, waiting))
        result = yield from waiting.__await__()
        if isinstance(result, Exception):
            raise result
        if isinstance(result, Answer):
            return result
        return (yield from result.__await__())


#: The loop itself would let them be collected.
_running: set[asyncio.Task[Any]] = set()


def _give(waiting: asyncio.Future[Result], result: Result) -> None:
    if not waiting.done():
        waiting.set_result(result)
    else:
        drop(result)  # whoever waited was cancelled


def drop(result: Result) -> None:
    """Nobody will be given it: take back what it grants, do not begin what it would begin."""
    if isinstance(result, Answer):
        if result.withdraw is not None:
            result.withdraw()
    elif not isinstance(result, Exception):
        result.close()


def decode_and(body: bytes, decoder: msgspec.json.Decoder[T], go_on: Callable[[T], Outcome]) -> Outcome:
    """`go_on` with what is in the body: at once, or in a coroutine where decoding a large body lets others run.

    Raises InvalidRequest, now or when it is awaited.
    """
    if len(body) <= strict_json.WALK_ON_LOOP_BYTES:
        return go_on(strict_json.decode_sync(body, decoder))
    return _decode_and(body, decoder, go_on)


async def _decode_and(body: bytes, decoder: msgspec.json.Decoder[T], go_on: Callable[[T], Outcome]) -> Answer:
    return await awaited(go_on(await strict_json.decode(body, decoder)))


async def awaited(outcome: Outcome) -> Answer:
    """The answer, waited for if it must be."""
    return outcome if isinstance(outcome, Answer) else await outcome
