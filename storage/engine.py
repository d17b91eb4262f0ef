"""The engine: a data directory opened by one process, owned by one event loop. It ties the parts together.

    async with Engine.open("/var/lib/topics") as engine:
        await engine.append("orders", {"id": 1})
        record = await engine.read_next("orders", "billing")

All methods belong to the loop that started the engine. Blocking work runs on the writer threads and the I/O pool.

This module opens the directory, creates the parts and passes work between the loop and threads. The package of each
part (`admin`, `queues`, `consumers`, ...) describes it.

Source: docs/reference/format.md, docs/architecture.md#one-append-from-the-socket-to-the-disk.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import islice
from typing import Any, Literal

import msgspec
import structlog

from storage.backup import Backups, BackupSource, Summary, collect_backups
from storage.consumers import Consumers, Reclaim, collect_consumers
from storage.embedded import (
    MAX_BYTES,
    MAX_RECORDS,
    Entry,
    Following,
    Record,
    RecordBatch,
    Value,
    directories,
    first_record,
    keyed_path,
    one_record,
    records_in,
    records_of,
)
from storage.errors import (
    AlreadyLocked,
    AlreadyOpen,
    ConsumerNotFound,
    ShuttingDown,
    StorageError,
)
from storage.log import Appender, Logs, Reservations, Shard, ShardLog, WalFetcher, Write, collect_logs
from storage.options import Options
from storage.platform import (
    PACKED_FORMAT_VERSION,
    Clock,
    FileSystem,
    Format,
    Lock,
    LockText,
    Method,
    Neighbours,
    Runtime,
    ShardTrust,
    make_folders,
    open_format,
    put_format,
    refuse_set,
    take_lock,
)
from storage.queues import DeadLetterRules, Queues, collect_queues
from storage.reads import Reader
from storage.records import (
    Appended,
    DeletedRecords,
    NewRecord,
    PartitionStates,
    PlainRecords,
    ProducerBatch,
    ReadQuery,
    ReadResult,
    StoredBodies,
    StoredRecord,
    TagMatch,
    TopicConfig,
    TopicState,
    address,
    split,
)
from storage.recovery import (
    Recovered,
    Report,
    announce_losses,
    clean_up,
    end_leases_with_this_process,
    is_due,
    load_snapshots,
    recorded_shards,
    recover,
    reshard,
    return_reservations,
)
from storage.routers import Routers, collect_routers
from storage.segments import (
    DetailsCache,
    Flusher,
    Housekeeping,
    Segments,
    SegmentsView,
    SegmentWorker,
    collect_segments,
    view_of,
)
from storage.segments.tiering import ColdStore, Tier, open_tier
from storage.segments.tiering.relocator import Relocator
from storage.snapshot import Snapshotter
from storage.state import Catalog, Topic
from storage.state.consumers import Consistency, ConsumerConfig, ConsumerRead, ConsumerState, Start
from storage.telemetry import Family, Tracer
from storage.topics import (
    Expiry,
    ForeignParts,
    Placements,
    Placing,
    Producers,
    RemoteWrites,
    States,
    TopicAdmin,
    WriteOptions,
)

_log = structlog.get_logger("storage")


class Engine:
    """An engine. A new one is not started: call `start`, or use `open` in a `with` block."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: Options | None = None,
        *,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        threaded: bool = True,
        cold: ColdStore | None = None,
        tier: Tier | None = None,
    ) -> None:
        """`cold`: the store of the cold tier, instead of `options.cold_dir`. `tier`: the cold tier itself."""
        self.options = options or Options()
        self.runtime = runtime = Runtime(path, self.options, fs=fs, clock=clock, threaded=threaded)
        self.path: str = runtime.path
        self.clock = runtime.clock
        self.supervisor = runtime.supervisor
        self.load_shedding = runtime.load_shedding
        self.now_ms = runtime.now_ms
        self.monotonic_ms = runtime.monotonic_ms
        self.run_io = runtime.run_io
        self.run_cold = runtime.run_cold
        self.logs = logs = Logs(runtime)
        self.shards = logs.shards
        self.changing = logs.changing
        self.pending_keys = logs.pending_keys
        self.pending_losses = logs.unannounced_losses
        self.check_open = logs.check_open
        self.topic = logs.topic
        self.shard_is_open = logs.shard_is_open
        self.submit_controls = logs.submit_controls
        self.submit_unit = logs.submit_unit
        self._cold_store = cold
        self._tier = tier
        self._lock: Lock | None = None
        self._directories: list[str] = []
        self.cluster_id = ""
        self._format: Format | None = None
        self.recovery_progress = 0.0
        self._given_up = False
        self.report = Report()
        self.states = States(logs)
        self.producers = Producers(logs, self.states)
        self.reclaim = Reclaim(logs)
        self._wire_segments(logs)
        self.expiry = Expiry(logs, self.segments, self.producers)
        self.reader = Reader(logs, self.expiry)
        self.reservations = Reservations(logs)
        self.placements = Placements(logs, self.states)
        self.admin = TopicAdmin(logs, self.reservations, self.expiry, self.segments, self.placements)
        self.remote_writes = RemoteWrites(logs, self._append_for_neighbour)
        self.foreign_parts = ForeignParts(logs, self.admin, self.expiry, self.state_of)
        self.appender = Appender(logs, self.reservations, self.admin, self.producers, self.expiry, self.segments)
        self.try_append = self.appender.try_append
        self.try_append_coalesced = self.appender.try_append_coalesced
        self.placing = Placing(logs, self.states)
        self.queues = self.admin.queues = Queues(
            logs, self.reader, self.admin, self.placing, self.expiry, self.appender, tracer=lambda: self.tracer
        )
        self.routers = Routers(
            self.appender, self.reader, self.admin, self.states, self.placing, tracer=lambda: self.tracer
        )
        self.admin.check_ends = self.routers.check_ends
        self.dead_letter_rules = DeadLetterRules(logs, self.placing)
        self.admin.check_takes = self.dead_letter_rules.check_takes
        self.admin.check_takes_none = self.dead_letter_rules.check_unused
        self.consumers = self.admin.consumers = Consumers(logs, self.reader)
        self.backups = Backups(
            BackupSource(self.shared_segments, self.segment_worker, self._take_snapshot, lambda: self.cluster_id)
        )
        #: Called on the loop with (shard, errno) when a shard stops.
        self.on_shard_failed: Callable[[int, int | None], None] | None = None
        #: Gets the records that the engine copies or moves to other topics. None: no tracing.
        self.tracer: Tracer | None = None
        #: By topic_id and consumer: reads with losses that no record has reported yet.
        self._unreported: dict[tuple[int, str], RecordBatch] = {}
        self._adopt(Catalog(1))

    def _wire_segments(self, logs: Logs) -> None:
        self.shared_segments = segments = Segments(logs)
        self.segments = DetailsCache(segments)
        self.relocator = Relocator(segments)
        self.flusher = Flusher(segments, self.segments)
        self.housekeeping = Housekeeping(segments, self.flusher, self.relocator, self.allow_packing)
        self.segment_worker = SegmentWorker(
            segments, self.flusher, self.reclaim.tick, lambda: self.admin.align_all(), self.housekeeping
        )

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: str | os.PathLike[str], options: Options | None = None, **seams: Any
    ) -> AsyncGenerator[Engine]:
        """Start an engine for a `with` block, and close it cleanly at the end."""
        engine = cls(path, options, **seams)
        await engine.start()
        try:
            yield engine
        finally:
            await engine.close()

    @classmethod
    def keyed(
        cls, name: str, *, root: str | os.PathLike[str], options: Options | None = None, **seams: Any
    ) -> AbstractAsyncContextManager[Engine]:
        """`open` for the directory `name` below `root`, for several independent engines in one program.

        A name is 1 to 64 characters from a-z 0-9 _ -. Raises InvalidRequest for other names, AlreadyOpen.
        """
        return cls.open(keyed_path(root, name), options, **seams)

    def _adopt(self, catalog: Catalog) -> None:
        self.logs.adopt(catalog)
        self.catalog, self.cache, self.publisher = catalog, self.logs.cache, self.logs.publisher
        self.publisher.on_jobs = self.queues.on_commit
        self.publisher.on_deleted = self.queues.on_deleted
        self.publisher.on_retention = self.reclaim.note
        catalog.on_consumed = self.reclaim.note
        self.routers.adopt(catalog)

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Lock the directory, recover, open the writers. Raises OpenError, DataError, OSError; then it holds
        nothing."""
        self._unreported = {}
        self.runtime.start()
        try:
            recovered = await self.run_io(self._recover)
            self._adopt(recovered.catalog)
            self.store = self.shared_segments.store = recovered.store
            self.reader.open(recovered.store)
            await self._open_writers(recovered)
            await announce_losses(self.logs, self.snapshotter, recovered)
            await end_leases_with_this_process(self.logs, recovered)
            await self.admin.align_all()
        except BaseException as error:
            self._given_up = True  # a running recovery ends at its next step
            await self._release()
            if isinstance(error, AlreadyLocked) and directories.is_open(self.path):
                raise AlreadyOpen(self.path) from None
            raise
        assert self._lock is not None
        boot = self.fs.boot_id()
        self._lock.write(LockText(pid=os.getpid(), boot=boot, came_up=bool(boot)).encode())
        self.report = recovered.report
        self.logs.ready = True
        if self.failed_shards or self.pending_losses:
            self._distrust_page_cache()  # losses are unannounced, so the next start must find them again
        self._start_workers()
        self.placing.start()
        await self.queues.start()
        self.routers.start()
        self.consumers.start()
        self.placements.start()
        if not self.runtime.threaded:
            self.supervisor.start("harden", self.options.disk_sync_ms / 1000, self._harden)
        directories.opened(self)

    def _recover(self, *, copied: bool = False) -> Recovered:
        """`copied`: the directory is a copy. Its segments are plain files, and nothing is missing at its end."""
        begin = self.clock.monotonic_ns()
        self._lock = take_lock(self.fs, self.path, self.clock)
        refuse_set(self.fs, self.path)
        if not self.fs.is_private(self.path):
            _log.warning("data_dir_open_to_others", data_dir=self.path)
        # The cells of a set share the cores, so a new cell has one shard.
        in_a_set = self.options.cell is not None
        found = open_format(self.fs, self.path, self.options.wal_shards or int(in_a_set))
        self.cluster_id = found.cluster_id
        self._format = found
        previous, boot = LockText.parse(self._lock.previous()), self.fs.boot_id()
        trusted = self.options.trust_page_cache and bool(boot) and previous.boot == boot
        loaded = load_snapshots(self.fs, self.path)
        tier = self._tier or open_tier(self._cold_store, self.options, self.fs, self.path, self.cluster_id)
        recorded = recorded_shards(self.fs, self.path, found.shards, loaded)
        shards = self.options.wal_shards or recorded
        trust = ShardTrust(recorded) if copied else ShardTrust(recorded, previous.ends if trusted else None)
        self._note(trust)
        make_folders(self.fs, self.path, recorded)
        recovered = recover(
            self.fs,
            self.path,
            self.options,
            recorded,
            loaded=loaded,
            came_up=previous.came_up,
            trust=trust,
            before_truncating=self._note,
            now_ms=self.runtime.now_from,
            progress=self._set_progress,
            cold=tier,
            unpacked=copied or self.options.plain_segments,
        )
        if is_due(self.fs, self.path, found.shards, loaded, shards):
            now_ms = self.now_ms()
            recovered = reshard(
                self.fs, self.path, self.options, recovered, shards, now_ms=now_ms, progress=self._set_progress
            )
        else:
            clean_up(self.fs, self.path, loaded)
        self._directories = make_folders(self.fs, self.path, shards)
        if any(_has_packed(topic) for topic in recovered.catalog.by_id.values()):
            self.allow_packing()  # usually set already, unless an older FORMAT was restored
        recovered.report.seconds = (self.clock.monotonic_ns() - begin) / 1e9
        return recovered

    def allow_packing(self) -> None:
        """Set the format version that older programs refuse, before a segment is packed. Blocking. Raises OSError."""
        assert self._format is not None
        if self._format.version < PACKED_FORMAT_VERSION:
            made = self._format._replace(version=PACKED_FORMAT_VERSION)
            put_format(self.fs, self.path, made)
            self._format = made

    def _note(self, trust: ShardTrust) -> None:
        """Record for the next start, in case this process is killed, whether it can trust the page cache."""
        assert self._lock is not None
        boot = "" if trust.ends is None else self.fs.boot_id()
        self._lock.write(LockText(pid=os.getpid(), boot=boot, ends=trust.ends or ()).encode())

    def _set_progress(self, fraction: float) -> None:
        if self._given_up:
            raise ShuttingDown()
        self.recovery_progress = fraction

    async def _open_writers(self, recovered: Recovered) -> None:
        self.wal_files = self.logs.wal_files = WalFetcher(self.fs, self._directories, self.run_io)
        for index, directory in enumerate(self._directories):
            log = ShardLog(self.fs, directory, index, self.options, self.clock, self.runtime.spawn)
            await self.run_io(log.open, recovered.next_files[index])
            shard = Shard(
                index,
                log,
                self.options,
                self.clock,
                self.publisher.take,
                self.publisher.end_group,
                self.publisher.roll_back,
                self._shard_failed,
                threaded=self.runtime.threaded,
            )
            self.shards.append(shard)
            shard.start()
        seams = (self.logs, self.shared_segments.pins, self.wal_directory)
        found = (recovered.snapshots, recovered.next_snapshot, recovered.sections)
        self.snapshotter: Snapshotter = await self.run_io(
            Snapshotter, *seams, *found
        )  # on a thread, because it visits all topics

    def join(self, neighbours: Neighbours) -> None:
        """Make this engine a cell of a set. Call it before `start`, with `Options.cell` set."""
        assert self.options.cell == neighbours.me
        self.logs.neighbours = neighbours

    @property
    def methods_for_neighbours(self) -> dict[str, Method]:
        """The methods that other cells of the set may call, by name. They raise NotReady before the engine is ready."""
        return {
            **self.placing.methods,
            **self.queues.arrivals.methods,
            **self.dead_letter_rules.methods,
            **self.routers.methods_for_neighbours,
            **self.foreign_parts.methods,
            **self.remote_writes.methods,
        }

    def begin_shutdown(self) -> None:
        """End the waits for records and jobs with an error. Everything else continues until `close`."""
        self.publisher.shut_down()
        self.queues.begin_shutdown()

    async def _take_snapshot(self, clean: bool) -> tuple[int, list[int]]:
        return await self.snapshotter.take(clean=clean)

    async def close(self, last: Callable[[], Awaitable[object]] | None = None) -> None:
        """Finish work in flight, take a snapshot, release the directory. After a shard has failed, the stop is not
        clean.

        `last`: takes that snapshot, as part of a base, when the stop is clean (see `Backups.take_base`).
        """
        if self.closing:
            return
        self.logs.closing = True
        self.begin_shutdown()
        self.relocator.begin_stop()
        await self.backups.stop()
        await self.supervisor.stop()
        await self.queues.stop()
        await self.routers.stop()
        await self.consumers.stop()
        await self.foreign_parts.stop()
        await self.segment_worker.stop(ready=self.ready)
        await self.segments.close()
        if self.ready:
            try:
                await return_reservations(self.logs)
                if last is None or self.failed_shards:
                    await self.snapshotter.take(clean=not self.failed_shards)
                else:
                    await last()
            except (StorageError, OSError) as error:
                _log.warning("final_snapshot_failed", error=str(error))
        await self._release()

    def forked(self) -> None:
        """Called in a forked process: the engine belongs to the parent, so release its directory here."""
        self.logs.ready, self.logs.closing = False, True
        if self._lock is not None:
            self._lock.release()

    async def _release(self) -> None:
        self.logs.ready = False
        await self.relocator.wait_idle()
        for shard in self.shards:
            try:
                await shard.stop()
            except OSError as error:
                _log.error("shard_close_failed", shard=shard.index, error=str(error))
        if self.failed_shards:
            self._distrust_page_cache()
        if self.shards:
            self.wal_files.close()
            self.store.close()
        self.runtime.stop()
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        directories.closed(self)

    async def _harden(self) -> None:
        for shard in self.shards:
            shard.harden()

    def _shard_failed(self, shard: Shard) -> None:
        number = shard.log.failed.errno if shard.log.failed else None
        _log.error("shard_failed", shard=shard.index, errno=number)
        self.publisher.roll_back(shard)
        self._distrust_page_cache()
        if self.on_shard_failed is not None:
            self.on_shard_failed(shard.index, number)

    def _distrust_page_cache(self) -> None:
        """Record for the next start that the page cache may differ from the disk."""
        if self._lock is None:
            return
        try:
            self._lock.write(LockText(pid=os.getpid(), came_up=True).encode())
        except OSError as error:  # the disk has just failed, and callers must still get that error
            _log.error("lock_not_written", error=str(error))

    def _start_workers(self) -> None:
        options, start = self.options, self.supervisor.start
        start("expiry", options.expiry_interval_ms / 1000, self.expiry.tick)
        start("snapshot", min(1.0, options.snapshot_interval_ms / 1000), self.snapshotter.tick)
        start("upkeep", options.checkpoint_interval_ms / 1000, self.segment_worker.tick)
        if self.store.cold is not None:
            start("relocator", options.checkpoint_interval_ms / 1000, self.relocator.tick)

    @property
    def ready(self) -> bool:
        """Whether recovery is over and the engine has not stopped."""
        return self.logs.ready

    @property
    def closing(self) -> bool:
        """Whether the engine has begun to stop."""
        return self.logs.closing

    @property
    def moves_segments(self) -> bool:
        """Whether sealed segments move to a cold tier."""
        return self.store.cold is not None and self.store.cold.is_open

    @property
    def fs(self) -> FileSystem:
        """The file system; after the start, the one of the options."""
        return self.runtime.fs

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that started the engine."""
        return self.runtime.loop

    @property
    def failed_shards(self) -> list[tuple[int, int | None]]:
        """(shard, errno) of each shard that has stopped."""
        return self.logs.failed_shards

    # -- for the parts -------------------------------------------------------------------------------------------------

    def wal_directory(self, shard: int) -> str:
        return self._directories[shard]

    # -- topics ------------------------------------------------------------------------------------------------------

    def state_of(self, topic: Topic) -> TopicState:
        """The current state of a topic, without expired records that are not evicted yet. In queues, expired jobs count
        until `let_expire` or the worker's next round."""
        log = topic.log
        earliest, count, size = log.earliest_seq, log.count, log.bytes
        expired = self.expiry.due(topic, loaded=True)
        if expired:
            gone = log.held.totals(earliest, min(expired, log.head + 1), log.marks.live_floor)
            earliest, count, size = log.earliest_from(expired), count - gone[0], size - gone[1]
        return TopicState(
            topic=topic.name,
            topic_id=topic.topic_id,
            epoch=log.epoch,
            config=topic.config,
            head_seq=log.head,
            next_seq=log.head + 1,
            earliest_seq=earliest,
            evict_floor=log.marks.evict_floor,
            count=count,
            bytes=size,
            last_write_ts=log.last_write_ts,
            last_read_ts=topic.last_read_ts,
            queue=self.queues.figures_of(topic) if log.queue is not None else None,
            consumers=self.consumers.figures_of(topic),
        )

    def partitions(self, name: str) -> int:
        """The number of partitions. Methods with a topic's name also accept the name of partition p,
        `storage.records.partitions.address(name, p)`; the topic's name means partition 0. Raises TopicNotFound."""
        return self.topic(name).partitions

    def state(self, name: str) -> TopicState:
        """The current state of a topic. Raises TopicNotFound."""
        return self.state_of(self.topic(name))

    async def states_of(self, names: Sequence[str]) -> list[PartitionStates]:
        """The states of all partitions of each of these topics, also of those in other cells, as far as these answer.
        Raises TopicNotFound."""
        roots = [self.topic(name) for name in names]
        elsewhere = await self.placements.states([root for root in roots if root.placement is not None])
        return [self._states_in(root, elsewhere.get(root.topic_id, {})) for root in roots]

    def _states_in(self, root: Topic, elsewhere: dict[int, TopicState]) -> PartitionStates:
        found = PartitionStates({}, {})
        for number in range(root.partitions):
            cell = self.catalog.cell if root.placement is None else root.placement.cells[number]
            if root.placement is None or cell == self.catalog.cell:
                found.states[number] = self.state(address(root.name, number))
            elif number in elsewhere:
                found.states[number] = elsewhere[number]
            else:  # its cell is away, or has not been told yet that it counts
                found.offline[number] = root.placement.cells[number]
        return found

    async def append_to(
        self, topic: str, partition: int, records: StoredBodies, *, idempotency_key: str | None = None
    ) -> Appended:
        """`append` to a partition of a topic of this cell, which another cell may have. A missing topic is made."""
        root, where = self.catalog.topics.get(topic), address(topic, partition)
        cells = () if root is None or root.placement is None else root.placement.cells
        if partition < len(cells) and cells[partition] != self.catalog.cell:
            options = WriteOptions(idempotency_key=idempotency_key)
            return await self.remote_writes.append(cells[partition], where, records, options)
        return await self.append(where, records, idempotency_key=idempotency_key)

    async def _append_for_neighbour(
        self, name: str, records: list[NewRecord] | PlainRecords | StoredBodies, options: WriteOptions
    ) -> Appended:
        return await self.append(
            name,
            records,
            node=options.node,
            idempotency_key=options.idempotency_key,
            idempotency_strict=options.idempotency_strict,
            create=False,
            expected_seq=options.expected_seq,
        )

    def topics(self, prefix: str = "", after: str = "", limit: int = 100) -> list[TopicState]:
        """Topics with names after `after`, ordered by the bytes of the name. States are of partition 0."""
        shown = (topic for topic in self.catalog.named(prefix, after) if not topic.provisional)
        return [self.state_of(topic) for topic in islice(shown, limit)]

    async def let_expire(self, names: Iterable[str]) -> bool:
        """Evict expired records of all partitions of these topics, as far as log and segments allow, so that states
        agree with reads. False: nothing had expired. Topics that do not exist are ignored; the name of a partition
        means its topic."""
        topics = self.catalog.topics
        found = (topics.get(split(name)[0]) or topics.get(name) for name in names)
        return await self.expiry.let_expire([topic for topic in found if topic is not None])

    async def put_topic(
        self, name: str, config: TopicConfig | None = None, *, keep_partitions: bool = False
    ) -> tuple[TopicState, bool]:
        """Create the topic or replace its config. Durable on return. Returns (state, whether it was created).

        `partitions` can grow, but not shrink (TopicIncompatible). With `keep_partitions`, an existing topic keeps its
        partitions.
        """
        self.check_open()
        created = await self.admin.put(name, config or TopicConfig(), keep_partitions=keep_partitions)
        return self.state_of(self.topic(name)), created

    async def change_topic(self, name: str, changed: Callable[[TopicConfig], TopicConfig]) -> TopicState:
        """Replace a topic's config by the result of `changed`, which gets the current one. No other change happens in
        between. Durable on return. Raises TopicNotFound, and the errors of `changed` and `put_topic`."""
        self.check_open()
        await self.admin.alter(name, changed)
        return self.state_of(self.topic(name))

    async def delete_topic(self, name: str, if_empty: bool = False) -> bool:
        """Delete the topic, its records and routers. False: it did not exist. Raises TopicNotEmpty."""
        return await self.remove_topic(name, if_empty=if_empty) is not None

    async def remove_topic(self, name: str, *, if_empty: bool = False) -> list[str] | None:
        """Like `delete_topic`. Returns the names of the deleted routers; None: the topic did not exist."""
        self.check_open()
        topic = self.catalog.topics.get(name)
        routers = await self.routers.out_of(name) if topic is not None else set[tuple[str, int]]()
        removed = await self.admin.delete(name, if_empty=if_empty)
        if removed is None or topic is None:
            return removed
        return sorted([*removed, *await self.routers.topic_gone(name, topic.topic_id, routers)])

    # -- records -----------------------------------------------------------------------------------------------------

    async def append(
        self,
        name: str,
        records: Value | Sequence[NewRecord] | PlainRecords | StoredBodies,
        *,
        node: str | None = None,
        idempotency_key: str | None = None,
        idempotency_strict: bool = False,
        create: bool = True,
        config: TopicConfig | None = None,
        expected_seq: int | None = None,
        producer: ProducerBatch | None = None,
        hasten: bool = False,
    ) -> Appended:
        """Append a record, or several, atomically. On return they are as durable as the topic's class defines. Bytes
        are stored as they are, any other value as JSON; a list must contain `NewRecord`s.

        `producer`: the batch is stored once, and only after the previous one. A repetition of one of that producer's
        last 5 batches returns the first result, as `deduped`. Raises OutOfOrderSequence, InvalidProducerEpoch.
        `hasten`: a class that acks before the sync is synced with the next write, without waiting for the timer.

        A cancelled call may still take effect. Raises subclasses of RequestError and Unavailable. Only after
        StorageFailed it is unknown whether the records exist.
        """
        self.check_open()
        return await Write(
            self.appender,
            name,
            records if isinstance(records, PlainRecords | StoredBodies) else one_record(records),
            node=node,
            key=idempotency_key,
            strict=idempotency_strict,
            create=create,
            config=config,
            expected_seq=expected_seq,
            producer=producer,
            hasten=hasten,
        ).run()

    async def read(self, name: str, query: ReadQuery) -> ReadResult:
        """Read records after a seq, and the losses before them. Raises TopicNotFound, RecordCorrupt."""
        if not self.logs.ready:
            self.logs.check_started()
        return await self.reader.read(self.topic(name), query)

    async def read_one(self, name: str, seq: int) -> StoredRecord:
        """Read one record. Raises RecordNotFound (detail.reason), TopicNotFound, RecordCorrupt."""
        self.logs.check_started()
        return await self.reader.read_one(self.topic(name), seq)

    def segments_of(self, name: str) -> SegmentsView:
        """The topic's segments, and the seqs that are not in them yet, at one instant. Raises TopicNotFound.

        `storage.segments.download` reads the files of sealed segments.
        """
        self.logs.check_started()
        topic = self.topic(name)
        return view_of(topic, self.cluster_id, self.shards[topic.log.shard].log)

    async def wait_beyond(self, name: str, seq: int, wait_ms: float) -> bool:
        """Wait until head_seq > seq. False: not within `wait_ms`. Raises TopicNotFound, ShuttingDown."""
        self.logs.check_started()
        return await self.publisher.wait(self.topic(name), seq, wait_ms)

    async def delete_records(
        self, name: str, before_seq: int | None = None, match: TagMatch | None = None
    ) -> DeletedRecords:
        """Delete records before a seq, by tag, or by both. Readers get no tombstone."""
        self.check_open()
        return await self.admin.delete_records(name, before_seq, match)

    def touch(self, name: str) -> None:
        """Record that the topic was read."""
        self.topic(name).last_read_ts = self.now_ms()

    async def backup(self, directory: str | os.PathLike[str], *, include_cold: bool = False) -> Summary:
        """Copy all data, as of one instant, to a backup directory. Durable on return. See `Backups.take`."""
        return await self.backups.take(directory, include_cold=include_cold)

    def metrics(self) -> list[Family]:
        """The current metrics of the engine."""
        logs = self.logs
        snapshotter = self.snapshotter if self.shards else None
        return [
            *collect_logs(logs),
            *self.report.families(self.recovery_progress),
            *([] if snapshotter is None else snapshotter.families()),
            *collect_segments(
                self.shared_segments, self.segment_worker, self.flusher, self.housekeeping, self.relocator
            ),
            *collect_queues(logs, self.queues),
            *collect_routers(logs, self.routers),
            *collect_consumers(logs, self.consumers, self.reclaim),
            *collect_backups(self.backups),
        ]

    # -- reading with consumers, for programs that embed the engine --------------------------------------------------

    async def append_batch(
        self,
        topic: str,
        entries: Iterable[Entry],
        *,
        node: str | None = None,
        idempotency_key: str | None = None,
        create: bool = True,
        config: TopicConfig | None = None,
        expected_seq: int | None = None,
    ) -> Appended:
        """Append 1 to 10,000 entries (`Options.max_batch_records`): bytes, `BinaryRecord`s, or JSON values.

        Atomic, also over crashes. On return, the entries are as durable as the topic's class defines. After
        RequestError, StorageFull or WalSaturated, nothing was stored. After StorageFailed it is unknown until the next
        start; repeat the call with the same idempotency_key then.
        """
        return await self.append(
            topic,
            records_of(entries),
            node=node,
            idempotency_key=idempotency_key,
            create=create,
            config=config,
            expected_seq=expected_seq,
        )

    async def read_next(
        self, topic: str, consumer: str, *, checkpoint: bool = True, wait_ms: float = 0, skip_corrupt: bool = False
    ) -> Record | None:
        """The next record of a consumer; None: there is none (within `wait_ms`).

        A missing consumer is created before the oldest record. `checkpoint`: move the cursor after the record; False
        is like `peek`. The consumer's consistency says what a crash does to the cursor. `skip_corrupt`: a damaged
        record is skipped, logged, and listed in `corrupt_seqs` of the next one; otherwise it is RecordCorrupt, and the
        cursor stays before it. Losses are in `lost` of the next record.

        Raises TopicNotFound, InvalidRequest, RecordCorrupt, Unavailable.
        """
        if not checkpoint:
            return await self.peek(topic, consumer, skip_corrupt=skip_corrupt)
        query = ReadQuery(limit=1, skip_corrupt=skip_corrupt)
        batch = await self.read_as(topic, consumer, query, checkpoint=True, wait_ms=wait_ms)
        return first_record(self.with_unreported_losses(batch))

    def with_unreported_losses(self, batch: RecordBatch) -> RecordBatch:
        """Add to a batch the losses of earlier batches that had no record to report them with."""
        position = self._position_of(batch.topic, batch.consumer)
        batch.follow(self._unreported.pop(position, None))
        if not batch.records and (batch.tombstone is not None or batch.corrupt_seqs):
            self._unreported[position] = batch
        return batch

    def _position_of(self, topic: str, consumer: str) -> tuple[int, str]:
        return self.topic(topic).topic_id, consumer

    async def read_batch(
        self,
        topic: str,
        consumer: str,
        max_bytes: int = MAX_BYTES,
        *,
        max_records: int = MAX_RECORDS,
        checkpoint: bool = True,
        wait_ms: float = 0,
        skip_corrupt: bool = False,
    ) -> RecordBatch:
        """The next records of a consumer: at most `max_bytes` of bodies, but at least one if there is any.

        Otherwise like `read_next`. An at_least_once consumer gets at most its persist_every records.
        """
        query = ReadQuery(limit=max_records, max_bytes=max_bytes, skip_corrupt=skip_corrupt)
        return await self.read_as(topic, consumer, query, checkpoint=checkpoint, wait_ms=wait_ms)

    async def peek(self, topic: str, consumer: str, *, skip_corrupt: bool = False) -> Record | None:
        """The record that `read_next` would return, without moving a cursor, creating a consumer, or waiting."""
        query = ReadQuery(limit=1, skip_corrupt=skip_corrupt)
        batch = await self.read_as(topic, consumer, query, checkpoint=False)
        return first_record(batch)

    async def follow(
        self,
        topic: str,
        consumer: str,
        *,
        wait_ms: float | None = None,
        max_bytes: int = MAX_BYTES,
        skip_corrupt: bool = False,
    ) -> AsyncGenerator[Record]:
        """Iterate over records, for a single reader. Ends if no record comes for `wait_ms` (None: never).

        A record counts as read when the next one is requested: the last one is delivered again if the loop ends by
        `break`, error or crash, unless it is committed (`commit`). For a strictly_at_once consumer, it counts before it
        is delivered. When the engine closes, the iterator raises ShuttingDown.
        """
        following = self.following(topic, consumer, wait_ms=wait_ms, max_bytes=max_bytes, skip_corrupt=skip_corrupt)
        while (batch := await following.next()) is not None:
            processed = 0
            try:
                for record in records_in(batch):
                    yield record
                    processed = record.seq
            except GeneratorExit:
                await following.leave(processed)
                raise
            await following.done(batch)

    def following(
        self, topic: str, consumer: str, *, wait_ms: float | None, max_bytes: int, skip_corrupt: bool
    ) -> Following:
        """The batches that `follow` iterates over."""
        return Following(self, topic, consumer, wait_ms=wait_ms, max_bytes=max_bytes, skip_corrupt=skip_corrupt)

    async def read_as(
        self, topic: str, consumer: str, query: ReadQuery, *, checkpoint: bool, wait_ms: float = 0
    ) -> RecordBatch:
        """The next records of a consumer that match `query`. With `checkpoint`, a missing consumer is created."""
        try:
            read = await self.consumers.read(topic, consumer, query, checkpoint=checkpoint, wait_ms=wait_ms)
        except ConsumerNotFound:
            if not checkpoint:
                return await self._read_as_new(topic, consumer, query)
            await self.consumers.put(topic, consumer)
            read = await self.consumers.read(topic, consumer, query, checkpoint=True, wait_ms=wait_ms)
        batch = RecordBatch(read)
        if checkpoint:
            batch.announce()
        return batch

    async def _read_as_new(self, topic: str, consumer: str, query: ReadQuery) -> RecordBatch:
        """The records that a consumer created now would get."""
        state = self.state_of(self.topic(topic))
        before = state.earliest_seq - 1
        result = await self.read(topic, msgspec.structs.replace(query, from_seq=before))
        return RecordBatch(ConsumerRead(result=result, consumer=consumer, cursor_seq=before, unread=state.count))

    # -- consumers ---------------------------------------------------------------------------------------------------

    async def put_consumer(
        self,
        topic: str,
        consumer: str,
        *,
        consistency: Consistency = Consistency.AT_LEAST_ONCE,
        persist_every: int = 1000,
        start: Start = "earliest",
    ) -> ConsumerState:
        """Create a consumer, or replace its settings (`start` is then ignored). Durable on return.

        at_least_once: after a crash, at most `persist_every` records are delivered again. strictly_at_once: none,
        because the cursor is synced before a record is delivered. Raises TopicNotFound, InvalidRequest, Unavailable.
        """
        config = ConsumerConfig(consistency=consistency, persist_every=persist_every)
        state, _ = await self.consumers.put(topic, consumer, config, start)
        return state

    async def ensure_consumer(self, topic: str, consumer: str) -> ConsumerState:
        """The state of a consumer. A missing one is created before the oldest record."""
        try:
            return self.consumers.state(topic, consumer)
        except ConsumerNotFound:
            return (await self.consumers.put(topic, consumer))[0]

    def consumer_state(self, topic: str, consumer: str) -> ConsumerState:
        """The state of a consumer. Raises TopicNotFound, ConsumerNotFound."""
        return self.consumers.state(topic, consumer)

    def list_consumers(self, topic: str, prefix: str = "", after: str = "", limit: int = 100) -> list[ConsumerState]:
        """Consumers with names after `after`, ordered by the bytes of the name."""
        return self.consumers.list(topic, prefix, after, limit)

    async def delete_consumer(self, topic: str, consumer: str) -> bool:
        """False when there is none. Durable on return."""
        self._unreported.pop(self._position_of(topic, consumer), None)
        return await self.consumers.delete(topic, consumer)

    async def commit(self, topic: str, consumer: str, seq: int) -> ConsumerState:
        """Record that everything up to `seq`, inclusive, is processed. Durable on return."""
        return await self.consumers.commit(topic, consumer, seq)

    async def seek(
        self,
        topic: str,
        consumer: str,
        *,
        seq: int | None = None,
        ts: int | None = None,
        to: Literal["earliest", "head"] | None = None,
    ) -> ConsumerState:
        """Move the cursor to one of `seq` (it counts as processed), `ts` (ms) and `to`. Durable on return."""
        self._unreported.pop(self._position_of(topic, consumer), None)
        return await self.consumers.seek(topic, consumer, seq=seq, ts=ts, to=to)

    def unread(self, topic: str, consumer: str) -> int:
        """How many live records are after the cursor; all of them if there is no such consumer."""
        try:
            return self.consumers.state(topic, consumer).unread
        except ConsumerNotFound:
            return self.state_of(self.topic(topic)).count


def _has_packed(topic: Topic) -> bool:
    return any(each.packed_bytes for each in topic.log.held.manifest.segments)
