"""An engine with one queue and its dead letter topic, and the comparison with their model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar

from storage import ReadQuery, TopicConfig
from storage.records.values import StoredRecord
from storage.state.queues.values import JobView
from tests.property.engine_bench import EngineBench
from tests.property.queue_model import Moved, QueueModel

T = TypeVar("T")
QUEUE, DEAD = "q", "dead"
#: Turns of the loop that background work takes if nothing blocks it.
MANY_TURNS = 400
#: Durable leases write their end before it is visible.
EXPIRY_TURNS = 30


class QueueBench(EngineBench):
    """Subclasses add rules."""

    queue: QueueModel

    def make(self, config: TopicConfig) -> None:
        self.start()
        self.run(self.engine.put_topic(QUEUE, config))
        self.queue = QueueModel(config.clamped())
        #: (seq, token, node) of every lease so far.
        self.handed: list[tuple[int, int, str]] = []

    def call(self, what: Callable[[], T]) -> T:
        """Call something that has to run on the loop."""

        async def called() -> T:
            return what()

        return self.run(called())

    def go_on(self, turns: int = MANY_TURNS) -> None:
        async def turn() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        self.run(turn())

    # -- comparing ---------------------------------------------------------------------------------------------------

    def compare(self) -> None:
        """Everything that is visible of the queue is as expected, once background work is done."""
        self.run(self.engine.read(QUEUE, ReadQuery()))  # expired records go
        self.queue.settle(self.now)
        self.go_on(EXPIRY_TURNS)
        self.settle_moves()
        views = self.listed()
        self.queue.adopt(views, self.now)
        shown = [(view.seq, view.state, view.node, view.deadline, view.ready_at, view.deliveries) for view in views]
        assert shown == self.queue.views(self.now)
        self.compare_figures()
        self.compare_records()
        moved = self.moved()
        assert sorted(job.source_seq for job in moved) == sorted(job.source_seq for job in self.queue.moved)
        assert all(job in self.queue.moved for job in moved)
        self.queue.moved = moved  # jobs that died at once were moved side by side

    def settle_moves(self) -> None:
        """Let moves continue in the background."""
        if any(job.dead for job in self.queue.jobs.values()):
            self.go_on()
            self.queue.move_dead()

    def listed(self) -> list[JobView]:
        def listed() -> list[JobView]:
            found: list[JobView] = []
            while page := self.engine.queues.leases(QUEUE, after=found[-1].seq if found else 0, limit=5):
                found += page
            return found

        return self.call(listed)

    def compare_figures(self) -> None:
        figures = self.call(lambda: self.engine.queues.figures(QUEUE))
        wanted = self.queue.figures(self.now)
        found = {name: getattr(figures, name) for name in wanted}
        assert found == wanted, (found, wanted)
        assert figures.waiting_claims == 0
        assert (figures.oldest_ready_age_ms is None) == (figures.ready == 0)
        assert self.engine.state(QUEUE).queue == figures

    def compare_records(self) -> None:
        state = self.engine.state(QUEUE)
        live = self.queue.live
        assert [record.seq for record in self.records(QUEUE)] == [job.seq for job in live]
        assert (state.head_seq, state.count, state.bytes) == (self.queue.head, len(live), self.queue.bytes)

    def records(self, name: str) -> list[StoredRecord]:
        found: list[StoredRecord] = []
        cursor = 0
        while cursor < self.engine.state(name).head_seq:
            result = self.run(self.engine.read(name, ReadQuery(from_seq=cursor, limit=1000)))
            found += result.records
            cursor = result.next_from_seq
        return found

    def moved(self) -> list[Moved]:
        """The records of the dead letter topic that are still there."""
        if not any(state.topic == DEAD for state in self.engine.topics()):
            return []
        return [moved_job(record) for record in self.records(DEAD)]


def moved_job(record: StoredRecord) -> Moved:
    """The fields of a record of the dead letter topic."""
    body = json.loads(record.body)
    meta: dict[str, Any] = body["meta"]
    assert all(isinstance(value, str) for name, value in meta.items() if name.startswith("$dead_letter_"))
    assert meta.pop("$dead_letter_from") == QUEUE
    deliveries, source_seq = int(meta.pop("$dead_letter_deliveries")), int(meta.pop("$dead_letter_src_seq"))
    reason = meta.pop("$dead_letter_reason", None)
    first: Any = meta.pop("$meta") if "$meta" in meta else meta or None
    assert "$meta" not in meta
    tag, node = record.tag.decode() or None, record.node.decode() or None
    return Moved(source_seq, body["data"], first, tag, node, deliveries, reason)
