"""The outcomes of producers' records: one object for each batch, and a light handle for each record."""

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
    """Where a record is stored. `partition` is set for a topic with several."""

    topic: str
    seq: int
    partition: int | None = None


class Part(NamedTuple):
    """The outcome of the records `begin` to `end` (exclusive) of a batch. Most batches have one part.

    Each record that the broker refuses is a part of its own.
    """

    begin: int
    end: int
    result: Appended | Exception


class Outcome:
    """The outcome of a batch. Set once, by any thread."""

    __slots__ = ("_asked", "_callbacks", "_finished", "_lock", "_parts")

    def __init__(self) -> None:
        #: In the order of the records.
        self._parts: list[Part] = []
        #: Records whose handle was asked: their errors need not be reported elsewhere.
        self._asked: set[int] = set()
        self._lock = threading.Lock()
        self._finished = threading.Event()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def is_set(self) -> bool:
        """Whether the outcome is known."""
        return self._finished.is_set()

    @property
    def has_errors(self) -> bool:
        """Whether a record was not stored. The outcome is set."""
        return any(isinstance(part.result, Exception) for part in self._parts)

    def set(self, parts: list[Part]) -> list[Callable[[], None]]:
        """Tell all who wait for it. Returns the callbacks, for the caller to call."""
        self._parts = parts
        with self._lock:
            self._finished.set()
            callbacks, self._callbacks = self._callbacks, []
        return callbacks

    def ask(self, index: int) -> None:
        """Somebody asks for the outcome of this record."""
        self._asked.add(index)

    def unasked(self) -> list[Exception]:
        """Errors of records that nobody has asked about. The outcome is set."""
        return [
            part.result
            for part in self._parts
            if isinstance(part.result, Exception) and not any(each in self._asked for each in range(*part[:2]))
        ]

    def of(self, index: int) -> Stored | Exception:
        """The outcome of this record. The outcome of the batch is set."""
        part = self._parts[bisect_right(self._parts, index, key=_begin) - 1]
        if isinstance(part.result, Exception):
            return part.result
        seq = part.result.first_seq + index - part.begin
        return Stored(topic=part.result.topic, seq=seq, partition=part.result.partition)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is known. False if it is not known after `timeout` seconds."""
        return self._finished.wait(timeout)

    def when_set(self, callback: Callable[[], None]) -> None:
        """Call this once the outcome is known: at once, or later in another thread."""
        with self._lock:
            if not self._finished.is_set():
                self._callbacks.append(callback)
                return
        callback()

    async def wait_async(self) -> None:
        """Wait until it is known. For one event loop, whose thread sets it."""
        if self._finished.is_set():
            return
        known: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.when_set(lambda: None if known.done() else known.set_result(None))
        await known


def _begin(part: Part) -> int:
    return part.begin


class _Handle(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A record that a producer has accepted."""

    _outcome: Outcome
    _index: int

    def done(self) -> bool:
        """Whether the outcome of the record is known."""
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
    """A record that a Producer has accepted. Any thread may ask for its outcome, and asyncio code may await it."""

    def result(self, timeout: float | None = None) -> Stored:
        """Where the record is stored. Waits for that, at most `timeout` seconds (then TimeoutError). If it is not
        stored, raises an error of `topics_client.errors`, whose `outcome` says whether it may be stored after all."""
        self._wait(timeout)
        return self._stored()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Why it is not stored, None if it is. Waits like `result`."""
        self._wait(timeout)
        return self._error()

    def future(self) -> Future[Stored]:
        """A future with the same result, for code that needs one: `concurrent.futures.wait`, callbacks."""
        self._outcome.ask(self._index)
        future: Future[Stored] = Future()
        future.set_running_or_notify_cancel()
        self._outcome.when_set(lambda: self._complete(future))
        return future

    def _wait(self, timeout: float | None) -> None:
        self._outcome.ask(self._index)
        if not self._outcome.wait(timeout):
            raise TimeoutError("The outcome of the record is not known yet.")

    def _complete(self, future: Future[Stored]) -> None:
        error = self._error()
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(self._stored())

    def __await__(self) -> Generator[object, None, Stored]:
        return asyncio.wrap_future(self.future()).__await__()


class AsyncSent(_Handle, frozen=True, eq=False, gc=False):
    """A record that an AsyncProducer has accepted. Awaiting it returns where the record is stored, or raises an error
    of `topics_client.errors`, whose `outcome` says whether it may be stored after all. Cancelling the wait changes
    nothing."""

    async def exception(self) -> Exception | None:
        """Why it is not stored, None if it is. Waits until this is known."""
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
