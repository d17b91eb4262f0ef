"""The consumer: an iterator over the records of a topic, whose position the broker stores."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from topics_client.errors import TopicsError
from topics_client.reading import CommitMode, Item, Reading, Start

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from topics_client.asynchronous import AsyncClient
    from topics_client.blocking import Client
    from topics_client.calls import ReadOptions
    from topics_client.wire import Call

T = TypeVar("T")


class Consumer:
    """Iterates over the records of one partition of a topic, and waits for new ones, forever. A loss comes as a
    Tombstone before the records after it.

    The position is that of the durable consumer `name`, which is made if there is none, and then begins at `start`:
    "earliest", "head", or a seq to start after. `commit` says when the position is stored: "record" (after each
    record), "batch" (after the records of an answer, `limit` at most), "manual" (by the method `commit`). A record
    counts as handled when the next one is asked for. A reader that was killed goes on after the last commit:
    records may come again, and none is skipped. Broken connections and restarts are bridged as the client's retry
    policy says.

    Options are those of `Client.read`, `partition` among them. For one reader at a time, in one thread. Leaving the
    `with` block stores the position of what was handled, without the record that was returned last.
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
        self._reading = Reading(topic, name, commit, start, options)

    def __enter__(self) -> Self:
        self._run(self._reading.begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except TopicsError:
            # The error of the block is the one to be seen.
            if error is None:
                raise

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        return self._run(self._reading.next_item())

    @property
    def committed_seq(self) -> int:
        """The last seq whose commit was acknowledged."""
        return self._reading.committed_seq

    def commit(self, item: Item | None = None) -> None:
        """Everything up to and including this record, or the one returned last, is handled. Durable on return."""
        self._run(self._reading.commit(item))

    def close(self) -> None:
        """Stores the position of what was handled. The client stays open."""
        self._run(self._reading.leave())

    def _run(self, steps: Generator[Call[Any], Any, T]) -> T:
        try:
            call = next(steps)
            while True:
                try:
                    value = self._client.run(call)
                except TopicsError as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(value)
        except StopIteration as done:
            return done.value


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
        self._reading = Reading(topic, name, commit, start, options)

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
        return await self._run(self._reading.next_item())

    @property
    def committed_seq(self) -> int:
        """The last seq whose commit was acknowledged."""
        return self._reading.committed_seq

    async def commit(self, item: Item | None = None) -> None:
        """Everything up to and including this record, or the one returned last, is handled. Durable on return."""
        await self._run(self._reading.commit(item))

    async def close(self) -> None:
        """Stores the position of what was handled. The client stays open."""
        await self._run(self._reading.leave())

    async def _run(self, steps: Generator[Call[Any], Any, T]) -> T:
        try:
            call = next(steps)
            while True:
                try:
                    value = await self._client.run(call)
                except TopicsError as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(value)
        except StopIteration as done:
            return done.value
