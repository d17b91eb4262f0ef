"""A clock that stands still until a test moves it.

clock = FakeClock()
await clock.advance(250)     # on the loop: sleepers wake in the order of their time, and run, one moment at a time
clock.tick(250)              # from anywhere: time jumps; sleepers and waiting threads that are due wake up
clock.set_wall(0)            # somebody set the machine's clock; monotonic time does not notice
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from itertools import count

START_WALL_MS = 1_700_000_000_000
START_MONOTONIC_NS = 1_000_000_000
#: How often `advance` lets the loop run after each moment: enough for a chain of this many callbacks.
SETTLE_ROUNDS = 25
#: How often `jump` does so before it gives up.
MOST_ROUNDS = 1000


@dataclass(slots=True, eq=False)
class _Sleeper:
    due_ns: int
    order: int
    future: asyncio.Future[None]
    loop: asyncio.AbstractEventLoop

    def wake(self, threads: bool) -> None:
        """With `threads`, from any thread. A loop that was closed with sleepers in it is left alone."""
        if self.loop.is_closed():
            return
        if threads:
            self.loop.call_soon_threadsafe(self._resolve)
        else:
            self.loop.call_soon(self._resolve)

    def _resolve(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


@dataclass(slots=True, eq=False)
class _Waiter:
    due_ns: int
    condition: threading.Condition
    expired: bool = False


class FakeClock:
    """storage.platform.clock.Clock, moved by hand. Safe to use from several threads and loops."""

    def __init__(
        self, wall_ms: int = START_WALL_MS, monotonic_ns: int = START_MONOTONIC_NS, *, threads: bool = True
    ) -> None:
        """`threads`: whether it is used by several threads. If not, `advance` goes on as soon as the loop is idle."""
        self._threads = threads
        self._changed = threading.Condition()
        self._wall_ns: int = wall_ms * 1_000_000
        self._monotonic_ns: int = monotonic_ns
        self._order = count()
        self._sleepers: list[_Sleeper] = []
        self._waiters: list[_Waiter] = []
        self._waiting_for_ever = 0

    # ---- Clock

    def wall_ns(self) -> int:
        with self._changed:
            return self._wall_ns

    def wall_ms(self) -> int:
        """`wall_ns` in the form of records."""
        return self.wall_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        with self._changed:
            return self._monotonic_ns

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        with self._changed:
            due_ns = self._monotonic_ns + _ns(seconds * 1000)
            sleeper = _Sleeper(due_ns, next(self._order), loop.create_future(), loop)
            self._sleepers.append(sleeper)
            self._changed.notify_all()
        try:
            await sleeper.future
        finally:
            with self._changed:
                if sleeper in self._sleepers:
                    self._sleepers.remove(sleeper)

    def wait(self, condition: threading.Condition, seconds: float | None) -> bool:
        """Like Condition.wait. May return True early, if the time of another thread on the same condition ran out."""
        if seconds is None:
            return self._wait_for_ever(condition)
        if seconds <= 0:
            return condition.wait(0)
        with self._changed:
            waiter = _Waiter(self._monotonic_ns + _ns(seconds * 1000), condition)
            self._waiters.append(waiter)
            self._changed.notify_all()
        try:
            condition.wait()
        finally:
            with self._changed:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
        return not waiter.expired

    def _wait_for_ever(self, condition: threading.Condition) -> bool:
        with self._changed:
            self._waiting_for_ever += 1
            self._changed.notify_all()
        try:
            return condition.wait()
        finally:
            with self._changed:
                self._waiting_for_ever -= 1

    # ---- moving it

    def set_wall(self, ms: int) -> None:
        """Set the wall clock alone, as an administrator or NTP does."""
        with self._changed:
            self._wall_ns = ms * 1_000_000

    def tick(self, ms: float) -> None:
        """Let this much time pass at once, and wake what is due, earliest first. May be called from any thread."""
        self._move_to(self.monotonic_ns() + _ns(ms))

    async def advance(self, ms: float) -> None:
        """Let this much time pass on the running loop, with a stop at every moment at which something is due.

        Tasks that wake up run, and may sleep again within the same advance, before time moves on. Work that they give
        to real threads is not waited for.
        """
        end_ns = self.monotonic_ns() + _ns(ms)
        await _settle(self._threads)
        while (due_ns := self._next_due_ns()) is not None and due_ns <= end_ns:
            self._move_to(due_ns)
            await _settle(self._threads)
        self._move_to(end_ns)
        await _settle(self._threads)

    async def jump(self, ms: float) -> None:
        """Let this much time pass at once, and the running loop work until it is idle. Sleepers that are due several
        times meanwhile wake once. Not with threads."""
        assert not self._threads
        self.tick(ms)
        for _ in range(MOST_ROUNDS):
            await _settle(threads=False)
            if not asyncio.get_running_loop()._ready:  # type: ignore[attr-defined]  # pyright: ignore
                return
        raise AssertionError("The loop does not come to rest.")

    @property
    def sleeping(self) -> int:
        """How many tasks are in `sleep` for some time."""
        with self._changed:
            return len(self._sleepers)

    @property
    def waiting(self) -> int:
        """How many threads are in `wait`, with or without a time."""
        with self._changed:
            return len(self._waiters) + self._waiting_for_ever

    def until_waiting(self, threads: int = 1, timeout_s: float = 10.0) -> None:
        """Block until this many threads are in `wait`. Raises TimeoutError if they do not come."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._waiters) + self._waiting_for_ever >= threads, timeout_s):
                raise TimeoutError(f"fewer than {threads} threads came to wait")

    def _next_due_ns(self) -> int | None:
        with self._changed:
            return min((entry.due_ns for entry in (*self._sleepers, *self._waiters)), default=None)

    def _move_to(self, monotonic_ns: int) -> None:
        with self._changed:
            # Another thread may have moved it further meanwhile. It never goes back.
            monotonic_ns = max(monotonic_ns, self._monotonic_ns)
            self._wall_ns += monotonic_ns - self._monotonic_ns
            self._monotonic_ns = monotonic_ns
            sleepers = sorted(
                (sleeper for sleeper in self._sleepers if sleeper.due_ns <= monotonic_ns),
                key=lambda sleeper: (sleeper.due_ns, sleeper.order),
            )
            waiters = [waiter for waiter in self._waiters if waiter.due_ns <= monotonic_ns]
            self._sleepers = [sleeper for sleeper in self._sleepers if sleeper.due_ns > monotonic_ns]
            self._waiters = [waiter for waiter in self._waiters if waiter.due_ns > monotonic_ns]
            for waiter in waiters:
                waiter.expired = True
        # Outside our own lock: a waiting thread holds its condition when it registers here.
        for sleeper in sleepers:
            sleeper.wake(self._threads)
        for waiter in waiters:
            with waiter.condition:
                waiter.condition.notify_all()


def _ns(ms: float) -> int:
    return round(ms * 1_000_000)


async def _settle(threads: bool) -> None:
    ready = None if threads else getattr(asyncio.get_running_loop(), "_ready", None)
    for _ in range(SETTLE_ROUNDS):
        await asyncio.sleep(0)
        # This task is the last of its turn. If nothing is queued now, further turns are empty.
        if ready is not None and not ready:
            return
