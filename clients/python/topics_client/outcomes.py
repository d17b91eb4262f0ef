"""What became of the records of a producer: one outcome for each batch, and a light handle for each record."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future

import msgspec

from topics_client.values import Appended


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """Where a record is stored. `partition`: of a topic with several."""

    topic: str
    seq: int
    partition: int | None = None


class Outcome:
    """What became of a batch; set once, by any thread."""

    __slots__ = ("_callbacks", "_finished", "_lock", "appended", "asked", "error")

    def __init__(self) -> None:
        self.appended: Appended | None = None
        self.error: Exception | None = None
        #: Somebody looks at it: an error need not be said elsewhere.
        self.asked = False
        self._lock = threading.Lock()
        self._finished = threading.Event()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def is_set(self) -> bool:
        """Whether it is known."""
        return self._finished.is_set()

    def set(self, outcome: Appended | Exception) -> list[Callable[[], None]]:
        """Says it to all who wait for it. Returns the callbacks, for the caller to call."""
        if isinstance(outcome, Exception):
            self.error = outcome
        else:
            self.appended = outcome
        with self._lock:
            self._finished.set()
            callbacks, self._callbacks = self._callbacks, []
        return callbacks

    def wait(self, timeout: float | None = None) -> bool:
        """Until it is known; False after `timeout` seconds without it."""
        return self._finished.wait(timeout)

    def when_set(self, callback: Callable[[], None]) -> None:
        """Calls it once the outcome is known: at once, or later in another thread."""
        with self._lock:
            if not self._finished.is_set():
                self._callbacks.append(callback)
                return
        callback()


class Sent(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A record that a producer took. Any thread may ask what became of it, and asyncio code may await it."""

    _outcome: Outcome
    _index: int

    def done(self) -> bool:
        """Whether it is known what became of the record."""
        return self._outcome.is_set

    def result(self, timeout: float | None = None) -> Stored:
        """Where it is stored; waits for it, at most `timeout` seconds (then TimeoutError). Raises what its batch failed
        with: an error of `topics_client.errors`, whose `outcome` says whether it may be stored nevertheless."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        appended = self._outcome.appended
        assert appended is not None
        return Stored(topic=appended.topic, seq=appended.first_seq + self._index, partition=appended.partition)

    def exception(self, timeout: float | None = None) -> Exception | None:
        """What its batch failed with, None if it is stored; waits like `result`."""
        self._outcome.asked = True
        if not self._outcome.wait(timeout):
            raise TimeoutError("It is not known yet what became of the record.")
        return self._outcome.error

    def future(self) -> Future[Stored]:
        """A future with the same result, for what wants one: `concurrent.futures.wait`, callbacks."""
        self._outcome.asked = True
        future: Future[Stored] = Future()
        future.set_running_or_notify_cancel()
        self._outcome.when_set(lambda: self._complete(future))
        return future

    def _complete(self, future: Future[Stored]) -> None:
        error = self._outcome.error
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(self.result())

    def __await__(self) -> Generator[object, None, Stored]:
        return asyncio.wrap_future(self.future()).__await__()
