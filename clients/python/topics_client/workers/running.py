"""Runs handlers: plain functions in threads, coroutine functions as tasks of one event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from typing import Any

from topics_client.workers.context import JobContext
from topics_client.workers.lane import Lane
from topics_client.workers.state import DONE, Held, Outcome

#: How long a task does jobs that never wait, before it lets the event loop do something else.
_GIVE_WAY_S = 0.005


class Threads:
    """Does the jobs of a lane in `lane.concurrency` threads. The process does not wait for them when it ends."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._idle = threading.Condition()
        #: How many threads wait, and how many of them should look again.
        self._waiting = self._called = 0
        self._threads = [
            threading.Thread(target=self._run, name=f"topics-job-{lane.queue}-{number}", daemon=True)
            for number in range(lane.concurrency)
        ]
        lane.came = self._came

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _came(self, count: int) -> None:
        with self._idle:
            self._called = self._waiting if count == 0 else min(self._waiting, self._called + count)
            self._idle.notify(count or self._waiting)

    def _run(self) -> None:
        lane = self._lane
        done: Held | None = None
        outcome: Outcome = DONE
        while True:
            held = lane.next(done, outcome)
            if held is None:
                done = None
                if not self._wait():
                    return
                continue
            outcome = self._do(held)
            done = held

    def _wait(self) -> bool:
        """Wait until jobs have come. False when the worker ends. Jobs may have come just before, so the wait is
        short."""
        with self._idle:
            if self._lane.stopping:
                return False
            self._waiting += 1
            if not self._called:
                self._idle.wait(0.2)
            self._waiting -= 1
            self._called = max(0, self._called - 1)
        return not self._lane.stopping

    def _do(self, held: Held) -> Outcome:
        lane = self._lane
        context: JobContext | None = None
        error: BaseException | None = None
        try:
            context, arguments = lane.arguments(held)
            lane.handler(*arguments)
        except BaseException as failure:
            # Whatever the error is, including SystemExit: a thread that ended here would keep its job forever.
            error = failure
        return lane.outcome(held, context, error)


class Tasks:
    """Does the jobs of a lane in `lane.concurrency` tasks of an event loop. A job whose lease is lost is cancelled."""

    def __init__(self, lane: Lane, loop: asyncio.AbstractEventLoop) -> None:
        self._lane = lane
        self._loop = loop
        self._idle: deque[asyncio.Future[None]] = deque()
        self._doing: dict[Held, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._gave_way_at = 0.0
        lane.came = self._came
        lane.lost = self._lost

    def start(self) -> None:
        """Start on the loop."""
        for number in range(self._lane.concurrency):
            task = self._loop.create_task(self._run(), name=f"topics-job-{self._lane.queue}-{number}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _came(self, count: int) -> None:
        self._on_loop(self._call, count)

    def _lost(self, held: Held) -> None:
        self._on_loop(self._cancel, held)

    def _on_loop(self, function: Any, argument: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, argument)
        except RuntimeError:
            return  # the loop is closed, and its tasks have ended

    def _call(self, count: int) -> None:
        for _ in range(count or len(self._idle)):
            if not self._idle:
                return
            waiting = self._idle.popleft()
            if not waiting.done():
                waiting.set_result(None)

    def _cancel(self, held: Held) -> None:
        if (task := self._doing.get(held)) is not None:
            task.cancel()

    async def _run(self) -> None:
        lane = self._lane
        done: Held | None = None
        outcome: Outcome = DONE
        while True:
            # Nothing else runs on the loop between this and the wait, so jobs that come meanwhile call later.
            held = lane.next(done, outcome)
            if held is None:
                done = None
                if lane.stopping:
                    return
                waiting: asyncio.Future[None] = self._loop.create_future()
                self._idle.append(waiting)
                await waiting
                continue
            outcome = await self._do(held)
            done = held
            if (now := time.monotonic()) - self._gave_way_at > _GIVE_WAY_S:
                self._gave_way_at = now
                await asyncio.sleep(0)

    async def _do(self, held: Held) -> Outcome:
        lane = self._lane
        context: JobContext | None = None
        error: BaseException | None = None
        task = asyncio.current_task()
        assert task is not None, "it runs as one"
        self._doing[held] = task
        try:
            context, arguments = lane.arguments(held)
            await lane.handler(*arguments)
        except asyncio.CancelledError as cancelled:
            # Ours, because the lease is lost: this task continues. Otherwise the program ends the loop, or the handler
            # cancelled something itself and did not catch it.
            if held.lost:
                if hasattr(task, "uncancel"):
                    task.uncancel()
            elif not hasattr(task, "cancelling") or task.cancelling():
                lane.give_back(held)
                raise
            error = RuntimeError(f"The handler was cancelled: {cancelled}")
        except GeneratorExit:
            raise
        except BaseException as failure:
            error = failure
        finally:
            del self._doing[held]
        return DONE if held.lost else lane.outcome(held, context, error)
