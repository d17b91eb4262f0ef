"""The engine for programs without an event loop: every call waits for its answer.

    with BlockingEngine.open("/var/lib/app") as engine:
        engine.append("orders", {"id": 1})
        record = engine.read_next("orders", "billing")

It runs an event loop on a separate thread, so any number of threads may call at the same time. Each method behaves
like the method of `storage.Engine` with the same name: same results, same errors.

Source: docs/guides/embedding.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from storage.blocking.background import BackgroundLoop
from storage.embedded import MAX_BYTES, Record, keyed_path, records_in
from storage.engine import Engine
from storage.errors import ShuttingDown
from storage.options import Options

P = ParamSpec("P")
R = TypeVar("R")


def _waited(
    method: Callable[Concatenate[Engine, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[BlockingEngine, P], R]:
    """The blocking form of a method: same parameters and docstring. The caller's thread waits for the outcome."""

    @wraps(method)
    def call(self: BlockingEngine, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(partial(method, self.engine, *args, **kwargs))  # pyright: ignore[reportPrivateUsage]

    return call


def _asked(method: Callable[Concatenate[Engine, P], R]) -> Callable[Concatenate[BlockingEngine, P], R]:
    """The same for a method that is a plain call on the loop's thread."""

    @wraps(method)
    def call(self: BlockingEngine, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._call(method, self.engine, *args, **kwargs)  # pyright: ignore[reportPrivateUsage]

    return call


class BlockingEngine:
    """See the module. `open` starts one; `close`, or the end of a `with` block, stops it cleanly.

    A program that ends without `close` is like a killed one: everything acked is there, and the next start recovers. A
    process forked from this one cannot use it: OtherProcess. After an interrupt (Ctrl-C) during a write, and after
    StorageFailed, it is unknown whether the write exists.
    """

    def __init__(self, path: str | os.PathLike[str], options: Options | None = None, **seams: Any) -> None:
        """Opens the directory. Raises OpenError, DataError, OSError."""
        self.engine = Engine(path, options, **seams)
        """What it runs; it belongs to the loop's thread."""
        self._background = BackgroundLoop(self.engine.start, self.engine.close)
        self._run, self._call = self._background.run, self._background.call

    @classmethod
    def open(cls, path: str | os.PathLike[str], options: Options | None = None, **seams: Any) -> BlockingEngine:
        """Open a data directory. Raises AlreadyOpen, AlreadyLocked, OpenError, DataError, OSError."""
        return cls(path, options, **seams)

    @classmethod
    def keyed(
        cls, name: str, *, root: str | os.PathLike[str], options: Options | None = None, **seams: Any
    ) -> BlockingEngine:
        """`open` for the directory `name` below `root`."""
        return cls(keyed_path(root, name), options, **seams)

    def __enter__(self) -> BlockingEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish what is in progress, snapshot, release the directory; calls during that time get ShuttingDown."""
        self._background.stop()

    # -- topics ------------------------------------------------------------------------------------------------------

    put_topic = _waited(Engine.put_topic)
    change_topic = _waited(Engine.change_topic)
    delete_topic = _waited(Engine.delete_topic)
    state = _asked(Engine.state)
    topics = _asked(Engine.topics)
    metrics = _asked(Engine.metrics)

    # -- records -----------------------------------------------------------------------------------------------------

    append = _waited(Engine.append)
    append_batch = _waited(Engine.append_batch)
    read = _waited(Engine.read)
    read_one = _waited(Engine.read_one)
    wait_beyond = _waited(Engine.wait_beyond)
    delete_records = _waited(Engine.delete_records)

    # -- consumers ---------------------------------------------------------------------------------------------------

    read_next = _waited(Engine.read_next)
    read_batch = _waited(Engine.read_batch)
    peek = _waited(Engine.peek)
    unread = _asked(Engine.unread)
    put_consumer = _waited(Engine.put_consumer)
    consumer_state = _asked(Engine.consumer_state)
    list_consumers = _asked(Engine.list_consumers)
    delete_consumer = _waited(Engine.delete_consumer)
    commit = _waited(Engine.commit)
    seek = _waited(Engine.seek)

    def follow(
        self,
        topic: str,
        consumer: str,
        *,
        wait_ms: float | None = None,
        max_bytes: int = MAX_BYTES,
        skip_corrupt: bool = False,
    ) -> Iterator[Record]:
        """Records one by one, for a single reader; ends when none comes for `wait_ms` (None: never).

        The record in progress when the loop ends is delivered again, unless the consumer is strictly_at_once.
        """
        following = self.engine.following(
            topic, consumer, wait_ms=wait_ms, max_bytes=max_bytes, skip_corrupt=skip_corrupt
        )
        while (batch := self._run(following.next)) is not None:
            processed = 0
            try:
                for record in records_in(batch):
                    yield record
                    processed = record.seq
            except GeneratorExit:
                with suppress(ShuttingDown):  # then they are delivered again
                    self._run(partial(following.leave, processed))
                raise
            self._run(partial(following.done, batch))
