"""Applies committed units to the state, and wakes everyone who waits for them.

`apply_unit` is the only way in which records and control frames take effect, on the live path and in recovery. On the
live path the `Publisher` calls it, on the event loop, and owns the waiting readers and the tail cache.

Source: docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from storage.errors import ShuttingDown, StorageError, TopicNotFound
from storage.format import ConfigUpdate, Consumer, FrameType, RouterCursor, Segment, TopicDelete
from storage.log.submission import AppendStep, ControlStep, PersistStep, Unit
from storage.state import Catalog, Log, Topic

if TYPE_CHECKING:
    from storage.log.writer import Shard

#: Frames that seal segments or change what is retained.
_OF_RETENTION: Final = (Segment, ConfigUpdate)

#: Memory of a cached batch beside its bytes (CPython 3.11, measured): most of the memory of a small batch.
CACHE_ENTRY_BYTES: Final = 248


def apply_unit(catalog: Catalog, unit: Unit, lsn: int, end_lsn: int, entry: int = -1) -> int | None:
    """Apply a unit whose bytes are at `lsn` (0: in memory only) up to `end_lsn`.

    `entry`: the reserved entry of its records in the log's tail; without one (in recovery) entries are reserved here.
    An eviction in the unit is applied by `catalog.apply_deferred`, which the caller calls before anyone reads the
    state. The caller has checked that the records continue their logs. Returns how many records were removed at once by
    the last control frame that removes records.
    """
    removed: int | None = None
    count = 0
    topic_id = 0
    ts = 0
    log: Log | None = None
    for step in unit.steps:
        topic_id = step.topic_id
        if isinstance(step, ControlStep):
            log = None  # the frame may delete it
            if isinstance(step.value, RouterCursor):
                catalog.move_router(topic_id, step.value, count)
                continue
            result = catalog.apply(step.type, topic_id, step.ts, step.value, lsn, step.node, may_defer=entry >= 0)
            removed = result if result is not None else removed
            ts = step.ts
            continue
        topic = catalog.by_id.get(topic_id)
        if topic is None:
            continue
        log = topic.log
        if isinstance(step, AppendStep):
            appended = step.appended
            log.commit(appended, log.reserve(appended) if entry < 0 else entry, lsn, step.offset)
            count += len(appended.sizes)
            ts = appended.ts
        elif isinstance(step, PersistStep):
            catalog.apply_deferred()
            log.written_out(log.tail.set_batch_lsn(step.first_seq, lsn, step.offset))
        else:
            log.take_batches(step.batches)
            catalog.remember_all(topic, step.batches)
    if unit.batch is not None:
        catalog.remember(topic_id, ts, unit.batch, count)
    if log is None and (topic := catalog.by_id.get(topic_id)) is not None:
        log = topic.log
    if log is not None and end_lsn:
        log.applied_lsn = end_lsn
    elif topic_id == 0 and any(isinstance(step, ControlStep) and step.type == FrameType.STATE for step in unit.steps):
        catalog.states.applied_lsn = end_lsn
    return removed


class Publisher:
    """The one place where commits become visible."""

    def __init__(self, catalog: Catalog, cache: TailCache) -> None:
        self._catalog = catalog
        self._cache = cache
        self._waiters: dict[int, list[asyncio.Future[None]]] = {}
        self._shutting_down = False
        #: Called with each log after something of it was committed: any log, one with a queue, one while there are
        #: routers.
        self.on_commit: Callable[[Log], None] | None = None
        self.on_jobs: Callable[[Log], None] | None = None
        self.on_routed: Callable[[Log], None] | None = None
        self.on_deleted: Callable[[int, str], None] | None = None
        #: Called with a log after a frame sealed a segment of it or changed what it retains.
        self.on_retention: Callable[[Log], None] | None = None
        #: Called, by topic_id, after something of that log was committed, its deletion included.
        self.listeners: dict[int, Callable[[], None]] = {}
        #: Logs of which something was committed since `end_group`, in that order.
        self._to_wake: dict[int, None] = {}
        self.commits = 0
        #: Logs of which something was committed; the snapshotter empties it.
        self.touched: set[int] = set()

    # -- commits -----------------------------------------------------------------------------------------------------

    def publish(self, unit: Unit, payload: bytes, entry: int) -> None:
        """Apply a unit that is in memory only, and wake everyone who waits for it."""
        self.take(unit, payload, 0, 0, entry)
        self.end_group()

    def take(self, unit: Unit, payload: bytes, lsn: int, end_lsn: int, entry: int) -> int | None:
        """Apply a committed unit. Returns as `apply_unit`.

        `end_group` has to follow in the same step of the loop, after this unit or after several: until then the caps
        of a log may be exceeded, and nobody who waits is woken.
        """
        catalog = self._catalog
        removed = apply_unit(catalog, unit, lsn, end_lsn, entry)
        self.commits += 1
        for step in unit.steps:
            topic_id = step.topic_id
            self.touched.add(topic_id)
            topic = catalog.by_id.get(topic_id)
            if isinstance(step, AppendStep):
                if topic is None:
                    continue
                log, traffic, appended = topic.log, catalog.usage.traffic, step.appended
                traffic.writes += 1
                traffic.appended += len(appended.sizes)
                if lsn:
                    self._cache.add(log, appended.first_seq, payload, step.offset)
                else:
                    log.cached[appended.first_seq] = (payload, step.offset)
            elif isinstance(step, ControlStep):
                if isinstance(step.value, TopicDelete):
                    self._notify_deleted(topic_id, step.value.name)
                if topic is None:
                    continue
                topic.provisional = False
                if self.on_retention is not None and isinstance(step.value, _OF_RETENTION):
                    self.on_retention(topic.log)
            elif topic is not None and isinstance(step, PersistStep) and step.first_seq in topic.log.cached:
                self._cache.add(topic.log, step.first_seq, payload, step.offset)  # no longer the only copy
        if unit.steps:
            first = unit.steps[0]
            # Nobody waits for a cursor to move, and cursors may move at every read.
            if not (
                isinstance(first, ControlStep) and isinstance(first.value, Consumer) and first.value.event == "cursor"
            ):
                self._to_wake[first.topic_id] = None
        return removed

    def end_group(self) -> None:
        """Do what was deferred for the units taken: apply evictions, once for each log; wake everyone who waits for
        these logs, and notify their queues and routers."""
        if self._catalog.deferred:
            self._catalog.apply_deferred()
        while self._to_wake:
            woken, self._to_wake = self._to_wake, {}
            for topic_id in woken:
                if topic_id in self._waiters:
                    self.look_again(topic_id)
                listener = self.listeners.get(topic_id)
                if listener is not None:
                    listener()
                topic = self._catalog.by_id.get(topic_id)
                if topic is None:
                    continue
                log = topic.log
                if log.queue is not None and self.on_jobs is not None:
                    self.on_jobs(log)
                if self.on_routed is not None and self._catalog.routes.by_id:
                    self.on_routed(log)
                if self.on_commit is not None:
                    self.on_commit(log)

    def roll_back(self, shard: Shard) -> None:
        """A write of this shard failed: reset its logs to the published view, and remove topics that are not created
        yet."""
        self._catalog.apply_deferred()
        shard.generation += 1
        for topic in list(self._catalog.topics.values()):
            log = topic.log
            if log.shard != shard.index:
                continue
            if topic.provisional:
                self._catalog.remove(topic)
            elif log.assigned_head != log.head or log.assigned_floor != log.marks.live_floor:
                log.roll_back()

    # -- waiting -----------------------------------------------------------------------------------------------------

    async def wait(self, topic: Topic, seq: int, wait_ms: float, check: Callable[[], None] | None = None) -> bool:
        """True as soon as the log's head is above `seq`; False after `wait_ms`.

        Raises TopicNotFound when the topic is deleted meanwhile, ShuttingDown when the engine stops, and what `check`
        raises, which is called whenever something of the topic is committed.
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
        """A waiter that was woken and waits again must not miss what happened in between."""
        if self._shutting_down:
            raise ShuttingDown()
        if self._catalog.by_id.get(topic.topic_id) is not topic:
            raise TopicNotFound(topic.name)

    def wake(self, topic_id: int) -> None:
        """A change of this log took effect without a unit: notify as at the end of a group."""
        self._to_wake[topic_id] = None
        self.end_group()

    def look_again(self, topic_id: int) -> None:
        """Wake the readers that wait for this log: something changed, though not always its records."""
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
        """Raise ShuttingDown in every wait, present or future."""
        self._shutting_down = True
        error: StorageError = ShuttingDown()
        for waiters in self._waiters.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(error)
        self._waiters.clear()


class TailCache:
    """The bytes of the newest batches of all logs, so that reads near the head need no disk. At most `max_bytes`.

    The bytes come from the encoder, which computed their checksums, and have never left memory. The oldest go first.
    Batches of ephemeral logs do not count: they exist only in memory.
    """

    __slots__ = ("_entries", "bytes", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self._entries: deque[tuple[Log, int, int]] = deque()

    def add(self, log: Log, first_seq: int, payload: bytes, offset: int) -> None:
        """Keep a committed batch; its first Append frame begins at `offset` of `payload`."""
        log.cached[first_seq] = (payload, offset)
        size = len(payload) + CACHE_ENTRY_BYTES
        self._entries.append((log, first_seq, size))
        self.bytes += size
        while self.bytes > self.max_bytes:
            old, seq, size = self._entries.popleft()
            old.cached.pop(seq, None)
            self.bytes -= size
