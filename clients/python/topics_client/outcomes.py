"""What became of the records of producers: one outcome for each batch, and a light handle for each record."""

from __future__ import annotations

import asyncio
import threading
from bisect import bisect_right
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import NamedTuple

import msgspec

from topics_client.values import Appended


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """Where a record is stored. `partition`: of a topic with several."""

    topic: str
    seq: int
    partition: int | None = None


class Part(NamedTuple):
    """What became of the records `begin` to `end` (exclusive) of a batch: most batches have one part.

    Of the records that the broker refuses, each is a part of its own.
    """

    begin: int
    end: int
    result: Appended | Exception


class Outcome:
    """What became of a batch; set once, by any thread."""

    __slots__ = ("_asked", "_callbacks", "_finished", "_lock", "_parts")

    def __init__(self) -> None:
        #: In the order of the records.
        self._parts: list[Part] = []
        #: Records that somebody looks at: their errors need not be said elsewhere.
        self._asked: set[int] = set()
        self._lock = threading.Lock()
        self._finished = threading.Event()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def is_set(self) -> bool:
        """Whether it is known."""
        return self._finished.is_set()

    @property
    def has_errors(self) -> bool:
        """Whether a record was not stored. The outcome is set."""
        return any(isinstance(part.result, Exception) for part in self._parts)

    def set(self, parts: list[Part]) -> list[Callable[[], None]]:
        """Says it to all who wait for it. Returns the callbacks, for the caller to call."""
        self._parts = parts
        with self._lock:
            self._finished.set()
            callbacks, self._callbacks = self._callbacks, []
        return callbacks

    def ask(self, index: int) -> None:
        """Somebody looks at what became of this record."""
        self._asked.add(index)

    def unasked(self) -> list[Exception]:
        """Errors of records of which nobody looks at any. The outcome is set."""
        return [
            part.result
            for part in self._parts
            if isinstance(part.result, Exception) and not any(each in self._asked for each in range(*part[:2]))
        ]

    def of(self, index: int) -> Stored | Exception:
        """What became of this record. The outcome is set."""
        part = self._parts[bisect_right(self._parts, index, key=_begin) - 1]
        if isinstance(part.result, Exception):
            return part.result
        seq = part.result.first_seq + index - part.begin
        return Stored(topic=part.result.topic, seq=seq, partition=part.result.partition)

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

    async def wait_async(self) -> None:
        """Until it is known. For one event loop, whose thread sets it."""
        if self._finished.is_set():
            return
        known: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.when_set(lambda: None if known.done() else known.set_result(None))
        await known


def _begin(part: Part) -> int:
    return part.begin


class _Handle(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A record that a producer took."""

    _outcome: Outcome
    _index: int

    def done(self) -> bool:
        """Whether it is known what became of the record."""
        return self._outcome.is_set

    def _stored(self) -> Stored:
        found = self._outcome.of(self._index)
        if isinstance(found, Exception):
            raise found
        return found

    def _error(self) -> Exception | None:
        found = self._outcome.of(self._index)
        return found if isinstance(found, Exception) else None


class Sent(_Handle, frozen=True, eq=False, gc=False):
    """A record that a Producer took. Any thread may ask what became of it, and asyncio code may await it."""

    def result(self, timeout: float | None = None) -> Stored:
        """Where it is stored; waits for it, at most `timeout` seconds (then TimeoutError). Raises why it is not stored:
        an error of `topics_client.errors`, whose `outcome` says whether it may be stored nevertheless."""
        self._wait(timeout)
        return self._stored()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Why it is not stored, None if it is; waits like `result`."""
        self._wait(timeout)
        return self._error()

    def future(self) -> Future[Stored]:
        """A future with the same result, for what wants one: `concurrent.futures.wait`, callbacks."""
        self._outcome.ask(self._index)
        future: Future[Stored] = Future()
        future.set_running_or_notify_cancel()
        self._outcome.when_set(lambda: self._complete(future))
        return future

    def _wait(self, timeout: float | None) -> None:
        self._outcome.ask(self._index)
        if not self._outcome.wait(timeout):
            raise TimeoutError("It is not known yet what became of the record.")

    def _complete(self, future: Future[Stored]) -> None:
        error = self._error()
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(self._stored())

    def __await__(self) -> Generator[object, None, Stored]:
        return asyncio.wrap_future(self.future()).__await__()


class AsyncSent(_Handle, frozen=True, eq=False, gc=False):
    """A record that an AsyncProducer took. Awaiting it gives where the record is stored, or raises why it is not: an
    error of `topics_client.errors`, whose `outcome` says whether it may be stored nevertheless. Giving up waiting
    changes nothing."""

    async def exception(self) -> Exception | None:
        """Why it is not stored, None if it is; waits until this is known."""
        await self._wait()
        return self._error()

    async def _result(self) -> Stored:
        await self._wait()
        return self._stored()

    async def _wait(self) -> None:
        self._outcome.ask(self._index)
        await self._outcome.wait_async()

    def __await__(self) -> Generator[object, None, Stored]:
        return self._result().__await__()
