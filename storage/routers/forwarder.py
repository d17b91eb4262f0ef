"""Runs one router: reads the published records of its source and writes copies of them to its destination, in order.

There is a task only while there is something to copy. A commit at the source starts it, and it runs until it has caught
up. If the destination refuses a copy (the topic or the disk is full), the router tries again, in order, when something
changes there or after a while.

Source: docs/reference/api.md#routers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from storage.errors import RecordTooLarge, RouterNotFound, StorageError, TopicFull, TopicNotFound
from storage.log import Appender
from storage.reads import ROUTING_SCAN_RECORDS
from storage.records import ReadQuery, StoredRecord, TopicType
from storage.routers.copies import Copies, FrameCopies, copies_of
from storage.routers.sources import ForeignSource, ForeignSources, OwnSource, Source, SourceGone
from storage.routers.windows import Windows
from storage.routers.writing import CopyWrite, fitting, persist, rejoin, write_loss
from storage.state import Topic
from storage.state.routers import Router
from storage.telemetry import Tracer, moving

_log = structlog.get_logger("storage")

#: How much is copied at a time: one batch at the destination, and one or two ms of the loop.
MIN_BATCH_RECORDS, MIN_BATCH_BYTES = 1000, 1 << 20
#: When other work keeps the loop busy for longer than this, all routers together use as much of the loop as that work.
MOST_RECORDS, MOST_BYTES, _OF_QUEUE = 8 * ROUTING_SCAN_RECORDS, 4 << 20, 4
#: A copy occupies the loop for this long at most.
MOST_NS = 50_000_000
#: How many records of another cell are read while the destination refuses them, and how many bytes of each.
PROBE_RECORDS, PROBE_BYTES = 10, 4096
#: After this many skipped records the cursor is written, because a restart examines later ones again.
PERSIST_EVERY = 10_000
MIN_BACKOFF_S, MAX_BACKOFF_S = 0.05, 1.0


class Forwarding:
    """What the forwarders of an engine share."""

    def __init__(
        self, appender: Appender, windows: Windows, foreign: ForeignSources, tracer: Callable[[], Tracer | None]
    ) -> None:
        """`tracer` returns the tracer, or None."""
        self.appender = appender
        self.windows = windows
        self.foreign = foreign
        self.tracer = tracer
        #: How many forwarders have something to copy now.
        self.running = 0


class Forwarder:
    """The forwarder of one router. Used only on the event loop."""

    def __init__(self, forwarding: Forwarding, router: Router) -> None:
        self._forwarding = forwarding
        self._logs = forwarding.appender.logs
        self.router = router
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        #: Whether a batch is on its way to the destination. Nobody else may write the cursor then, and a stop waits for
        #: it.
        self._writing = False
        self._stopped = False
        #: The source that it read from last.
        self._source: Source | None = None
        #: (ms, lag): since when it has not caught up with its source, and its lag then. None if it has caught up.
        self.behind: tuple[int, int] | None = None
        #: How many records are read next.
        self._batch_limit = MIN_BATCH_RECORDS
        #: How long a record occupied the loop at most when some were copied last.
        self._copy_ns = FrameCopies.LOOP_NS

    def kick(self) -> None:
        """There may be records to copy."""
        if self._task is None and not self._stopped and self._wanted():
            self._task = self._logs.runtime.loop.create_task(self._run(), name="storage-router")

    def retry(self) -> None:
        """Something has changed at the destination: it may accept what it refused."""
        self._changed.set()

    async def stop(self) -> None:
        """Begin nothing more. On return no batch is on its way."""
        self._stopped = True
        self.router.lag_limit = None
        self.router.give_up_waiters()
        task = self._task
        if task is None:
            return
        if not self._writing:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def persist(self) -> None:
        """Write the cursor to the log if it has moved. Raises Unavailable."""
        router, dest = self.router, self._logs.catalog.by_id.get(self.router.dest_id)
        idle = self._task is None or self._task.done()
        if idle and dest is not None and router.position > router.cursor and self._alive():
            await persist(self._logs, dest, router)

    # -- the task ------------------------------------------------------------------------------------------------------

    def _alive(self) -> bool:
        return self._logs.catalog.routes.by_id.get(self.router.router_id) is self.router

    def source(self) -> Source | None:
        """The source of the router. None if it is gone."""
        topic = self._logs.catalog.by_id.get(self.router.source_id)
        if topic is None:
            return self._forwarding.foreign.get(self.router.source_id)
        found = self._source
        if not isinstance(found, OwnSource) or found.topic is not topic:
            found = self._source = OwnSource(self._logs, self._forwarding.windows, topic)
        return found

    def block(self, code: str) -> None:
        """Its source cannot be reached."""
        if self.router.blocked is None:
            _log.warning("router_blocked", router=self.router.name, error=code)
        self._block(code)

    def unblock(self) -> None:
        """Its source can be reached."""
        if self._task is None and self.router.blocked is not None:
            self._moved(self.router.position)
        self.retry()
        self.kick()

    def _wanted(self) -> bool:
        source = self.source()
        dest = self._logs.catalog.by_id.get(self.router.dest_id)
        if source is None or dest is None or not self._alive():
            return False
        if self._logs.shards[dest.log.shard].log.failed is not None:
            self._block("storage_failed")  # nothing is written there before the next start
            return False
        if isinstance(source, ForeignSource):
            if not source.known:
                return False
            if source.epoch != self.router.source_epoch:
                return True
        return self.router.position < source.head

    async def _run(self) -> None:
        self._forwarding.running += 1
        self._begin()
        try:
            await self._carry()
        finally:
            self._forwarding.running -= 1
            self.router.lag_limit = None
        self._task = None  # here, and not when the task has ended: a commit in between must start another task

    def _begin(self) -> None:
        source = self.source()
        if source is not None:
            self.router.begin(source.head)

    async def _carry(self) -> None:
        backoff_s = MIN_BACKOFF_S
        while not self._stopped and self._wanted():
            try:
                await self._step()
                backoff_s = MIN_BACKOFF_S
            except (RouterNotFound, TopicNotFound, SourceGone):
                break
            except StorageError as error:
                backoff_s = await self._pause(error, backoff_s)
            except Exception as error:
                _log.exception("router_failed", router=self.router.name)
                backoff_s = await self._pause(error, backoff_s)

    async def _pause(self, error: Exception, backoff_s: float) -> float:
        """Wait until something changes at the destination, at most `backoff_s`. Returns how long to wait the next
        time."""
        if self._stopped:
            return backoff_s
        if self.router.blocked is None:
            _log.warning("router_blocked", router=self.router.name, error=str(error))
        self._block(error.code if isinstance(error, StorageError) else "internal")
        self._changed.clear()
        sleeping = asyncio.ensure_future(self._logs.clock.sleep(backoff_s))
        waiting = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait({sleeping, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            waiting.cancel()
        return min(MAX_BACKOFF_S, backoff_s * 2)

    def _block(self, code: str) -> None:
        self.router.blocked = code
        self.router.give_up_waiters()

    def _moved(self, position: int) -> None:
        if self.router.blocked is not None:
            _log.info("router_resumed", router=self.router.name)
            self.router.blocked = None
            self._begin()
        self.router.move(position)

    async def _step(self) -> None:
        """Read a range and copy it."""
        router, source, dest = self.router, self.source(), self._logs.catalog.by_id.get(self.router.dest_id)
        if source is None or dest is None:
            raise RouterNotFound(router.name)
        if isinstance(source, ForeignSource) and source.epoch != router.source_epoch:
            await self._rejoin(dest, source)
            return
        began_ns, limit = self._logs.clock.monotonic_ns(), self._batch_limit
        if router.blocked is not None and isinstance(source, ForeignSource):
            limit = PROBE_RECORDS  # records that the destination refuses are not kept meanwhile, but read again
        query = ReadQuery(
            from_seq=router.position,
            limit=limit,
            max_bytes=self._max_bytes(limit),
            tag=router.definition.match,
            skip_corrupt=True,
            routing=True,
        )
        found, consumed = await source.read(query, router)
        await source.harden(dest, found.next_from_seq)
        records = found.records
        if found.tombstone is not None:
            await self._lose(dest, found.tombstone.gap_to, found.tombstone.reason)
        elif consumed > router.position:
            await self._lose(dest, consumed, "consumed")
        corrupt = found.corrupt_seqs or []
        while corrupt:
            before = [each for each in records if each.seq < corrupt[0]]
            records = records[len(before) :]
            if not await self._copy(source, dest, before, found.hops or {}, corrupt[0] - 1):
                return
            lost = [seq for seq in corrupt if not records or seq < records[0].seq]  # up to the next intact record
            corrupt = corrupt[len(lost) :]
            await self._lose(dest, lost[-1], "corrupt")
        await self._copy(source, dest, records, found.hops or {}, found.next_from_seq)
        if self._stopped:
            return
        if router.position - router.cursor >= PERSIST_EVERY:
            await self._write_cursor(dest)
        await self._rest(began_ns, len(found.records))

    def _max_bytes(self, records: int) -> int:
        """The bytes of bodies to read with this many records."""
        most = min(MOST_BYTES, self._logs.options.wal_queue_bytes // _OF_QUEUE)
        return max(
            min(MIN_BATCH_BYTES, PROBE_BYTES * records), min(MIN_BATCH_BYTES * records // MIN_BATCH_RECORDS, most)
        )

    async def _rest(self, began_ns: int, copied: int) -> None:
        """Yield to the loop, because reads from memory did not. Then decide how much to copy next: as much as fits into
        the time that other work has had since this step began."""
        logs = self._logs
        await asyncio.sleep(0)
        # Other routers have used part of that time.
        others_ns = logs.clock.monotonic_ns() - began_ns - copied * self._copy_ns
        share = others_ns // (self._copy_ns * max(1, self._forwarding.running))
        most = min(MOST_RECORDS, logs.options.wal_queue_frames // _OF_QUEUE, MOST_NS // self._copy_ns)
        self._batch_limit = max(MIN_BATCH_RECORDS, min(share, most))

    async def _rejoin(self, dest: Topic, source: ForeignSource) -> None:
        self._writing = True
        try:
            await rejoin(self._logs, dest, self.router, source.still_valid(self.router), source.epoch)
        finally:
            self._writing = False

    async def _write_cursor(self, dest: Topic) -> None:
        self._writing = True
        try:
            await persist(self._logs, dest, self.router)
        finally:
            self._writing = False

    async def _lose(self, dest: Topic, source_seq: int, why: str) -> None:
        self._writing = True
        try:
            await write_loss(self._logs, self._forwarding.appender.reservations, dest, self.router, source_seq)
        finally:
            self._writing = False
        _log.warning("router_lost_records", router=self.router.name, up_to=source_seq, reason=why)
        self._moved(source_seq)

    async def _copy(
        self, source: Source, dest: Topic, records: Sequence[StoredRecord], hops: dict[int, int], upto: int
    ) -> bool:
        """Copy these records; everything up to `upto` has been examined. False if the rest has to be read again."""
        router = self.router
        delays = source.is_queue
        keeps = dest.config.type is TopicType.QUEUE
        copies = copies_of(records, hops, router.definition, delays=delays, keep_delays=keeps)
        router.hop_limited += len(records) - len(copies)
        if len(copies):
            self._copy_ns = copies.LOOP_NS
        backoff_s, most = MIN_BACKOFF_S, len(copies)
        while len(copies) and not self._stopped:
            count = min(most, fitting(dest.config, dest.log, copies))
            try:
                if not count:
                    await self._lose(dest, copies.seqs[0], "record_too_large")
                    copies = copies.between(1, len(copies))
                else:
                    rest = copies.between(count, len(copies))
                    await self._write(dest, copies.between(0, count), rest.seqs[0] - 1 if len(rest) else upto)
                    copies = rest
                backoff_s, most = MIN_BACKOFF_S, len(copies)
            except (RouterNotFound, TopicNotFound):
                raise
            except StorageError as error:
                if isinstance(error, TopicFull | RecordTooLarge) and count > 1:
                    most = 1  # another writer was faster, or the caps have changed: try the first record alone
                    continue
                if self._logs.shards[dest.log.shard].log.failed is not None:
                    raise
                backoff_s = await self._pause(error, backoff_s)
                still = source.still(copies)
                if still is None:
                    return False
                copies = still
        if not len(copies):
            self._moved(upto)
        return not len(copies)

    async def _write(self, dest: Topic, copies: Copies, source_seq: int) -> None:
        router, tracer = self.router, self._forwarding.tracer()
        records = copies.records if tracer is not None else ()
        self._writing = True
        try:
            with moving(tracer, "forward", router.definition.source, dest.name, records, router=router.name):
                await CopyWrite(self._forwarding.appender, dest, router, copies, source_seq).run()
        finally:
            self._writing = False
        self._moved(source_seq)
