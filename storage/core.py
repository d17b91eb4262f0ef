"""The inside of an engine: it opens a directory, holds the parts together and carries work between loop and threads.

Everything here belongs to the loop that called `start`, but for what is handed to `run_io` and the writer threads.
`storage.engine.Engine` is its public face; the parts (append, read, expiry, ...) know it by this type.
Source: architecture.md (the path of one record).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog

from storage.backup.backups import Backups
from storage.consumers.consumers import Consumers
from storage.consumers.reclaim import Reclaim
from storage.errors import NotReady, ShuttingDown, StorageError, TopicNotFound
from storage.log.encode import EncodedUnit, internal
from storage.log.fetch import WalFetcher
from storage.log.publisher import Publisher
from storage.log.reservation import Reservations
from storage.log.shard_log import ShardLog
from storage.log.together import Together
from storage.log.validation import check_address
from storage.log.writer import Shard
from storage.options import Options
from storage.platform.clock import Clock, EngineTime, SystemClock
from storage.platform.directory import LockText, ShardTrust, make_folders, open_format, take_lock
from storage.platform.filesystem import FileSystem, Lock
from storage.platform.io.choose import close_file_system, open_file_system
from storage.platform.posix import PosixFileSystem
from storage.platform.relief import Relief
from storage.platform.supervisor import Supervisor
from storage.queues.queues import Queues
from storage.recovery.recovery import Recovered, Report, load_snapshots, recover
from storage.recovery.resharding import clean_up, is_due, recorded_shards, reshard
from storage.recovery.start import announce_losses, end_leases_with_this_process, hand_back_reservations, start_rounds
from storage.routers.routers import Routers
from storage.segments.absorber import Absorber
from storage.segments.details import DetailsCache
from storage.segments.housekeeping import Housekeeping
from storage.segments.tiering.open import open_tier
from storage.segments.tiering.relocator import Relocator
from storage.segments.tiering.store import ColdStore
from storage.segments.upkeep import Upkeep
from storage.snapshot.snapshotter import Snapshotter
from storage.state.cache import TailCache
from storage.state.catalog import Catalog, Topic
from storage.state.log import Log
from storage.state.watermarks import LossRange
from storage.topics.admin import TopicAdmin
from storage.topics.expiry import Expiry
from storage.topics.producers import Producers
from storage.topics.states import States
from storage.tracing import Tracer

_log = structlog.get_logger("storage")


class EngineCore:
    """Made cold; `start` opens the directory."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: Options | None = None,
        *,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        threaded: bool = True,
        cold: ColdStore | None = None,
    ) -> None:
        """`cold` is used instead of the store that `options.cold_dir` names."""
        self.path: str = os.path.abspath(os.fspath(path))
        self.options = options or Options()
        self._own_fs = fs is None
        self.fs = fs or PosixFileSystem()
        self.clock = clock or SystemClock()
        self._threaded = threaded
        self._time = EngineTime(self.clock, lambda step: _log.warning("clock_step", step_ms=step))
        self._pool: ThreadPoolExecutor | None = None
        self._cold_pool: ThreadPoolExecutor | None = None
        self._cold_store = cold
        self._lock: Lock | None = None
        self.closing = False
        self._directories: list[str] = []
        self.cluster_id = ""
        self.ready = False
        self.recovery_progress = 0.0
        self._given_up = False
        self.report = Report()
        self.shards: list[Shard] = []
        #: Loss ranges by topic_id that a full disk had no room to announce: written before anything else of that log.
        self.debts: dict[int, list[LossRange]] = {}
        self.changing: dict[int, asyncio.Future[Any]] = {}
        self.pending_keys: dict[tuple[int, bytes], asyncio.Future[int | None]] = {}
        self.supervisor = Supervisor(self.clock)
        self.relief = Relief(self.clock)
        self.segments = DetailsCache(self)
        self.absorber = Absorber(self)
        self.housekeeping = Housekeeping(self)
        self.reclaim = Reclaim(self)
        self.relocator = Relocator(self)
        self.upkeep = Upkeep(self, self.absorber, self.reclaim.tick, self.housekeeping)
        self.reservations = Reservations(self)
        self.expiry = Expiry(self)
        self.admin = TopicAdmin(self)
        self.queues = Queues(self)
        self.routers = Routers(self)
        self.consumers = Consumers(self)
        self.producers = Producers(self)
        self.together = Together(self)
        self.states = States(self)
        self.backups = Backups(self)
        #: Called on the loop with (shard, errno) when a shard stops.
        self.on_shard_failed: Callable[[int, int | None], None] | None = None
        #: Is told what is moved from topic to topic; None: nobody.
        self.tracer: Tracer | None = None
        self._adopt(Catalog(1))

    def _adopt(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.cache = TailCache(self.options.tail_cache_bytes)
        self.publisher = Publisher(catalog, self.cache)
        self.publisher.on_jobs = self.queues.on_commit
        self.publisher.on_deleted = self.queues.on_deleted
        self.publisher.on_retention = self.reclaim.note
        catalog.on_consumed = self.reclaim.note
        self.routers.adopt(catalog)

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Lock, recover, open the writers. Raises OpenError, DataError, OSError; then nothing is held."""
        self.loop = asyncio.get_running_loop()
        if self._threaded:
            self._pool = ThreadPoolExecutor(self.options.io_threads, thread_name_prefix="storage-io")
            self._cold_pool = ThreadPoolExecutor(self.options.cold_threads, thread_name_prefix="storage-cold")
        if self._own_fs:
            self.fs = open_file_system(self.options.io_backend)
        try:
            recovered = await self.run_io(self._recover)
            self._adopt(recovered.catalog)
            self.store = recovered.store
            await self._open_writers(recovered)
            await announce_losses(self, recovered)
            await end_leases_with_this_process(self, recovered)
            await self.admin.align_all()
        except BaseException:
            self._given_up = True  # a recovery still under way ends at its next step, and nobody waits long for it
            await self._release()
            raise
        assert self._lock is not None
        boot = self.fs.boot_id()
        self._lock.write(LockText(pid=os.getpid(), boot=boot, came_up=bool(boot)).encode())
        self.report = recovered.report
        self.ready = True
        if self.failed_shards or self.debts:
            self._distrust_page_cache()  # with debts: the next start has to find the same losses again
        start_rounds(self)
        await self.queues.start()
        self.routers.start()
        self.consumers.start()
        if not self._threaded:
            self.supervisor.start("harden", self.options.disk_sync_ms / 1000, self._harden)

    def _recover(self) -> Recovered:
        begin = self.clock.monotonic_ns()
        self._lock = take_lock(self.fs, self.path, self.clock)
        if not self.fs.is_private(self.path):
            _log.warning("data_dir_open_to_others", data_dir=self.path)
        found = open_format(self.fs, self.path, self.options.wal_shards)
        self.cluster_id = found.cluster_id
        previous, boot = LockText.parse(self._lock.previous()), self.fs.boot_id()
        trusted = self.options.trust_page_cache and bool(boot) and previous.boot == boot
        loaded = load_snapshots(self.fs, self.path)
        recorded = recorded_shards(self.fs, self.path, found.shards, loaded)
        shards = self.options.wal_shards or recorded
        trust = ShardTrust(recorded, previous.ends if trusted else None)
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
            before_cutting=self._note,
            now_ms=self._time_from,
            progress=self._set_progress,
            cold=open_tier(self._cold_store, self.options, self.fs, self.path, self.cluster_id),
        )
        if is_due(self.fs, self.path, found.shards, loaded, shards):
            now_ms = self._time.now_ms()
            recovered = reshard(
                self.fs, self.path, self.options, recovered, shards, now_ms=now_ms, progress=self._set_progress
            )
        else:
            clean_up(self.fs, self.path, loaded)
        self._directories = make_folders(self.fs, self.path, shards)
        recovered.report.seconds = (self.clock.monotonic_ns() - begin) / 1e9
        return recovered

    def _note(self, trust: ShardTrust) -> None:
        """Tell the next start, should this one be killed, what it may believe of the page cache."""
        assert self._lock is not None
        boot = "" if trust.ends is None else self.fs.boot_id()
        self._lock.write(LockText(pid=os.getpid(), boot=boot, ends=trust.ends or ()).encode())

    def _time_from(self, stored_ms: int) -> int:
        self._time.raise_to(stored_ms)
        return self._time.now_ms()

    def _set_progress(self, fraction: float) -> None:
        if self._given_up:
            raise ShuttingDown()
        self.recovery_progress = fraction

    async def _open_writers(self, recovered: Recovered) -> None:
        self.wal_files = WalFetcher(self.fs, self._directories, self.run_io)
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
        found = (recovered.kept, recovered.next_snapshot, recovered.sections)
        self.snapshotter: Snapshotter = await self.run_io(Snapshotter, self, *found)  # it looks at all topics

    def begin_shutdown(self) -> None:
        """Whoever waits for records or jobs is told at once; everything else goes on until `close`."""
        self.publisher.shut_down()
        self.queues.begin_shutdown()

    async def close(self) -> None:
        """Finish what is under way, snapshot, release the directory. After a failed shard: not a clean stop."""
        if self.closing:
            return
        self.closing = True
        self.begin_shutdown()
        await self.backups.stop()
        await self.supervisor.stop()
        await self.queues.stop()
        await self.routers.stop()
        await self.consumers.stop()
        await self.upkeep.stop(ready=self.ready)
        await self.segments.close()
        if self.ready:
            try:
                await hand_back_reservations(self)
                await self.snapshotter.take(clean=not self.failed_shards)
            except (StorageError, OSError) as error:
                _log.warning("final_snapshot_failed", error=str(error))
        await self._release()

    async def _release(self) -> None:
        self.ready = False
        await self.relocator.settled()
        await self.absorber.copying.close()  # whatever came before: the lock is held as long as it lives
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
        if self._pool is not None:
            self._pool.shutdown(wait=True)  # nothing of ours may touch files that the next process takes for its own
            self._pool = None
        if self._cold_pool is not None:
            self._cold_pool.shutdown(wait=True, cancel_futures=True)
            self._cold_pool = None
        if self._own_fs:
            close_file_system(self.fs)
        if self._lock is not None:
            self._lock.release()
            self._lock = None

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
        """Let the next start know that what it reads may not be what was written."""
        if self._lock is None:
            return
        try:
            self._lock.write(LockText(pid=os.getpid(), came_up=True).encode())
        except OSError as error:  # the disk that has just failed: everybody else must hear of it all the same
            _log.error("lock_not_written", error=str(error))

    @property
    def failed_shards(self) -> list[tuple[int, int | None]]:
        """(shard, errno) of each shard that has stopped."""
        return [(shard.index, shard.log.failed.errno) for shard in self.shards if shard.log.failed is not None]

    def check_open(self) -> None:
        """Raises NotReady, ShuttingDown."""
        if not self.ready:
            raise ShuttingDown() if self.closing else NotReady()
        if self.closing:
            raise ShuttingDown()

    # -- for the parts -------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Engine time: never goes backwards."""
        return self._time.now_ms()

    def monotonic_ms(self) -> int:
        return self.clock.monotonic_ns() // 1_000_000

    @property
    def lock_descriptor(self) -> int | None:
        """By which a process of our own holds the directory too; None where none may be at its files."""
        return None if self._pool is None or self._lock is None else self._lock.descriptor()

    def wal_directory(self, shard: int) -> str:
        return self._directories[shard]

    def shard_is_open(self, index: int) -> bool:
        """Whether new topics may go to this shard."""
        return self.shards[index].log.failed is None or bool(len(self.failed_shards) == len(self.shards))

    async def run_io(self, job: Callable[..., Any], *arguments: Any) -> Any:
        """Run a blocking job on the I/O pool (in deterministic tests: here and now)."""
        if self._pool is None:
            return job(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._pool, job, *arguments)

    async def run_cold(self, job: Callable[..., Any], *arguments: Any) -> Any:
        """The same on the pool of those who may wait for the cold store, and for nobody else."""
        if self._cold_pool is None:
            return job(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._cold_pool, job, *arguments)

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
        submission = internal(
            encoded, topic_id, self.now_ms(), frees=frees, generation=generation, needs_sync=needs_sync
        )
        return shard.submit(submission)

    def topic(self, name: str) -> Topic:
        """The partition with that address, readable. Raises TopicNotFound, InvalidRequest."""
        topic = self.catalog.topics.get(name)
        if topic is None or topic.provisional:
            check_address(name)
            raise TopicNotFound(name)
        return topic


def void(_: object) -> None:
    """Drops what a job's submission returns: its outcome is looked at where the job's work is needed."""
