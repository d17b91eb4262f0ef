"""The consumer: an iterator over the records of a topic, whose position the broker stores."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from topics_client import deadlines
from topics_client.errors import TopicsError
from topics_client.iteration import CommitMode, Item, Reading, Start, Step, Steps
from topics_client.listening import Listen, Stream
from topics_client.wire import Call

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from topics_client.asynchronous import AsyncClient
    from topics_client.blocking import Client
    from topics_client.calls import ReadOptions
    from topics_client.wire import Request

T = TypeVar("T")


class Consumer:
    """Iterates over the records of a topic, and waits for new ones, forever. A loss comes as a Tombstone before the
    records after it.

    The position is that of the durable consumer `name`, which is created if it does not exist. It then begins at
    `start`: "earliest", "head", or a seq to start after. `commit` says when the position is stored: "record" (after
    each record), "batch" (after the records of an answer, at most `limit`), "manual" (by the method `commit`). A record
    counts as handled when the next one is requested. If a reader is killed, the next one continues after the last
    commit: records may come again, and none is skipped. Broken connections and restarts are bridged according to the
    client's retry policy.

    It reads all partitions of the topic, including those added later, and has a position in each; `partition` of a
    record names its partition. Records are in order within a partition. With the option `partition` it reads only one.
    It reads stored records page by page; then the broker pushes new records over an event stream. Long polls replace
    the stream inside `within`, with options that a stream lacks (`tag`, `from_ts`, `wait_ms`, `include_stored`), and
    where streams are blocked. Then several partitions are asked in turn, and a record may wait up to a second.

    Options are those of `Client.read`. For one reader at a time, in one thread. Leaving the `with` block stores the
    position of the handled records, without the record that was returned last.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        name: str,
        *,
        commit: CommitMode = "batch",
        start: Start = "earliest",
        **options: Unpack[ReadOptions],
    ) -> None:
        self._client = client
        self._reading = Reading(topic, name, commit, start, options, time.monotonic)
        self._pieces: Generator[bytes] = (each for each in tuple[bytes]())

    def __enter__(self) -> Self:
        self._run(self._reading.begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except TopicsError:
            # The error of the block takes precedence.
            if error is None:
                raise

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        return self._run(self._reading.next_item(may_listen=deadlines.ends_s() == math.inf))

    @property
    def committed(self) -> dict[int, int]:
        """By partition: the last seq whose commit was acknowledged. Empty before the first read."""
        return self._reading.committed

    def commit(self, item: Item | None = None) -> None:
        """Store that everything up to and including this record is handled, in its partition; or everything returned so
        far. Durable on return."""
        self._run(self._reading.commit(item))

    def close(self) -> None:
        """Store the position of the handled records. The client stays open."""
        self._run(self._reading.leave())

    def _run(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                try:
                    taken = self._take(step)
                except TopicsError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(taken)
        except StopIteration as done:
            value: T = done.value
            return value

    def _take(self, step: Step) -> Any:
        if isinstance(step, Call):
            return self._client.run(step)
        if isinstance(step, Listen):
            self._pieces.close()
            self._pieces = self._stream(step.request)
        elif step is Stream.PIECE:
            return next(self._pieces, None)
        else:
            self._pieces.close()
        return None

    def _stream(self, request: Request) -> Generator[bytes]:
        with self._client.stream(request) as pieces:
            yield from pieces


class AsyncConsumer:
    """`Consumer` for asyncio: `async with` and `async for`."""

    def __init__(
        self,
        client: AsyncClient,
        topic: str,
        name: str,
        *,
        commit: CommitMode = "batch",
        start: Start = "earliest",
        **options: Unpack[ReadOptions],
    ) -> None:
        self._client = client
        self._reading = Reading(topic, name, commit, start, options, time.monotonic)
        self._pieces: AsyncGenerator[bytes] | None = None

    async def __aenter__(self) -> Self:
        await self._run(self._reading.begin())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except TopicsError:
            if error is None:
                raise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        return await self._run(self._reading.next_item(may_listen=deadlines.ends_s() == math.inf))

    @property
    def committed(self) -> dict[int, int]:
        """By partition: the last seq whose commit was acknowledged. Empty before the first read."""
        return self._reading.committed

    async def commit(self, item: Item | None = None) -> None:
        """Store that everything up to and including this record is handled, in its partition; or everything returned so
        far. Durable on return."""
        await self._run(self._reading.commit(item))

    async def close(self) -> None:
        """Store the position of the handled records. The client stays open."""
        await self._run(self._reading.leave())

    async def _run(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                try:
                    taken = await self._take(step)
                except TopicsError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(taken)
        except StopIteration as done:
            value: T = done.value
            return value

    async def _take(self, step: Step) -> Any:
        if isinstance(step, Call):
            return await self._client.run(step)
        if isinstance(step, Listen):
            await self._close_stream()
            self._pieces = self._stream(step.request)
        elif step is Stream.PIECE:
            assert self._pieces is not None
            return await anext(self._pieces, None)
        else:
            await self._close_stream()
        return None

    async def _close_stream(self) -> None:
        if self._pieces is not None:
            pieces, self._pieces = self._pieces, None
            await pieces.aclose()

    async def _stream(self, request: Request) -> AsyncGenerator[bytes]:
        async with self._client.stream(request) as pieces:
            async for piece in pieces:
                yield piece
