"""The engine: a data directory opened by one process, owned by one event loop. It ties the parts together.

    async with Engine.open("/var/lib/topics") as engine:
        await engine.append("orders", [NewRecord(msgspec.Raw(b'{"id":1}'))])
        result = await engine.read("orders", ReadQuery())

All methods belong to the loop that started the engine. What blocks runs on the writer threads and the I/O pool.
Source: storage.md; architecture.md (the path of one record).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import structlog

from storage.append import Write
from storage.cache import TailCache
from storage.catalog import Catalog, Topic
from storage.clock import Clock, EngineTime, SystemClock
from storage.config import TopicConfig
from storage.directory import lock_text, make_folders, open_format, page_cache_kept, take_lock
from storage.encode import EncodedUnit
from storage.errors import NotReady, ShuttingDown, StorageError, TopicNotFound
from storage.expiry import Expiry
from storage.filesystem import FileSystem, Lock
from storage.log import Log
from storage.metrics import Family, collect
from storage.options import Options
from storage.posix import PosixFileSystem
from storage.publisher import Publisher
from storage.read import Reader
from storage.records import (
    Appended,
    DeletedRecords,
    NewRecord,
    ReadQuery,
    ReadResult,
    StoredRecord,
    TagMatch,
    TopicState,
)
from storage.recovery import Recovered, Report, recover
from storage.reservation import Reservations
from storage.snapshotter import Snapshotter
from storage.start import announce_losses, hand_back_reservations
from storage.supervisor import Supervisor
from storage.topic_admin import TopicAdmin
from storage.validation import check_topic_name
from storage.wal.fetch import WalFetcher
from storage.wal.shard_log import ShardLog
from storage.wal.submission import Submission
from storage.wal.writer import Shard

_log = structlog.get_logger("storage")


class Engine:
    """See the module. Made cold; `start` opens the directory."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: Options | None = None,
        *,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        threaded: bool = True,
    ) -> None:
        self.path = os.path.abspath(os.fspath(path))
        self.options = options or Options()
        self.fs = fs or PosixFileSystem()
        self.clock = clock or SystemClock()
        self._threaded = threaded
        self._time = EngineTime(self.clock, lambda step: _log.warning("clock_step", step_ms=step))
        self._pool: ThreadPoolExecutor | None = None
        self._lock: Lock | None = None
        self._closing = False
        self._directories: list[str] = []
        self.cluster_id = ""
        self.ready = False
        self.recovery_progress = 0.0
        self.report = Report()
        self.shards: list[Shard] = []
        self.changing: dict[int, asyncio.Future[Any]] = {}
        self.pending_keys: dict[tuple[int, bytes], asyncio.Future[int | None]] = {}
        self.supervisor = Supervisor(self.clock)
        self.reservations = Reservations(self)
        self.expiry = Expiry(self)
        self._admin = TopicAdmin(self)
        self._reader = Reader(self)
        #: Called on the loop with (shard, errno) when a shard stops.
        self.on_shard_failed: Callable[[int, int | None], None] | None = None
        self._adopt(Catalog(1))

    def _adopt(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.cache = TailCache(self.options.tail_cache_bytes)
        self.publisher = Publisher(catalog, self.cache)

    # -- life --------------------------------------------------------------------------------------------------------

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: str | os.PathLike[str], options: Options | None = None, **seams: Any
    ) -> AsyncIterator[Engine]:
        """Start an engine for the length of a `with` block and close it cleanly behind it."""
        engine = cls(path, options, **seams)
        await engine.start()
        try:
            yield engine
        finally:
            await engine.close()

    async def start(self) -> None:
        """Lock, recover, open the writers. Raises OpenError, DataError, OSError; then nothing is held."""
        if self._threaded:
            self._pool = ThreadPoolExecutor(self.options.io_threads, thread_name_prefix="storage-io")
        try:
            recovered = await self.run_io(self._recover)
            self._adopt(recovered.catalog)
            await self._open_writers(recovered)
            await announce_losses(self, recovered)
        except BaseException:
            await self._release()
            raise
        assert self._lock is not None
        self._lock.write(lock_text(os.getpid(), self.fs.boot_id()))
        self.report = recovered.report
        self.ready = True
        if self.failed_shards:
            self._lock.write(lock_text(os.getpid(), "failed"))
        interval_s = self.options.expiry_interval_ms / 1000
        self.supervisor.start("expiry", interval_s, self.expiry.tick)
        self.supervisor.start("snapshot", min(1.0, self.options.snapshot_interval_ms / 1000), self.snapshotter.tick)
        if not self._threaded:
            self.supervisor.start("harden", self.options.disk_sync_ms / 1000, self._harden)

    def _recover(self) -> Recovered:
        begin = self.clock.monotonic_ns()
        self._lock = take_lock(self.fs, self.path)
        found = open_format(self.fs, self.path, self.options.wal_shards)
        self.cluster_id = found.cluster_id
        trusted = self.options.trust_page_cache and page_cache_kept(self._lock.previous(), self.fs.boot_id())
        self._lock.write(lock_text(os.getpid()))
        self._directories = make_folders(self.fs, self.path, found.shards)
        recovered = recover(
            self.fs,
            self.path,
            self.options,
            found.shards,
            trusted=trusted,
            now_ms=self._time_from,
            progress=self._set_progress,
        )
        recovered.report.seconds = (self.clock.monotonic_ns() - begin) / 1e9
        return recovered

    def _time_from(self, stored_ms: int) -> int:
        self._time.raise_to(stored_ms)
        return self._time.now_ms()

    def _set_progress(self, fraction: float) -> None:
        self.recovery_progress = fraction

    async def _open_writers(self, recovered: Recovered) -> None:
        spawn: Callable[[Callable[[], None]], object] = self._pool.submit if self._pool else lambda job: job()
        for index, directory in enumerate(self._directories):
            box: list[Shard] = []
            log = ShardLog(
                self.fs,
                directory,
                index,
                self.options,
                self.clock,
                lambda group, box=box: box[0].post(group),
                lambda job: void(spawn(job)),
            )
            await self.run_io(log.open, recovered.next_files[index])
            shard = Shard(
                index,
                log,
                self.options,
                self.clock,
                self.publisher.settled,
                self._shard_failed,
                threaded=self._threaded,
            )
            box.append(shard)
            self.shards.append(shard)
            shard.start()
        self.wal_files = WalFetcher(self.fs, self._directories, self.run_io)
        self.snapshotter = Snapshotter(self, recovered.kept, recovered.next_snapshot, recovered.sections)

    def begin_shutdown(self) -> None:
        """Whoever waits for records is told at once; everything else goes on until `close`."""
        self.publisher.shut_down()

    async def close(self) -> None:
        """Finish what is under way, snapshot, release the directory. After a failed shard: not a clean stop."""
        if self._closing:
            return
        self._closing = True
        self.begin_shutdown()
        await self.supervisor.stop()
        if self.ready:
            try:
                await hand_back_reservations(self)
                await self.snapshotter.take(clean=not self.failed_shards)
            except (StorageError, OSError) as error:
                _log.warning("final_snapshot_failed", error=str(error))
        await self._release()

    async def _release(self) -> None:
        self.ready = False
        for shard in self.shards:
            try:
                await shard.stop()
            except OSError as error:
                _log.error("shard_close_failed", shard=shard.index, error=str(error))
        if self.shards:
            self.wal_files.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None

    async def _harden(self) -> None:
        for shard in self.shards:
            shard.harden()

    def _shard_failed(self, shard: Shard) -> None:
        number = shard.log.failed.errno if shard.log.failed else None
        _log.error("shard_failed", shard=shard.index, errno=number)
        if self._lock is not None:
            self._lock.write(lock_text(os.getpid(), "failed"))
        self.publisher.roll_back(shard)
        if self.on_shard_failed is not None:
            self.on_shard_failed(shard.index, number)

    @property
    def failed_shards(self) -> list[tuple[int, int | None]]:
        """(shard, errno) of each shard that has stopped."""
        return [(shard.index, shard.log.failed.errno) for shard in self.shards if shard.log.failed is not None]

    # -- topics ------------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic:
        """The topic of that name, readable. Raises TopicNotFound, InvalidRequest."""
        check_topic_name(name)
        topic = self.catalog.topics.get(name)
        if topic is None or topic.provisional:
            raise TopicNotFound(name)
        return topic

    def state_of(self, topic: Topic) -> TopicState:
        """A topic's figures now."""
        log = topic.log
        return TopicState(
            topic=topic.name,
            topic_id=topic.topic_id,
            epoch=log.epoch,
            config=topic.config,
            head_seq=log.head,
            next_seq=log.head + 1,
            earliest_seq=log.earliest_seq,
            evict_floor=log.marks.evict_floor,
            count=log.count,
            bytes=log.bytes,
            last_write_ts=log.last_write_ts,
            last_read_ts=topic.last_read_ts,
        )

    def state(self, name: str) -> TopicState:
        """A topic's figures now. Raises TopicNotFound."""
        return self.state_of(self.topic(name))

    def topics(self, prefix: str = "", after: str = "", limit: int = 100) -> list[TopicState]:
        """Topics by name, bytewise; names behind `after`."""
        names = sorted(name for name in self.catalog.topics if name.startswith(prefix) and name > after)
        shown = (self.catalog.topics[name] for name in names)
        return [self.state_of(topic) for topic in shown if not topic.provisional][:limit]

    async def put_topic(self, name: str, config: TopicConfig | None = None) -> tuple[TopicState, bool]:
        """Make the topic or replace its config. Durable on return. (state, whether it was made)."""
        self._check_open()
        created = await self._admin.put(name, config or TopicConfig())
        return self.state_of(self.topic(name)), created

    async def delete_topic(self, name: str, if_empty: bool = False) -> bool:
        """Delete the topic and all its records; False when absent. Raises TopicNotEmpty."""
        self._check_open()
        return await self._admin.delete(name, if_empty=if_empty)

    # -- records -----------------------------------------------------------------------------------------------------

    async def append(
        self,
        name: str,
        records: Sequence[NewRecord],
        *,
        node: str | None = None,
        idempotency_key: str | None = None,
        idempotency_strict: bool = False,
        create: bool = True,
        config: TopicConfig | None = None,
        expected_seq: int | None = None,
    ) -> Appended:
        """Append 1 to 10000 records atomically. On return they are as durable as the topic's class says.

        A cancelled call may still take effect. Raises RequestError and Unavailable subclasses; of these only
        StorageFailed leaves open whether the records are there.
        """
        self._check_open()
        return await Write(
            self,
            name,
            records,
            node=node,
            key=idempotency_key,
            strict=idempotency_strict,
            create=create,
            config=config,
            expected_seq=expected_seq,
        ).run()

    async def read(self, name: str, query: ReadQuery) -> ReadResult:
        """Records behind a cursor, and what was lost before them. Raises TopicNotFound, RecordCorrupt."""
        self._check_started()
        return await self._reader.read(self.topic(name), query)

    async def read_one(self, name: str, seq: int) -> StoredRecord:
        """One record. Raises RecordNotFound (detail.reason), TopicNotFound, RecordCorrupt."""
        self._check_started()
        return await self._reader.read_one(self.topic(name), seq)

    async def wait_beyond(self, name: str, seq: int, wait_ms: float) -> bool:
        """True as soon as head_seq > seq, False after `wait_ms`. Raises TopicNotFound, ShuttingDown."""
        self._check_started()
        return await self.publisher.wait(self.topic(name), seq, wait_ms)

    async def delete_records(
        self, name: str, before_seq: int | None = None, match: TagMatch | None = None
    ) -> DeletedRecords:
        """Delete records below a seq, or by tag, or both at once; silent and permanent."""
        self._check_open()
        return await self._admin.delete_records(name, before_seq, match)

    def touch(self, name: str) -> None:
        """Note that somebody has read the topic."""
        self.topic(name).last_read_ts = self.now_ms()

    def metrics(self) -> list[Family]:
        """Everything the engine counts, as it is now."""
        return collect(self)

    # -- for the parts -------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Engine time: never goes backwards."""
        return self._time.now_ms()

    def monotonic_ms(self) -> int:
        return self.clock.monotonic_ns() // 1_000_000

    def wal_directory(self, shard: int) -> str:
        return self._directories[shard]

    def shard_is_open(self, index: int) -> bool:
        """Whether new topics may go to this shard."""
        return self.shards[index].log.failed is None or bool(len(self.failed_shards) == len(self.shards))

    def check_topic_limit(self) -> None:
        self._admin.check_limit()

    def provisional_topic(self, name: str, config: TopicConfig) -> tuple[Topic, Any]:
        return self._admin.provisional(name, config)

    async def run_io(self, job: Callable[..., Any], *arguments: Any) -> Any:
        """Run a blocking job on the I/O pool (in deterministic tests: here and now)."""
        if self._pool is None:
            return job(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._pool, job, *arguments)

    def submit_controls(
        self, log: Log, encoded: EncodedUnit, *, frees: bool = False, generation: int = -1, needs_sync: bool = True
    ) -> asyncio.Future[int | None]:
        """Enqueue control frames of a log. Internal frames wait in the queue's kept tenth instead of being refused."""
        return self.submit_unit(
            self.shards[log.shard], log.topic_id, encoded, frees=frees, generation=generation, needs_sync=needs_sync
        )

    def submit_unit(
        self,
        shard: Shard,
        topic_id: int,
        encoded: EncodedUnit,
        *,
        frees: bool = False,
        generation: int = -1,
        needs_sync: bool = True,
    ) -> asyncio.Future[int | None]:
        """Enqueue a unit that assigns no seqs."""
        submission = Submission(
            encoded.unit,
            encoded.payload,
            frames=encoded.frames,
            topic_id=topic_id,
            ts=self.now_ms(),
            needs_sync=needs_sync,
            frees=frees,
            internal=True,
            generation=generation,
        )
        return shard.submit(submission)

    def publish_in_memory(self, log: Log, encoded: EncodedUnit, row: int) -> None:
        """Publish a write of an ephemeral topic."""
        self.publisher.in_memory(log, encoded, row)

    def _check_started(self) -> None:
        if not self.ready:
            raise ShuttingDown() if self._closing else NotReady()

    def _check_open(self) -> None:
        self._check_started()
        if self._closing:
            raise ShuttingDown()


def void(_: object) -> None:
    """Drops what a job's submission returns: its outcome is looked at where the job's work is needed."""
