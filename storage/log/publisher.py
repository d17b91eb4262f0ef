"""Takes what the log has committed into the state, and tells everybody who waits for it. Runs on the event loop.

Owns the waiters and the tail cache. A failed write takes its shard's logs back to what is published.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from storage.errors import ShuttingDown, StorageError, TopicNotFound
from storage.format.control import ConfigUpdate, Consumer, Segment, TopicDelete
from storage.log.apply import apply_unit
from storage.log.submission import AppendStep, ControlStep, PersistStep, Submission, Unit
from storage.log.writer import Shard
from storage.state.cache import TailCache
from storage.state.catalog import Catalog, Topic
from storage.state.log import Log

#: Frames after which other segments are sealed, or other records are to be kept.
_OF_RETENTION = (Segment, ConfigUpdate)


class Publisher:
    """The one place where commits become visible."""

    def __init__(self, catalog: Catalog, cache: TailCache) -> None:
        self._catalog = catalog
        self._cache = cache
        self._waiters: dict[int, list[asyncio.Future[None]]] = {}
        self._shutting_down = False
        #: Called with each log after something of it was committed.
        self.on_commit: Callable[[Log], None] | None = None
        self.on_jobs: Callable[[Log], None] | None = None
        self.on_routed: Callable[[Log], None] | None = None
        self.on_deleted: Callable[[int, str], None] | None = None
        #: Called with a log of which other segments are sealed, or other records are to be kept, than before.
        self.on_retention: Callable[[Log], None] | None = None
        #: Called, by topic_id, after something of that log was committed, its deletion included.
        self.listeners: dict[int, Callable[[], None]] = {}
        self.commits = 0
        #: Logs of which something was committed, since whoever wants to know has last emptied this.
        self.touched: set[int] = set()

    # -- commits -----------------------------------------------------------------------------------------------------

    def complete(self, shard: Shard, submission: Submission) -> None:
        """A submission came back from its shard: publish it, or undo what it had been given."""
        done = submission.done
        assert done is not None
        if submission.error is not None:
            if submission.generation == shard.generation:
                self.roll_back(shard)
            if not done.done():
                done.set_exception(submission.error)
            return
        lsn = submission.lsn
        removed = self.publish(
            submission.unit, submission.payload, lsn, lsn + len(submission.payload), submission.entry
        )
        if not done.done():
            done.set_result(removed)

    def publish(self, unit: Unit, payload: bytes, lsn: int, end: int, entry: int) -> int | None:
        removed = apply_unit(self._catalog, unit, lsn, end, entry)
        self.commits += 1
        for step in unit.steps:
            self.touched.add(step.topic_id)
            topic = self._catalog.by_id.get(step.topic_id)
            log = topic.logs[0] if topic is not None else None
            if isinstance(step, ControlStep):
                if isinstance(step.value, TopicDelete):
                    self._notify_deleted(step.topic_id, step.value.name)
                if topic is None or log is None:
                    continue
                topic.provisional = False
                if self.on_retention is not None and isinstance(step.value, _OF_RETENTION):
                    self.on_retention(log)
            elif log is not None and isinstance(step, AppendStep):
                self._catalog.usage.traffic.wrote(len(step.appended.sizes))
                if lsn:
                    self._cache.add(log, step.appended.first_seq, payload, step.offset)
                else:
                    log.cached[step.appended.first_seq] = (payload, step.offset)
            elif log is not None and isinstance(step, PersistStep) and step.first_seq in log.cached:
                self._cache.add(log, step.first_seq, payload, step.offset)  # no longer the only copy
        if unit.steps:
            first = unit.steps[0]
            # That a cursor has moved nobody waits for, and it may do so for each read.
            value = first.value if isinstance(first, ControlStep) else None
            if not (isinstance(value, Consumer) and value.event == "cursor"):
                self.wake(first.topic_id)
        return removed

    def roll_back(self, shard: Shard) -> None:
        """Heads of this shard's logs go back to what is published; topics not yet made are gone."""
        shard.generation += 1
        for topic in list(self._catalog.topics.values()):
            for log in topic.logs:
                if log.shard != shard.index:
                    continue
                if topic.provisional:
                    self._catalog.remove(topic)
                elif log.assigned_head != log.head or log.assigned_floor != log.marks.live_floor:
                    log.roll_back()

    # -- waiting -----------------------------------------------------------------------------------------------------

    async def wait(self, topic: Topic, seq: int, wait_ms: float, check: Callable[[], None] | None = None) -> bool:
        """True as soon as the log's head is beyond `seq`; False after `wait_ms`.

        Raises TopicNotFound when the topic is deleted meanwhile, ShuttingDown when the engine stops, and what `check`
        raises, which is asked whenever something of the topic is committed.
        """
        if self._shutting_down:
            raise ShuttingDown()
        log = topic.log
        if log.head > seq:
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault(log.topic_id, [])
        waiters.append(waiter)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while log.head <= seq:
                    await waiter
                    if log.head <= seq:
                        self._check_wait(topic)
                        if check is not None:
                            check()
                        waiter = asyncio.get_running_loop().create_future()
                        self._waiters.setdefault(log.topic_id, []).append(waiter)
        except TimeoutError:
            return False
        finally:
            still_waiting = self._waiters.get(log.topic_id)
            if still_waiting is not None and waiter in still_waiting:
                still_waiting.remove(waiter)
                if not still_waiting:
                    del self._waiters[log.topic_id]
        return True

    def _check_wait(self, topic: Topic) -> None:
        """Whoever was woken, and waits on, must not miss what came between the two."""
        if self._shutting_down:
            raise ShuttingDown()
        if self._catalog.by_id.get(topic.topic_id) is not topic:
            raise TopicNotFound(topic.name)

    def wake(self, topic_id: int) -> None:
        """Something of this log was committed."""
        if topic_id in self._waiters:
            self.look_again(topic_id)
        listener = self.listeners.get(topic_id)
        if listener is not None:
            listener()
        log = self._catalog.log(topic_id)
        if log is None:
            return
        if log.queue is not None and self.on_jobs is not None:
            self.on_jobs(log)
        if self.on_routed is not None:
            self.on_routed(log)
        if self.on_commit is not None:
            self.on_commit(log)

    def look_again(self, topic_id: int) -> None:
        """Those who wait for more of this log are to make sure that there is nothing: it need not be new records."""
        for waiter in self._waiters.pop(topic_id, ()):
            if not waiter.done():
                waiter.set_result(None)

    def _notify_deleted(self, topic_id: int, name: str) -> None:
        if self.on_deleted is not None:
            self.on_deleted(topic_id, name)
        for waiter in self._waiters.pop(topic_id, ()):
            if not waiter.done():
                waiter.set_exception(TopicNotFound(name))

    def shut_down(self) -> None:
        """Everybody who waits, and who will, is told that the engine stops."""
        self._shutting_down = True
        error: StorageError = ShuttingDown()
        for waiters in self._waiters.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(error)
        self._waiters.clear()
