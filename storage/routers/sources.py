"""The source of a router: a topic of this engine, or of another cell of the set.

A source in another cell is watched by one call that waits there for records, however many routers read it. Its records
arrive as frames, and each frame is verified here like any other.

Source: docs/cells.md#routers-and-dead-letters-between-cells.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

import kernel
from storage.errors import EpochConflict, RecordCorrupt, StorageError
from storage.log import EncodedUnit, Logs, Unit
from storage.records import Durability, FrameRecords, ReadQuery, ReadResult, StoredRecord, Tombstone, TopicType, cell_of
from storage.routers.windows import Windows
from storage.state import Topic, tag_predicate

if TYPE_CHECKING:
    from storage.platform import Neighbours
    from storage.routers.copies import Copies
    from storage.state.routers import Router

_log = structlog.get_logger("storage")

#: How long a call waits for records at the other cell, and how much longer for its answer.
WAIT_S: Final = 20.0
ANSWER_S: Final = 10.0
MIN_BACKOFF_S, MAX_BACKOFF_S = 0.05, 1.0
#: The most reads of sources in one other cell at a time, so that at most this many answers are in flight.
MAX_READS: Final = 16


class SourceGone(StorageError):
    """The source of a router in another cell was deleted, so the router ends."""

    code = "topic_not_found"


class Source(Protocol):
    """A topic that routers copy from."""

    @property
    def head(self) -> int:
        """The last seq that is known to exist."""
        ...

    @property
    def is_queue(self) -> bool: ...

    async def read(self, query: ReadQuery, router: Router) -> tuple[ReadResult, int]:
        """The records after `query.from_seq` that a router must copy, with `consumed_to` applied. Raises
        StorageError."""
        ...

    async def harden(self, dest: Topic, seq: int) -> None:
        """Return when records up to `seq` may be copied to `dest`."""
        ...

    def still(self, copies: Copies) -> Copies | None:
        """The copies whose originals still exist after a wait. None if the records have to be read again."""
        ...


class OwnSource:
    """A topic of this engine."""

    __slots__ = ("_hard_seq", "_logs", "_windows", "topic")

    def __init__(self, logs: Logs, windows: Windows, topic: Topic) -> None:
        self._logs = logs
        self._windows = windows
        self.topic = topic
        #: The seq up to which records are known to be synced.
        self._hard_seq = 0

    @property
    def head(self) -> int:
        return self.topic.log.head

    @property
    def is_queue(self) -> bool:
        return self.topic.config.type is TopicType.QUEUE

    async def read(self, query: ReadQuery, router: Router) -> tuple[ReadResult, int]:
        found = await self._windows.read(self.topic, query)
        return found, consumed_to(self.topic, found)

    async def harden(self, dest: Topic, seq: int) -> None:
        """In a chain, sync the records of the source before copying them on, even if their topic needs no sync.

        If the source is itself a destination, copies that it loses in a power loss are made again, as new records. If
        they had been copied on before, the next destination would have them twice. Within one shard the destination
        loses the later copies too. Records that clients appended are not made again.
        """
        if self.topic.log.shard != dest.log.shard:
            await self.harden_for_others(seq)

    async def harden_for_others(self, seq: int) -> None:
        """The same for a destination that does not lose what this topic's shard loses."""
        logs, log = self._logs, self.topic.log
        synced = self.topic.config.durability is Durability.FSYNC or log.ephemeral
        if synced or seq <= self._hard_seq or self.topic.topic_id not in logs.catalog.routes.into:
            return
        head = log.head
        await logs.submit_unit(logs.shards[log.shard], 0, EncodedUnit(Unit(None, []), b"", 0), frees=True)
        self._hard_seq = head

    def still(self, copies: Copies) -> Copies | None:
        log = self.topic.log
        return None if log.marks.trim_floor > copies.seqs[0] else copies.only(log.is_live)


