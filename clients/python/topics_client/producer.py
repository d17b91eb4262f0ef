"""The producer: takes records one by one and sends them in batches, from threads of its own."""

from __future__ import annotations

import atexit
import threading
import time
import uuid
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from topics_client import calls, deadlines
from topics_client.batching import Batch, Batching, Lane, Limits
from topics_client.encoding import encode_record
from topics_client.errors import BufferFull, Forbidden, InvalidRequest, ProducerClosed, TopicNotFound, TopicsError
from topics_client.outcomes import Outcome, Sent
from topics_client.partitioning import partition_of
from topics_client.values import Appended, NewRecord, Record

if TYPE_CHECKING:
    from typing_extensions import Self

    from topics_client.blocking import Client

#: A topic's number of partitions is asked for again after this time; of one that does not exist, after the other.
_PARTITIONS_S, _ABSENT_S = 60.0, 1.0
#: The most records that the broker takes in one append.
_MOST_RECORDS = 10_000
#: Failed batches that nobody asked about and that the next flush tells of. Of more, the latest.
_MOST_FAILED = 64


class Producer:
    """Appends records in the background, many in one request. Threads may share it. Close it, or use it in a `with`
    block: both wait until every record has an outcome. A normal end of the program closes it too.

    A batch is sent when it is `linger_ms` old or holds `batch_records` records or `batch_bytes` bytes. At most
    `buffer_bytes` of records wait or are being sent; then `send` blocks, for `max_block_s` seconds at most. `senders`:
    how many batches, of different topics or partitions, are sent at a time.

    Every batch has an idempotency key. A batch whose outcome is unknown is sent again with the same key, for as long as
    the client's retry policy says, so that nothing is stored twice. Records of one topic and partition are stored in
    the order in which they were sent, but for batches that fail: the ones after them are sent all the same.

    Records that were not acknowledged are lost when the process dies.
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
        if not 1 <= batch_records <= _MOST_RECORDS:
            raise InvalidRequest(f"batch_records must be 1 to {_MOST_RECORDS}.", detail={"field": "batch_records"})
        if senders < 1:
            raise InvalidRequest("senders must be at least 1.", detail={"field": "senders"})
        limits = Limits(
            linger_s=linger_ms / 1000, batch_records=batch_records, batch_bytes=batch_bytes, buffer_bytes=buffer_bytes
        )
        self._client = client
        self._node = node
        self._max_block_s = max_block_s
        self._most_threads = senders
        self._batching = Batching(limits, uuid.uuid4().hex, time.monotonic)
        #: By topic: how many partitions it has (0: not known), and until when this is taken for true.
        self._partitions: dict[str, tuple[int, float]] = {}
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._failed: deque[Outcome] = deque(maxlen=_MOST_FAILED)
        self._closed = False
        atexit.register(self._close_at_exit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            # The error of the block is the one to be seen.
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
        """Takes one record: a Python value, a NewRecord, a Record from a read, or `bytes` with JSON. Returns at once
        unless the buffer is full; the handle says later where the record is stored.

        In a topic with several partitions, the tag selects the partition, as in any append; records without one are
        spread by batches. Raises InvalidRequest for what JSON cannot represent, BufferFull and ProducerClosed; and what
        asking for a topic's partitions raises, which it does once a minute.
        """
        if tag is not None or meta is not None:
            record = NewRecord(data=record, tag=tag, meta=meta)
        text = encode_record(record, "record")
        lane = self._lane(topic, record) if partition is None else (topic, int(partition))
        batching = self._batching
        with self._lock:
            if self._closed:
                raise ProducerClosed("The producer is closed; it takes no more records.")
            if not batching.has_room(len(text)):
                self._wait_for_room(len(text))
            batch = batching.add(lane, text)
            handle = Sent(batch.outcome, len(batch.records) - 1)
            if batching.woken:
                self._wake()
        return handle

    def flush(self, timeout: float | None = None) -> None:
        """Sends what was taken so far, and waits until every record of it has an outcome. Raises TimeoutError after
        `timeout` seconds: what is left is sent all the same.

        Then raises the first error of a batch that none of its handles was asked about, if there was one since the last
        flush.
        """
        until = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            unfinished = self._batching.flush()
            self._wake()
        for batch in unfinished:
            if not batch.outcome.wait(None if until is None else max(0.0, until - time.monotonic())):
                raise TimeoutError(f"Not everything was sent within {timeout:g} s.")
        with self._lock:
            failed = [each.error for each in self._failed if not each.asked]
            self._failed.clear()
        for error in failed:
            if error is not None:
                raise error

    def close(self, timeout: float | None = None) -> None:
        """Takes no more records, and does what `flush` does. The client stays open."""
        with self._lock:
            self._closed = True
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

    def _lane(self, topic: str, record: Any) -> Lane:
        count, until = self._partitions.get(topic, (0, 0.0))
        if time.monotonic() >= until:
            count = self._ask_partitions(topic)
        if count == 1:
            return (topic, 0)
        tag = record.tag if isinstance(record, NewRecord | Record) else None
        return (topic, None if tag is None or not count else partition_of(tag, count))

    def _ask_partitions(self, topic: str) -> int:
        known_s = _PARTITIONS_S
        try:
            count = len(self._client.run(calls.state(topic, touch=False)).partitions) or 1
        except TopicNotFound:
            # The first append creates it, with one partition.
            count, known_s = 1, _ABSENT_S
        except Forbidden:
            # A key that may only write. The broker chooses, and refuses a batch whose tags differ in their partition.
            count = 0
        self._partitions[topic] = (count, time.monotonic() + known_s)
        return count

    def _wait_for_room(self, size: int) -> None:
        """Until the buffer has room for so many bytes. The lock is held."""
        # Batches need not wait for more records: there is no room for any.
        self._batching.flush()
        self._wake()
        if not self._room.wait_for(lambda: self._closed or self._batching.has_room(size), self._max_block_s):
            raise BufferFull(
                f"The producer's buffer is full, and had no room for the record within {self._max_block_s:g} s."
            )
        if self._closed:
            raise ProducerClosed("The producer was closed before there was room for the record.")

    def _wake(self) -> None:
        """Some thread looks for what to send. The lock is held."""
        self._batching.woken = False
        if self._idle:
            self._work.notify()
        elif len(self._threads) < self._most_threads and not self._batching.is_empty:
            thread = threading.Thread(target=self._run, name="topics-producer", daemon=True)
            try:
                with deadlines.lifted():  # some builds of Python hand context variables on to threads
                    thread.start()
            except RuntimeError:
                # The program is at its end, where no thread can be started: those that there are do it.
                if not self._threads:
                    raise
            else:
                self._threads.append(thread)

    def _run(self) -> None:
        while (batch := self._take()) is not None:
            outcome = self._append(batch)
            with self._lock:
                # At one blow: a flush sees the batch unfinished, or its outcome and its error.
                callbacks = batch.outcome.set(outcome)
                if isinstance(outcome, Exception):
                    self._failed.append(batch.outcome)
                self._batching.finish(batch)
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
                if self._closed and self._batching.is_empty:
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

    def _append(self, batch: Batch) -> Appended | Exception:
        topic, partition = batch.lane
        fields = {"idempotency_key": batch.key, "node": self._node}
        try:
            return self._client.run(calls.append_encoded(topic, batch.records, fields, partition))
        except TopicsError as error:
            return error
        except Exception as error:  # the client was closed, or a bug: the records' handles say so
            return error
