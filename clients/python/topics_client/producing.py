"""What producers do, whoever waits: which batch a record goes into, the calls for a batch, what is told in the end. No
I/O, clock or threads of its own.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeAlias

from topics_client import calls
from topics_client.batching import Batch, Batching, Lane, Limits
from topics_client.encoding import encode_record
from topics_client.errors import Forbidden, InvalidRequest, ProducerClosed, TopicNotFound, TopicsError
from topics_client.outcomes import Outcome, Part
from topics_client.partitioning import partition_of
from topics_client.values import Appended, NewRecord, Record, TopicState
from topics_client.wire import Call

#: A topic's number of partitions is asked for again after this time; of one that does not exist, after the other.
_PARTITIONS_S, _ABSENT_S = 60.0, 1.0
#: The most records that the broker takes in one append.
_MOST_RECORDS = 10_000
#: Failed batches that nobody asked about and that the next flush tells of. Of more, the latest.
_MOST_FAILED = 64
#: Refusals of a request for what is in it, or for how much: a smaller one may be taken.
_SIZES = frozenset({"record_too_large", "batch_too_large", "payload_too_large"})

#: Calls to make; each is answered with its value, or with what it raised.
Steps: TypeAlias = "Generator[Call[Any], Any, list[Part]]"


class Producing:
    """Not thread-safe, but for `lane` and `steps`: its user holds a lock for the rest."""

    def __init__(
        self,
        *,
        linger_ms: float,
        batch_records: int,
        batch_bytes: int,
        buffer_bytes: int,
        senders: int,
        node: str | None,
        now: Callable[[], float],
    ) -> None:
        if not 1 <= batch_records <= _MOST_RECORDS:
            raise InvalidRequest(f"batch_records must be 1 to {_MOST_RECORDS}.", detail={"field": "batch_records"})
        if senders < 1:
            raise InvalidRequest("senders must be at least 1.", detail={"field": "senders"})
        limits = Limits(
            linger_s=linger_ms / 1000, batch_records=batch_records, batch_bytes=batch_bytes, buffer_bytes=buffer_bytes
        )
        self.batching = Batching(limits, uuid.uuid4().hex, now)
        self.closed = False
        self._node = node
        self._now = now
        #: By topic: how many partitions it has (0: not known), and until when this is taken for true.
        self._partitions: dict[str, tuple[int, float]] = {}
        self._failed: deque[Outcome] = deque(maxlen=_MOST_FAILED)

    # -- records -------------------------------------------------------------------------------------------------------

    def lane(self, topic: str, record: Any, partition: int | None) -> Lane | None:
        """Where the record goes. None: the topic's partitions have to be asked for first, by `asking`."""
        if partition is not None:
            return (topic, int(partition))
        count, until = self._partitions.get(topic, (0, 0.0))
        if self._now() >= until:
            return None
        if count == 1:
            return (topic, 0)
        tag = record.tag if isinstance(record, NewRecord | Record) else None
        return (topic, None if tag is None or not count else partition_of(tag, count))

    def asking(self, topic: str) -> Generator[Call[TopicState], TopicState, None]:
        """The call that asks for a topic's partitions; thrown in is what it raised."""
        known_s = _PARTITIONS_S
        try:
            state = yield calls.state(topic, touch=False)
            count = len(state.partitions) or 1
        except TopicNotFound:
            # The first append creates it, with one partition.
            count, known_s = 1, _ABSENT_S
        except Forbidden:
            # A key that may only write. The broker chooses, and refuses a batch whose tags differ in their partition.
            count = 0
        self._partitions[topic] = (count, self._now() + known_s)

    def check_open(self) -> None:
        """Raises ProducerClosed."""
        if self.closed:
            raise ProducerClosed("The producer is closed; it takes no more records.")

    # -- batches -------------------------------------------------------------------------------------------------------

    def steps(self, batch: Batch) -> Steps:
        """The appends of a batch: one, unless the broker refuses it for some of its records.

        Then it goes again in parts, in order, until what is refused is single records. A part has a key of its own: the
        key of a refused append is that of other records.
        """
        topic, partition = batch.lane
        parts: list[Part] = []
        #: What is left, the next part last.
        left = [(0, len(batch.records))]
        while left:
            begin, end = left.pop()
            whole = end - begin == len(batch.records)
            key = batch.key if whole else f"{batch.key}-{begin}-{end}"
            records = batch.records if whole else batch.records[begin:end]
            try:
                appended: Appended = yield calls.append_encoded(
                    topic, records, {"idempotency_key": key, "node": self._node}, partition
                )
                parts.append(Part(begin, end, appended))
            except TopicsError as error:
                cuts = _cuts(error, begin, end)
                if cuts:
                    left += reversed(cuts)
                else:
                    parts.append(Part(begin, end, error))
            except Exception as error:  # the client was closed, or a bug: the records' handles say so
                parts.append(Part(begin, end, error))
        return parts

    def finish(self, batch: Batch, parts: list[Part]) -> list[Callable[[], None]]:
        """The batch has ended so. Returns callbacks to call, without the lock: they may send."""
        callbacks = batch.outcome.set(parts)
        if batch.outcome.has_errors:
            self._failed.append(batch.outcome)
        self.batching.finish(batch)
        return callbacks

    def untold(self) -> Exception | None:
        """The first error that no handle was asked about, since the last call."""
        failed = [error for each in self._failed for error in each.unasked()]
        self._failed.clear()
        return failed[0] if failed else None


def encoded(record: Any, tag: str | None, meta: Any) -> tuple[Any, bytes]:
    """What `send` was given, as one value and as JSON text. Raises InvalidRequest."""
    if tag is not None or meta is not None:
        record = NewRecord(data=record, tag=tag, meta=meta)
    return record, encode_record(record, "record")


def _cuts(error: TopicsError, begin: int, end: int) -> list[tuple[int, int]]:
    """The parts to send instead of the records `begin` to `end`, which were refused. None: this is final."""
    count = end - begin
    if count == 1 or not isinstance(error, InvalidRequest) or error.outcome != "none":
        return []
    field = str(error.detail.get("field", ""))
    if not field.startswith("records") and error.code not in _SIZES:
        return []
    head = field.removeprefix("records[").partition("]")[0]
    at = begin + int(head) if head.isdecimal() and int(head) < count else None
    # The one that the broker names goes by itself: it may be right, beside others. Unnamed, it is in one of the halves.
    cuts = (
        [(begin, begin + count // 2), (begin + count // 2, end)]
        if at is None
        else [(begin, at), (at, at + 1), (at + 1, end)]
    )
    return [cut for cut in cuts if cut[0] < cut[1]]