def consumed_to(source: Topic, found: ReadResult) -> int:
    """The last seq that was reclaimed, because all consumers of the source had read it, before this read reached it.

    For readers of the source that is no loss, because the topic is configured so. For readers of the destination it is
    a loss.
    """
    first = found.records[0].seq if found.records else found.next_from_seq + 1
    return min(source.log.marks.trim_floor, first) - 1


class ForeignSource:
    """A topic of another cell. `storage.routers.departures` answers the calls there."""

    def __init__(
        self, logs: Logs, topic_id: int, reading: asyncio.Semaphore, changed: Callable[[int, str | None], None]
    ) -> None:
        """`reading` limits concurrent reads. `changed` is called with the topic_id, and with the code of the error that
        prevents reading it, if there is one."""
        neighbours = logs.neighbours
        assert neighbours is not None
        self._neighbours: Neighbours = neighbours
        self._logs = logs
        self.topic_id = topic_id
        self._reading = reading
        self._changed = changed
        self.head = 0
        self.is_queue = False
        #: Whether the other cell has answered about it since this process started.
        self.known = False
        #: Its epoch, and renewed epochs as in `Log.renewals`, as the other cell said last.
        self.epoch = 0
        self._renewals: list[tuple[int, int]] = []
        self.gone = False
        self._task: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Follow its head from now on."""
        if self._task is None:
            self._task = self._logs.runtime.loop.create_task(self._watch(), name="storage-source")

    async def stop(self) -> None:
        """On return no call is in progress."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _watch(self) -> None:
        backoff_s, routes = MIN_BACKOFF_S, self._logs.catalog.routes
        while not self.gone:
            try:
                # The first answer comes at once.
                argument = [self.topic_id, self.head, WAIT_S if self.known else 0.0]
                found = await self._call("source_wait", argument)
            except Exception as error:
                self.known = False
                if not isinstance(error, StorageError):
                    names = [router.name for router in routes.out_of.get(self.topic_id, ())]
                    _log.exception("router_failed", router=names)
                self._changed(self.topic_id, error.code if isinstance(error, StorageError) else "internal")
                await self._logs.clock.sleep(backoff_s)
                backoff_s = min(MAX_BACKOFF_S, backoff_s * 2)
                continue
            backoff_s = MIN_BACKOFF_S
            if found is None:
                self.gone = True
            else:
                head, self.is_queue, self.epoch, self._renewals = found
                if not self.known:
                    self.head, self.known = head, True
                    self._continue_at(head)
                self.head = max(self.head, head)
            self._changed(self.topic_id, None)

    def _continue_at(self, head: int) -> None:
        """Routers whose copies were in memory only continue at the head of the first answer since the start."""
        routes = self._logs.catalog.routes
        for router in routes.out_of.get(self.topic_id, ()):
            if router.from_head:
                router.from_head = False
                router.cursor = router.position = head
                router.source_epoch = 0  # the forwarder writes the cursor, before it reads
                self._logs.catalog.by_id[router.dest_id].log.section = None

    def still_valid(self, router: Router) -> int:
        """The cursor of a router in this epoch of the source. It is lower if the router had come further than the
        topic did before its epoch was renewed: the seqs from there on are assigned anew."""
        if not router.source_epoch:
            return min(router.cursor, self.head)
        later = self._renewals
        for number, (epoch, _) in enumerate(later):
            if epoch == router.source_epoch:
                later = later[number + 1 :]
                break
        return min([router.cursor, *(head for _, head in later)])

    async def _call(self, method: str, argument: Any, timeout_s: float = WAIT_S + ANSWER_S) -> Any:
        return await self._neighbours.call(cell_of(self.topic_id), method, argument, timeout_s=timeout_s)

    async def caught_up(self, router: Router, hops: int) -> tuple[int, list[str]]:
        """(its head, blocked routers into it), once it has what its own sources have now. Raises StorageError;
        EpochConflict while the router's position is of another epoch."""
        found = await self._call("source_caught_up", [self.topic_id, hops])
        if found is None:
            return 0, []
        head, blocked, epoch = found
        if epoch != router.source_epoch:
            raise EpochConflict(router.definition.source, router.source_epoch, epoch)
        self.head = max(self.head, head)
        return head, blocked

    async def read(self, query: ReadQuery, router: Router) -> tuple[ReadResult, int]:
        tag = None if query.tag is None else tag_predicate(query.tag)
        argument = [self.topic_id, router.router_id, query.from_seq, query.limit, query.max_bytes, tag]
        argument.append(router.source_epoch)
        async with self._reading:
            found = await self._call("source_read", argument)
        if found is None:
            self.gone = True
            self._changed(self.topic_id, None)
            raise SourceGone()
        head, consumed, reached, lost, corrupt, hops, parts = found
        self.head = max(self.head, head)
        records: list[StoredRecord] | FrameRecords = []
        tombstone = None
        if lost is not None:
            gap_to, reason = lost
            tombstone = Tombstone(
                gap_from=query.from_seq + 1,
                gap_to=gap_to,
                reason=reason,
                missed_estimate=0,
                earliest_seq=0,
                head_seq=head,
            )
        if parts is not None:
            records = self._verified(*parts)
        result = ReadResult(
            topic=router.definition.source,
            records=records,
            next_from_seq=reached,
            head_seq=head,
            earliest_seq=0,
            tombstone=tombstone,
            corrupt_seqs=corrupt,
            hops=dict(hops) if hops else None,
        )
        return result, consumed

    def _verified(self, seqs: bytes, frames: bytes) -> FrameRecords:
        """The records of these frames, after their checks, with their seqs at the source."""
        numbers = array("Q", seqs)
        columns = kernel.scan(frames, topic_id=self.topic_id).columns
        if len(columns) != len(numbers):
            raise RecordCorrupt(f"A record of topic {self.topic_id} fails its checksum on its way from its cell.")
        return FrameRecords(frames, columns.with_seqs(numbers))

    async def harden(self, dest: Topic, seq: int) -> None:
        """Nothing to do: its cell has synced them before it answered."""

    def still(self, copies: Copies) -> Copies | None:
        return None


