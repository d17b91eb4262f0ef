"""Which record goes into which batch, when a batch is due, and what is sent next. Without I/O, clock or threads.

A lane is a topic and a partition (None: the broker chooses one for each batch). The batches of a lane are sent one
after the other, so its records are stored in the order in which they were added. Lanes do not wait for each other.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from topics_client.calls import append_body
from topics_client.outcomes import Outcome

#: Topic and partition.
Lane: TypeAlias = tuple[str, "int | None"]

#: The memory that a record needs besides its JSON text: its object, its list entry, and its handle.
RECORD_OVERHEAD = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`linger_s`: how long a batch waits for more records. Bytes are those of the records, with an overhead for
    each."""

    linger_s: float
    batch_records: int
    batch_bytes: int
    buffer_bytes: int


class Batch:
    """Records that are sent in one request. `fields`: the request's other fields. Its idempotency key is the same for
    every attempt.

    The request is made when the batch takes no more records, by the thread that made the last one: their texts are in
    its cache, and their memory serves for those of the next batch.
    """

    __slots__ = ("_whole", "append", "body", "count", "due", "fields", "lane", "most", "outcome", "room", "texts")

    def __init__(self, lane: Lane, fields: dict[str, str], due: float, limits: Limits) -> None:
        self.lane = lane
        self.fields = fields
        self.due = due
        self.count = 0
        #: The most records that it takes; 0 once it is closed.
        self.most = limits.batch_records
        self._whole = limits.batch_bytes
        #: Bytes that it has left.
        self.room = limits.batch_bytes
        self.outcome = Outcome()
        #: The JSON text of its append; once it is closed.
        self.body = b""
        #: The JSON texts of its records, until it is closed.
        self.texts: list[bytes] = []
        #: Takes one more.
        self.append = self.texts.append

    @property
    def key(self) -> str:
        """Its idempotency key."""
        return self.fields["idempotency_key"]

    @property
    def used(self) -> int:
        """The memory of its records."""
        return self._whole - self.room

    def close(self) -> None:
        """It takes no more records."""
        self.most = 0
        self.body = append_body(self.texts, self.fields)
        self.texts.clear()

    def part(self, begin: int, end: int) -> list[bytes]:
        """The texts of some of its records. It is closed."""
        return [bytes(each) for each in msgspec.json.decode(self.body, type=_Body).records[begin:end]]


class _Body(msgspec.Struct):
    records: list[msgspec.Raw]


class _Queue:
    """The batches of a lane: one that is being sent, full ones, and one that accepts records."""

    __slots__ = ("full", "is_ready", "open", "sent")

    def __init__(self) -> None:
        self.sent: Batch | None = None
        self.full: deque[Batch] = deque()
        self.open: Batch | None = None
        #: Whether `take` looks at this lane.
        self.is_ready = False


