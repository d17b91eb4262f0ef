"""The producer: accepts records one by one and sends them in batches, from its own threads."""

from __future__ import annotations

import atexit
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from topics_client import deadlines
from topics_client.batching import Batch
from topics_client.encoding import encode_record
from topics_client.errors import BufferFull, ProducerClosed, TopicsError
from topics_client.outcomes import Part, Sent
from topics_client.producing import PLAIN, Producing
from topics_client.values import NewRecord

if TYPE_CHECKING:
    from typing_extensions import Self

    from topics_client.blocking import Client


#: A caller stops after a full batch for this much more than the last batch took of its sender's processor time, and for
#: so long at most.
_ASIDE, _ASIDE_S = 1.3, 0.005
#: What a sender is taken to need before it has sent something.
_FIRST_S = 0.001


class Producer:
    """Appends records in the background, many in one request. Threads may share it. Close it, or use it in a `with`
    block: both wait until every record has an outcome. A normal end of the program closes it too.

    A batch is sent when it is `linger_ms` old or has `batch_records` records or `batch_bytes` bytes. At most
    `buffer_bytes` of records wait or are being sent; beyond that `send` blocks, for at most `max_block_s` seconds.
    `senders`: how many batches, of different topics or partitions, are sent at a time.

    Every batch has an idempotency key. A batch whose outcome is unknown is sent again with the same key, within the
    client's retry policy, so that nothing is stored twice. Records of one topic and partition are stored in the order
    in which they were sent, except for batches that fail: the batches after them are still sent. A record that the
    broker refuses for its content (its size, its tag) fails alone: the others of its batch are stored.

    Records that are not acknowledged are lost when the process dies.
    """

    def __init__(
        self,
        client: Client,
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
        self._most_threads = senders
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._threads: list[threading.Thread] = []
        self._idle = 0
        #: Processor time that the last batch took of its sender.
        self._worked_s = _FIRST_S
        atexit.register(self._close_at_exit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            # The error of the block takes precedence.
            with suppress(Exception):
                self.close()

    def send(
        self,
        topic: str,
        record: Any,
        *,
        tag: str | None = None,
        meta: Any = None,
        partition: int | None = None,
    ) -> Sent:
        """Accept one record: a Python value, a NewRecord, a Record from a read, or `bytes` with JSON. Returns at once
        unless the buffer is full; the handle says later where the record is stored. With the last record of a batch it
        takes some milliseconds while the batch before is still being sent, for the senders to run.

        In a topic with several partitions, the tag selects the partition, as in any append. Records without a tag are
        distributed by batches. Raises InvalidRequest for values that JSON cannot represent, BufferFull, ProducerClosed,
        and the errors of the request for a topic's partitions, which it makes once a minute.
        """
        if tag is not None or meta is not None:
            record = NewRecord(data=record, tag=tag, meta=meta)
        text = encode_record(record)
        producing, batching = self._producing, self._batching
        group = topic if partition is None and type(record) in PLAIN else None
        if group is not None:
            # What most records do. Nobody needs to be told.
            with self._lock:
                batch = batching.add_again(topic, text)
                if batch is not None:
                    return Sent(batch.outcome, batch.count - 1)
        while (lane := producing.lane(topic, record, partition)) is None:
            self._ask_partitions(topic)
        with self._lock:
            producing.check_open()
            while (batch := batching.add(lane, text, group)) is None:
                self._wait_for_room(len(text))
            handle = Sent(batch.outcome, batch.count - 1)
            if batching.woken:
                self._wake()
            behind = batching.behind
            batching.behind = False
        if behind:
            self._step_aside()
        return handle

    def flush(self, timeout: float | None = None) -> None:
        """Send all accepted records, and wait until each has an outcome. Raises TimeoutError after `timeout` seconds;
        the remaining records are still sent.

        Then, if a record has failed since the last flush and nobody asked its handle, raises the first such error.
        """
        until = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            unfinished = self._batching.flush()
            # The caller makes way by waiting.
            self._batching.behind = False
            self._wake()
        for batch in unfinished:
            if not batch.outcome.wait(None if until is None else max(0.0, until - time.monotonic())):
                raise TimeoutError(f"Not everything was sent within {timeout:g} s.")
        with self._lock:
            untold = self._producing.untold()
        if untold is not None:
            raise untold

    def close(self, timeout: float | None = None) -> None:
        """Accept no more records, and do what `flush` does. The client stays open."""
        with self._lock:
            self._producing.closed = True
            self._room.notify_all()
        atexit.unregister(self._close_at_exit)
        try:
            self.flush(timeout)
        finally:
            with self._lock:
                self._work.notify_all()
            for thread in self._threads if timeout is None else ():
                thread.join()

    def _close_at_exit(self) -> None:
        with suppress(Exception):
            self.close()

    def _ask_partitions(self, topic: str) -> None:
        steps = self._producing.asking(topic)
        call = next(steps)
        with suppress(StopIteration):
            try:
                state = self._client.run(call)
            except TopicsError as error:
                steps.throw(error)
            else:
                steps.send(state)

    def _wait_for_room(self, size: int) -> None:
        """Wait until the buffer has room for this many bytes. The lock is held."""
        # Batches need not wait for more records, because there is no room for any.
        self._batching.flush()
        self._wake()
        if not self._room.wait_for(lambda: self._producing.closed or self._batching.has_room(size), self._max_block_s):
            raise BufferFull(
                f"The producer's buffer is full, and had no room for the record within {self._max_block_s:g} s."
            )
        if self._producing.closed:
            raise ProducerClosed("The producer was closed before there was room for the record.")

    def _step_aside(self) -> None:
        """Lets the senders run for as long as they worked on the last batch, and a little longer.

        Python lets one thread run at a time, and one that comes back from the network waits 5 ms for its turn beside a
        thread that always has something to do, several times for each request: the senders would begin when the caller
        ends. What they do is to be waited for anyway, here or in `flush`.
        """
        time.sleep(min(self._worked_s * _ASIDE, _ASIDE_S))

    def _wake(self) -> None:
        """Make some thread look for a batch to send. The lock is held."""
        self._batching.woken = False
        if self._idle:
            self._work.notify()
        elif len(self._threads) < self._most_threads and not self._batching.is_empty:
            thread = threading.Thread(target=self._run, name="topics-producer", daemon=True)
            try:
                with deadlines.lifted():  # some builds of Python pass context variables on to threads
                    thread.start()
            except RuntimeError:
                # The program is ending, so no thread can be started. The existing ones do the work.
                if not self._threads:
                    raise
            else:
                self._threads.append(thread)

    def _run(self) -> None:
        began_s = time.thread_time()
        while (batch := self._take()) is not None:
            parts = self._append(batch)
            with self._lock:
                now_s = time.thread_time()
                self._worked_s, began_s = now_s - began_s, now_s
                # In one step: a flush sees the batch unfinished, or its outcome and its errors.
                callbacks = self._producing.finish(batch, parts)
                if self._batching.woken and self._idle:
                    self._wake()
                self._room.notify_all()
            # Without the lock: they may send.
            for callback in callbacks:
                callback()

    def _take(self) -> Batch | None:
        """The next batch to send; None once the producer is closed and has nothing left."""
        with self._lock:
            while (batch := self._batching.take()) is None:
                if self._producing.closed and self._batching.is_empty:
                    self._work.notify_all()
                    return None
                self._idle += 1
                try:
                    self._work.wait(self._batching.wait_s())
                finally:
                    self._idle -= 1
            if self._batching.has_ready:
                self._wake()
            return batch

    def _append(self, batch: Batch) -> list[Part]:
        steps = self._producing.steps(batch)
        call = next(steps)
        try:
            while True:
                try:
                    appended = self._client.run(call)
                except Exception as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(appended)
        except StopIteration as done:
            parts: list[Part] = done.value
            return parts
