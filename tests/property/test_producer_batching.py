"""The batches of a producer, with adding, sending, finishing, flushing and time in any order."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from topics_client.batching import RECORD_OVERHEAD, Batch, Batching, Lane, Limits

LIMITS = Limits(linger_s=1.0, batch_records=3, batch_bytes=4 * RECORD_OVERHEAD, buffer_bytes=12 * RECORD_OVERHEAD)
LANES: list[Lane] = [("a", None), ("a", 0), ("b", 0)]


def texts(batch: Batch) -> list[bytes]:
    """Its records, each cut out alone."""
    alone = [text for at in range(batch.count) for text in batch.part(at, at + 1)]
    assert batch.body == b'{"records":[%b],"idempotency_key":"%b","node":"n"}' % (b",".join(alone), batch.key.encode())
    return alone


class Producing(RuleBasedStateMachine):
    """`added`: the records of a lane in order. `stored`: those whose batch is finished."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.batching = Batching(LIMITS, "p", lambda: self.now_s, {"node": "n"})
        self.added: dict[Lane, list[bytes]] = {lane: [] for lane in LANES}
        self.stored: dict[Lane, list[bytes]] = {lane: [] for lane in LANES}
        self.sent: dict[Lane, Batch] = {}
        #: By lane: the batch that took the last record.
        self.last: dict[Lane, Batch] = {}
        self.keys: list[str] = []
        self.added_at: dict[bytes, float] = {}
        self.count = 0

    @rule(lane=st.sampled_from(LANES), size=st.integers(0, 5 * RECORD_OVERHEAD))
    def add(self, lane: Lane, size: int) -> None:
        record = b'"%d%b"' % (self.count, b"x" * size)
        self.batching.behind = False
        has_room = self.batching.has_room(len(record))
        full = self._full(lane)
        batch = self.batching.add_again(repr(lane), record)
        if batch is None:
            batch = self.batching.add(lane, record, repr(lane))
        else:
            assert batch is self.last[lane]
            assert batch.count < LIMITS.batch_records
            assert batch.used < LIMITS.batch_bytes
        assert (batch is not None) == has_room
        if batch is None:
            assert self.batching.buffered > 0
            return
        self.count += 1
        assert self.batching.behind == (lane in self.sent and self._full(lane) > full)
        assert batch.lane == lane
        self.last[lane] = batch
        self.added[lane].append(record)
        self.added_at[record] = self.now_s

    @rule()
    def take(self) -> None:
        before = self.batching.has_ready
        batch = self.batching.take()
        if batch is None:
            assert not before
            return
        assert batch.lane not in self.sent
        assert 1 <= batch.count <= LIMITS.batch_records
        assert batch.count == len(texts(batch))
        assert batch.count == 1 or batch.used <= LIMITS.batch_bytes
        self.sent[batch.lane] = batch
        self.keys.append(batch.key)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        batch = self.sent.pop(data.draw(st.sampled_from(sorted(self.sent, key=repr))))
        self.stored[batch.lane] += texts(batch)
        self.batching.finish(batch)

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0]))
    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds

    @rule()
    def flush(self) -> None:
        unfinished = self.batching.flush()
        left = [record for batch in unfinished for record in texts(batch)]
        assert sorted(left) == sorted(self._unfinished())

    def _full(self, lane: Lane) -> int:
        """How many batches take no more records, and are not being sent. It closes none: their records are counted."""
        queue = self.batching._queues.get(lane)  # pyright: ignore[reportPrivateUsage]
        return 0 if queue is None else len(queue.full)

    def _unfinished(self) -> list[bytes]:
        return [record for lane in LANES for record in self.added[lane][len(self.stored[lane]) :]]

    @invariant()
    def nothing_is_lost_repeated_or_out_of_order(self) -> None:
        for lane in LANES:
            assert self.stored[lane] == self.added[lane][: len(self.stored[lane])]
        assert len(self.keys) == len(set(self.keys))

    @invariant()
    def the_buffer_is_bounded_and_its_size_is_known(self) -> None:
        left = self._unfinished()
        assert self.batching.buffered == sum(len(record) + RECORD_OVERHEAD for record in left)
        assert self.batching.buffered <= LIMITS.buffer_bytes or len(left) == 1
        assert self.batching.is_empty == (not left)

    @invariant()
    def nobody_sleeps_longer_than_a_record_may_wait(self) -> None:
        """A thread that found nothing to take and sleeps for `wait_s` wakes before a record is late."""
        waiting = [
            self.added_at[record]
            for lane in LANES
            if lane not in self.sent
            for record in self.added[lane][len(self.stored[lane]) :]
        ]
        if waiting and not self.batching.has_ready:
            wait_s = self.batching.wait_s()
            assert wait_s is not None
            assert self.now_s + wait_s <= min(waiting) + LIMITS.linger_s or wait_s == 0

    def teardown(self) -> None:
        """In the end every record is sent."""
        self.batching.flush()
        while not self.batching.is_empty:
            batch = self.batching.take()
            if batch is None:
                _, batch = self.sent.popitem()
            self.sent.pop(batch.lane, None)
            self.stored[batch.lane] += texts(batch)
            self.batching.finish(batch)
        assert self.stored == self.added
        assert self.batching.is_empty


TestProducing = Producing.TestCase
