"""The common part of both producers: which batch a record goes into, the calls for a batch, and what is reported.
Without I/O, clock or threads.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeAlias

from topics_client import calls
from topics_client.batching import Batch, Batching, Lane, Limits
from topics_client.errors import Forbidden, InvalidRequest, ProducerClosed, TopicNotFound, TopicsError
from topics_client.outcomes import Outcome, Part
from topics_client.partitioning import partition_of
from topics_client.values import Appended, NewRecord, Record, TopicState
from topics_client.wire import Call

#: How long a topic's number of partitions is used before it is asked for again; the second is for a topic that does not
#: exist.
_PARTITIONS_S, _ABSENT_S = 60.0, 1.0
#: The most records that the broker accepts in one append.
_MOST_RECORDS = 10_000
#: Failed batches that nobody asked about and that the next flush reports. If there are more, the latest ones.
_MOST_FAILED = 64
#: Refusals of a request for its content or its size. A smaller request may be accepted.
_SIZES = frozenset({"record_too_large", "batch_too_large", "payload_too_large"})
#: Types of records that have a value alone.
PLAIN = frozenset({dict, str, bytes, list, int, float})
#: Records with fields beside their data.
_TAGGED = (NewRecord, Record)

#: Calls to make. Each is answered with its value, or with the error that it raised.
Steps: TypeAlias = "Generator[Call[Any], Any, list[Part]]"


class Producing:
    """Not thread-safe, except for `lane` and `steps`: its user holds a lock for the other methods."""

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
        fields = {} if node is None else {"node": node}
        calls.append_body([], fields)
        limits = Limits(
            linger_s=linger_ms / 1000, batch_records=batch_records, batch_bytes=batch_bytes, buffer_bytes=buffer_bytes
        )
        self.batching = Batching(limits, uuid.uuid4().hex, now, fields)
        self.closed = False
        self._now = now
        #: By topic: how many partitions it has (0: unknown), until when this is used, and the lane of records without a
        #: tag.
        self._partitions: dict[str, tuple[int, float, Lane]] = {}
        self._failed: deque[Outcome] = deque(maxlen=_MOST_FAILED)

    # -- records -------------------------------------------------------------------------------------------------------

    def lane(self, topic: str, record: Any, partition: int | None) -> Lane | None:
        """The lane of the record. None: the topic's partitions have to be asked for first, with `asking`."""
        if partition is not None:
            return (topic, int(partition))
        known = self._partitions.get(topic)
        if known is None or self._now() >= known[1]:
            return None
        count, _, lane = known
        if count > 1 and isinstance(record, _TAGGED) and record.tag is not None:
            return (topic, partition_of(record.tag, count))
        return lane

    def asking(self, topic: str) -> Generator[Call[TopicState], TopicState, None]:
        """The call that asks for a topic's partitions. Its error is thrown in."""
        known_s = _PARTITIONS_S
        try:
            state = yield calls.state(topic, touch=False, complete=False)
            count = (len(state.partitions) + len(state.offline_partitions)) or 1
        except TopicNotFound:
            # The first append creates it, with one partition.
            count, known_s = 1, _ABSENT_S
        except Forbidden:
            # The key may only write. The broker chooses the partition, and refuses a batch whose tags belong to
            # several.
            count = 0
        self._partitions[topic] = (count, self._now() + known_s, (topic, 0 if count == 1 else None))

    def check_open(self) -> None:
        """Raises ProducerClosed."""
        if self.closed:
            raise ProducerClosed("The producer is closed; it takes no more records.")

    # -- batches -------------------------------------------------------------------------------------------------------

    def steps(self, batch: Batch) -> Steps:
        """The appends of a batch: one, unless the broker refuses it for some of its records.

        Then the batch is sent again in parts, in order, until only single records are refused. A part has a key of its
        own, because the key of a refused append belongs to other records.
        """
        topic, partition = batch.lane
        parts: list[Part] = []
        #: The remaining parts, the next one last.
        left = [(0, batch.count)]
        while left:
            begin, end = left.pop()
            body = batch.body
            if end - begin < batch.count:
                fields = {**batch.fields, "idempotency_key": f"{batch.key}-{begin}-{end}"}
                body = calls.append_body(batch.part(begin, end), fields)
            try:
                appended: Appended = yield calls.append_encoded(topic, body, partition)
                parts.append(Part(begin, end, appended))
            except TopicsError as error:
                cuts = _cuts(error, begin, end)
                if cuts:
                    left += reversed(cuts)
                else:
                    parts.append(Part(begin, end, error))
            except Exception as error:  # the client was closed, or there is a bug: the records' handles report it
                parts.append(Part(begin, end, error))
        return parts

    def finish(self, batch: Batch, parts: list[Part]) -> list[Callable[[], None]]:
        """The batch has ended with this outcome. Returns callbacks to call without the lock: they may send."""
        callbacks = batch.outcome.set(parts)
        if batch.outcome.has_errors:
            self._failed.append(batch.outcome)
        self.batching.finish(batch)
        return callbacks

    def untold(self) -> Exception | None:
        """The first error since the last call that no handle was asked about."""
        failed = [error for each in self._failed for error in each.unasked()]
        self._failed.clear()
        return failed[0] if failed else None


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
    # The record that the broker names is sent alone: it may be valid in another batch. If none is named, it is in one
    # of the halves.
    cuts = (
        [(begin, begin + count // 2), (begin + count // 2, end)]
        if at is None
        else [(begin, at), (at, at + 1), (at + 1, end)]
    )
    return [cut for cut in cuts if cut[0] < cut[1]]
