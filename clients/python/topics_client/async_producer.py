"""The producer for asyncio: accepts records one by one and sends them in batches, from its own tasks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from topics_client import deadlines
from topics_client.batching import Batch
from topics_client.encoding import encode_record
from topics_client.errors import BufferFull, ProducerClosed, TopicsError
from topics_client.outcomes import AsyncSent, Part
from topics_client.producing import PLAIN, Producing
from topics_client.values import NewRecord

if TYPE_CHECKING:
    from typing_extensions import Self

    from topics_client.asynchronous import AsyncClient


class AsyncProducer:
    """`Producer` for asyncio: appends records in the background, many in one request. The tasks of one event loop may
    share it. Close it, or use it in an `async with` block: both wait until every record has an outcome.

    Options, order, idempotency keys and errors are those of `Producer`. `senders` are tasks. Records that are not
    acknowledged are lost when the process dies, or when the event loop ends before the producer is closed.
    """

    def __init__(
        self,
        client: AsyncClient,
        *,
        linger_ms: float = 5.0,
        batch_records: int = 1000,
        batch_bytes: int = 1 << 20,
        buffer_bytes: int = 32 << 20,
        max_block_s: float = 60.0,
        senders: int = 4,
        node: str | None = None,
    ) -> None:
        self._producing = Producing(
            linger_ms=linger_ms,
            batch_records=batch_records,
            batch_bytes=batch_bytes,
            buffer_bytes=buffer_bytes,
            senders=senders,
            node=node,
            now=time.monotonic,
        )
        self._batching = self._producing.batching
        self._client = client
        self._max_block_s = max_block_s
        self._most_tasks = senders
        self._tasks: set[asyncio.Task[None]] = set()
        #: Looks for due batches, in this turn of the loop or when the next batch is due.
        self._next_look: asyncio.Handle | None = None
        self._is_scheduled = False
        #: A batch was begun in this turn of the loop.
        self._is_new = False
        #: Callers that wait for room.
        self._waiting: set[asyncio.Future[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:
            # The error of the block takes precedence.
            with suppress(Exception):
                await self.close()

    async def send(
        self,
        topic: str,
        record: Any,
        *,
        tag: str | None = None,
        meta: Any = None,
        partition: int | None = None,
    ) -> AsyncSent:
        """Accept one record, like `Producer.send`. Returns before the record is stored; await the handle to wait for
        that. Waits while the buffer is full. If it is cancelled during that wait, it has accepted nothing.

        Raises InvalidRequest for values that JSON cannot represent, BufferFull, ProducerClosed, and the errors of the
        request for a topic's partitions, which it makes once a minute.
        """
        if tag is not None or meta is not None:
            record = NewRecord(data=record, tag=tag, meta=meta)
        text = encode_record(record)
        producing, batching = self._producing, self._batching
        group = topic if partition is None and type(record) in PLAIN else None
        if group is not None and not self._is_new:
            # What most records do. Nobody needs to be told.
            batch = batching.add_again(topic, text)
            if batch is not None:
                return AsyncSent(batch.outcome, batch.count - 1)
        while (lane := producing.lane(topic, record, partition)) is None:
            await self._ask_partitions(topic)
        if self._is_new:
            # The loop gets a turn after each batch, however many records the caller has.
            self._is_new = False
            await asyncio.sleep(0)
        producing.check_open()
        while (batch := batching.add(lane, text, group)) is None:
            await self._wait_for_room(len(text))
        self._is_new |= batch.count == 1
        if batching.woken:
            self._schedule_look()
        return AsyncSent(batch.outcome, batch.count - 1)

    async def flush(self, timeout: float | None = None) -> None:
        """Send all accepted records, and wait until each has an outcome. Raises TimeoutError after `timeout` seconds;
        the remaining records are still sent.

        Then, if a record has failed since the last flush and nobody asked its handle, raises the first such error.
        """
        unfinished = self._batching.flush()
        self._schedule_look()
        waits = [asyncio.ensure_future(batch.outcome.wait_async()) for batch in unfinished]
        try:
            if waits and (await asyncio.wait(waits, timeout=timeout))[1]:
                raise TimeoutError(f"Not everything was sent within {timeout:g} s.")
        finally:
            for wait in waits:
                wait.cancel()
        untold = self._producing.untold()
        if untold is not None:
            raise untold

    async def close(self, timeout: float | None = None) -> None:
        """Accept no more records, and do what `flush` does. The client stays open."""
        self._producing.closed = True
        self._make_room()
        await self.flush(timeout)

    async def _ask_partitions(self, topic: str) -> None:
        steps = self._producing.asking(topic)
        call = next(steps)
        with suppress(StopIteration):
            try:
                state = await self._client.run(call)
            except TopicsError as error:
                steps.throw(error)
            else:
                steps.send(state)

    async def _wait_for_room(self, size: int) -> None:
        """Wait until the buffer has room for this many bytes."""
        # Batches need not wait for more records, because there is no room for any.
        self._batching.flush()
        self._schedule_look()
        loop = asyncio.get_running_loop()
        until = loop.time() + self._max_block_s
        while not self._batching.has_room(size):
            room: asyncio.Future[None] = loop.create_future()
            self._waiting.add(room)
            try:
                await asyncio.wait([room], timeout=max(0.0, until - loop.time()))
            finally:
                self._waiting.discard(room)
            if self._producing.closed:
                raise ProducerClosed("The producer was closed before there was room for the record.")
            if not room.done():
                raise BufferFull(
                    f"The producer's buffer is full, and had no room for the record within {self._max_block_s:g} s."
                )

    def _make_room(self) -> None:
        for room in self._waiting:
            if not room.done():
                room.set_result(None)

    def _schedule_look(self) -> None:
        """Look in this turn of the loop, after the caller's other work: it may send more records."""
        self._batching.woken = False
        if not self._is_scheduled:
            self._is_scheduled = True
            self._look_at(asyncio.get_running_loop().call_soon)

    def _look_at(self, schedule: Callable[[Callable[[], None]], asyncio.Handle]) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
        self._next_look = schedule(self._look)

    def _look(self) -> None:
        """Send what is due, and run again when more will be due."""
        self._is_scheduled, self._next_look = False, None
        while len(self._tasks) < self._most_tasks and (batch := self._batching.take()) is not None:
            with deadlines.lifted():  # tasks inherit the deadline of their creator
                task = asyncio.get_running_loop().create_task(self._send(batch))
            self._tasks.add(task)
        self._batching.woken = False
        wait_s = self._batching.wait_s()
        if wait_s is not None and len(self._tasks) < self._most_tasks:
            self._look_at(lambda look: asyncio.get_running_loop().call_later(wait_s, look))

    async def _send(self, batch: Batch) -> None:
        task = asyncio.current_task()
        parts: list[Part] = []
        try:
            parts = await self._append(batch)
        except BaseException as error:
            # Usually because the event loop ends.
            unknown = ProducerClosed("The event loop ended before the broker answered.", outcome="unknown")
            unknown.__cause__ = error
            parts = [Part(0, batch.count, unknown)]
            raise
        finally:
            callbacks = self._producing.finish(batch, parts)
            self._tasks.discard(task)
            self._make_room()
            self._schedule_look()
            for callback in callbacks:
                callback()

    async def _append(self, batch: Batch) -> list[Part]:
        steps = self._producing.steps(batch)
        call = next(steps)
        try:
            while True:
                try:
                    appended = await self._client.run(call)
                except Exception as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(appended)
        except StopIteration as done:
            parts: list[Part] = done.value
            return parts
