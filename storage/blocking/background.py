"""An event loop on its own thread, for callers without one. Any number of threads may use it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar, cast

from storage.errors import OtherProcess, ShuttingDown

T = TypeVar("T")


class BackgroundLoop:
    """Runs `life` first, then the work of the callers, and `farewell` at `stop`.

    The thread is a daemon: an interpreter that exits without `stop` does not wait for it.

    An interrupt (Ctrl-C) may strike a caller between any two steps, also right after it has acquired a lock and before
    the `with` block that would release it. So the loop never waits for a lock that a caller takes: callers pass their
    work on, and wait for a lock that only the loop releases.
    """

    def __init__(self, life: Callable[[], Awaitable[Any]], farewell: Callable[[], Awaitable[Any]]) -> None:
        """Returns when `life` has returned. If `life` raises, the thread ends and the error is raised here."""
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        self._open = True
        #: Without an outcome yet. Callers add their own; the loop's thread removes them.
        self._calls: set[_Call[Any]] = set()
        self._error: BaseException | None = None
        begun: _Call[None] = _Call()
        self._thread = threading.Thread(
            target=self._main, args=(life, farewell, begun), name="storage-loop", daemon=True
        )
        self._thread.start()
        try:
            begun.result()
        except BaseException:  # also an interrupt: end the thread that was started
            self.stop()
            raise

    def _main(
        self, life: Callable[[], Awaitable[Any]], farewell: Callable[[], Awaitable[Any]], begun: _Call[None]
    ) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._run(life, farewell, begun))
        except BaseException as error:
            self._error = error
        # The loop is closed: a call that is added from here on finds that out itself.
        for call in [*self._calls]:
            call.end(error=ShuttingDown())

    async def _run(
        self, life: Callable[[], Awaitable[Any]], farewell: Callable[[], Awaitable[Any]], begun: _Call[None]
    ) -> None:
        try:
            await life()
        except BaseException as error:
            self._open = False
            begun.end(error=error)
            return
        begun.end(result=None)
        await self._ending.wait()
        try:
            await farewell()
        finally:
            self._open = False  # calls that still wait are cancelled when the loop ends

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run the coroutine and return or raise its result. ShuttingDown after the end; OtherProcess after a fork.

        An interrupt (Ctrl-C) of the waiting thread cancels the coroutine: a write in flight may still take effect.
        """
        if os.getpid() != self._pid:
            raise OtherProcess()
        if threading.current_thread() is self._thread:
            raise RuntimeError("The engine's own thread cannot wait for itself: use the Engine there.")
        call: _Call[T] = _Call()
        try:
            self._calls.add(call)
            self._pass_on(self._begin, call, work)
            return call.result()
        except BaseException:
            if not call.ended:  # an interrupt: the work may have been passed on or not; or the loop is closed
                try:
                    self._pass_on(self._give_up, call)
                except ShuttingDown:
                    self._calls.discard(call)
            raise

    def _pass_on(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call the function on the loop, after what was passed on before."""
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # it is closed
            raise ShuttingDown() from None

    def _begin(self, call: _Call[T], work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        """On the loop: start the work of a call."""
        if not self._open:
            self._end(call, error=ShuttingDown())
            return

        async def carry_out() -> T:
            return await work()

        call.task = self._loop.create_task(carry_out())
        call.task.add_done_callback(partial(self._deliver, call))

    def _deliver(self, call: _Call[T], task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self._end(call, error=ShuttingDown())
        elif (error := task.exception()) is not None:
            self._end(call, error=error)
        else:
            self._end(call, result=task.result())

    def _give_up(self, call: _Call[Any]) -> None:
        """On the loop: no thread waits for the call."""
        if call.task is None:
            self._calls.discard(call)
        else:
            call.task.cancel()

    def _end(self, call: _Call[T], *, result: T | None = None, error: BaseException | None = None) -> None:
        self._calls.discard(call)
        call.end(result=result, error=error)

    def call(self, work: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Make a plain call on the loop and return or raise its result."""

        async def on_loop() -> T:
            return work(*arguments, **named)

        return self.run(on_loop)

    def stop(self) -> None:
        """Stop the loop, once. Every caller waits until it has ended, and gets its outcome."""
        if os.getpid() != self._pid:
            return  # after a fork: the loop belongs to the parent process
        with suppress(ShuttingDown):
            self._pass_on(self._ending.set)
        self._thread.join()
        if self._error is not None:
            raise self._error


class _Call(Generic[T]):
    """Of one thread that waits for an outcome, which the loop's thread gives it once."""

    def __init__(self) -> None:
        self.task: asyncio.Task[T] | None = None
        """Belongs to the loop."""
        self.ended = False
        self._result: T | None = None
        self._error: BaseException | None = None
        self._waits = threading.Lock()
        self._waits.acquire()

    def end(self, *, result: T | None = None, error: BaseException | None = None) -> None:
        self._result, self._error = result, error
        self.ended = True
        self._waits.release()

    def result(self) -> T:
        """Wait, and return or raise the outcome. For one caller, once."""
        self._waits.acquire()
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # its traceback leads to this frame
        return cast("T", self._result)