class ForeignSources:
    """The sources in other cells of all routers of an engine."""

    def __init__(self, logs: Logs, changed: Callable[[int, str | None], None]) -> None:
        """`changed`: see `ForeignSource`."""
        self._logs = logs
        self._changed = changed
        self._sources: dict[int, ForeignSource] = {}
        #: By cell: one that hangs must not keep routers from reading in the others.
        self._reading: defaultdict[int, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(MAX_READS))
        self._stopping: set[asyncio.Task[None]] = set()

    def get(self, topic_id: int) -> ForeignSource | None:
        """The source with this id, watched from now on. None if it is not in another cell."""
        found = self._sources.get(topic_id)
        if found is None:
            if self._logs.neighbours is None or not self._logs.catalog.is_foreign(topic_id):
                return None
            found = self._sources[topic_id] = ForeignSource(
                self._logs, topic_id, self._reading[cell_of(topic_id)], self._changed
            )
            found.watch()
        return found

    def gone(self) -> list[int]:
        """topic_ids of deleted sources that still have routers."""
        return [topic_id for topic_id, source in self._sources.items() if source.gone]

    def known(self, topic_id: int) -> ForeignSource | None:
        """The same, without watching it."""
        return self._sources.get(topic_id)

    def release(self, topic_id: int) -> None:
        """No router needs it any more."""
        found = self._sources.pop(topic_id, None)
        if found is not None:
            task = self._logs.runtime.loop.create_task(found.stop())
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)

    async def stop(self) -> None:
        """On return no call is in progress."""
        for topic_id in [*self._sources]:
            self.release(topic_id)
        await asyncio.gather(*self._stopping, return_exceptions=True)