class Batching:
    """Not thread-safe: its user holds a lock.

    add(lane, record)   the batch that took it
    take()              the next batch to send, if one is due; its user calls finish(batch) in the end
    wait_s()            seconds until another is due, after a take() that found none
    """

    def __init__(self, limits: Limits, producer: str, now: Callable[[], float], fields: dict[str, str]) -> None:
        """`producer`: what idempotency keys begin with. `fields`: more fields of every append."""
        self._limits = limits
        self._buffer_bytes = limits.buffer_bytes
        self._producer = producer
        self._fields = fields
        self._now = now
        self._made = 0
        self._queues: dict[Lane, _Queue] = {}
        self._ready: deque[_Queue] = deque()
        #: By group of records: the batch that took the last one, open or not.
        self._latest: dict[str, Batch] = {}
        #: Batches that accept records and are not due, in the order in which they will be. Not a dict: finding its
        #: first entry takes longer, the more entries were removed before it.
        self._opened: OrderedDict[Batch, _Queue] = OrderedDict()
        #: Bytes of all records that are not finished.
        self.buffered = 0
        #: Whether `take` may find something that it did not find before.
        self.woken = False
        #: Whether a batch was full while another one of its lane was being sent.
        self.behind = False

    @property
    def has_ready(self) -> bool:
        """Whether there is a batch to send at this moment, without reading the clock."""
        return bool(self._ready)

    @property
    def is_empty(self) -> bool:
        """Nothing is left to do."""
        return not self._queues

    def has_room(self, size: int) -> bool:
        """Whether a record of this many bytes may be added. An empty buffer accepts any record."""
        return self.buffered == 0 or self.buffered + size + RECORD_OVERHEAD <= self._buffer_bytes

    def add(self, lane: Lane, record: bytes, group: str | None = None) -> Batch | None:
        """Accept a record, as JSON text. It is the last one of the returned batch. `woken` is set if needed. None:
        there is no room for it. `group`: see `add_again`."""
        if not self.has_room(len(record)):
            return None
        size = len(record) + RECORD_OVERHEAD
        self.buffered += size
        queue = self._queues.get(lane)
        if queue is None:
            queue = self._queues[lane] = _Queue()
        batch = queue.open
        if batch is None or size > batch.room:
            batch = self._begin(lane, queue)
        batch.append(record)
        batch.count += 1
        batch.room -= size
        if batch.room <= 0 or batch.count >= batch.most:
            self._close(queue)
        if group is not None:
            self._latest[group] = batch
        return batch

    def add_again(self, group: str, record: bytes) -> Batch | None:
        """As `add`, in less time and without a lane: into the batch that took the last record of this group, if it
        has room for this one and another. None: nothing was done; `add` is to be called."""
        batch = self._latest.get(group)
        if batch is None:
            return None
        size = len(record) + RECORD_OVERHEAD
        count = batch.count + 1
        buffered = self.buffered + size
        # A closed batch takes no record.
        if count >= batch.most or size >= batch.room or buffered > self._buffer_bytes:
            return None
        self.buffered = buffered
        batch.append(record)
        batch.count = count
        batch.room -= size
        return batch

    def take(self) -> Batch | None:
        """The next batch to send. A batch that is due while another batch of its lane is being sent accepts more
        records until that one is finished."""
        now = self._now()
        while self._opened and (first := next(iter(self._opened))).due <= now:
            self._make_ready(self._opened.pop(first))
        if not self._ready:
            return None
        queue = self._ready.popleft()
        queue.is_ready = False
        batch = queue.full.popleft() if queue.full else queue.open
        assert batch is not None
        if batch is queue.open:
            batch.close()
            self._opened.pop(batch, None)
            queue.open = None
        queue.sent = batch
        return batch

    def wait_s(self) -> float | None:
        """Seconds until a batch is due. None: not before something is added or finished."""
        return max(0.0, next(iter(self._opened)).due - self._now()) if self._opened else None

    def finish(self, batch: Batch) -> None:
        """The batch was stored or given up: its memory is free, and the next batch of its lane may be sent."""
        queue = self._queues[batch.lane]
        assert queue.sent is batch
        queue.sent = None
        self.buffered -= batch.used
        batch.body = b""
        if queue.full or (queue.open is not None and queue.open.due <= self._now()):
            self._make_ready(queue)
        elif queue.open is None:
            del self._queues[batch.lane]

    def flush(self) -> list[Batch]:
        """Everything that was added is due. Returns the batches that are not finished."""
        unfinished: list[Batch] = []
        for queue in self._queues.values():
            if queue.open is not None:
                self._close(queue)
            unfinished += [batch for batch in (queue.sent, *queue.full) if batch is not None]
        return unfinished

    def _begin(self, lane: Lane, queue: _Queue) -> Batch:
        """A new batch that takes records, in place of the one that takes some."""
        if queue.open is not None:
            self._close(queue)
        self._made += 1
        fields = {"idempotency_key": f"{self._producer}-{self._made}", **self._fields}
        batch = queue.open = Batch(lane, fields, self._now() + self._limits.linger_s, self._limits)
        self._opened[batch] = queue
        self.woken = True
        return batch

    def _close(self, queue: _Queue) -> None:
        """The open batch of the lane accepts no more records."""
        assert queue.open is not None
        queue.open.close()
        self._opened.pop(queue.open, None)
        queue.full.append(queue.open)
        queue.open = None
        if queue.sent is not None:
            self.behind = True
        self._make_ready(queue)

    def _make_ready(self, queue: _Queue) -> None:
        if queue.sent is None and not queue.is_ready:
            queue.is_ready = True
            self._ready.append(queue)
            self.woken = True
