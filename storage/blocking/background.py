"""An event loop on its own thread, for callers without one. Any number of threads may use it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from storage.errors import OtherProcess, ShuttingDown

T = TypeVar("T")


class BackgroundLoop:
    """Runs `life` first, then the work of the callers, and `farewell` at `stop`.

    The thread is a daemon: an interpreter that exits without `stop` does not wait for it.
    """

    def __init__(self, life: Callable[[], Awaitable[Any]], farewell: Callable[[], Awaitable[Any]]) -> None:
        """Returns when `life` has returned. If `life` raises, the thread ends and the error is raised here."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._open = True
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        begun: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
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
        self,
        life: Callable[[], Awaitable[Any]],
        farewell: Callable[[], Awaitable[Any]],
        begun: concurrent.futures.Future[None],
    ) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._run(life, farewell, begun))
        except BaseException as error:
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _run(
        self,
        life: Callable[[], Awaitable[Any]],
        farewell: Callable[[], Awaitable[Any]],
        begun: concurrent.futures.Future[None],
    ) -> None:
        try:
            await life()
        except BaseException as error:
            await self._shut()
            begun.set_exception(error)
            return
        begun.set_result(None)
        await self._ending.wait()
        try:
            await farewell()
        finally:
            await self._shut()

    async def _shut(self) -> None:
        """Refuse further calls. Calls that still wait are cancelled when the loop ends."""
        with self._lock:
            self._open = False
        await asyncio.sleep(0)  # work submitted before has started by then and can be cancelled

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run the coroutine and return or raise its result. ShuttingDown after the end; OtherProcess after a fork.

        An interrupt (Ctrl-C) of the waiting thread cancels the coroutine: a write in flight may still take effect.
        """
        if os.getpid() != self._pid:
            raise OtherProcess()
        if threading.current_thread() is self._thread:
            raise RuntimeError("The engine's own thread cannot wait for itself: use the Engine there.")
        # Made before the loop gets the work: an interrupt may come before this thread knows that the loop has it.
        done: concurrent.futures.Future[T] = concurrent.futures.Future()
        try:
            with self._lock:
                if not self._open:
                    raise ShuttingDown()
                self._loop.call_soon_threadsafe(self._begin, work, done)
            return done.result()
        except concurrent.futures.CancelledError:
            raise ShuttingDown() from None
        except BaseException:
            done.cancel()
            raise

    def _begin(self, work: Callable[[], Coroutine[Any, Any, T]], done: concurrent.futures.Future[T]) -> None:
        """On the loop: start the work whose outcome goes to `done`, unless the caller has given up."""
        if done.cancelled():
            return

        async def carry_out() -> T:
            return await work()

        task = self._loop.create_task(carry_out())
        task.add_done_callback(partial(_deliver, done))
        done.add_done_callback(partial(self._give_up, task))

    def _give_up(self, task: asyncio.Task[Any], done: concurrent.futures.Future[Any]) -> None:
        if done.cancelled():
            with suppress(RuntimeError):  # the loop has ended, and the task with it
                self._loop.call_soon_threadsafe(task.cancel)

    def call(self, work: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Make a plain call on the loop and return or raise its result."""

        async def on_loop() -> T:
            return work(*arguments, **named)

        return self.run(on_loop)

    def stop(self) -> None:
        """Stop the loop, once. Every caller waits until it has ended, and gets its outcome."""
        if os.getpid() != self._pid:
            return  # after a fork: the loop belongs to the parent process
        with self._lock:
            if self._open:
                self._loop.call_soon_threadsafe(self._ending.set)
        self._ended.result()


def _deliver(done: concurrent.futures.Future[T], task: asyncio.Task[T]) -> None:
    if task.cancelled():
        done.cancel()
    elif not done.set_running_or_notify_cancel():
        task.exception()  # no caller is left
    elif (error := task.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())
