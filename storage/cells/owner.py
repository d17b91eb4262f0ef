"""Owns a cell in a bucket: takes it over, runs its engine on what is there, and puts bases there.

    owner = CellOwner(bucket, "cell-00", directory, Candidate("node-1", nonce))
    await owner.start()                        # waits until the present owner is gone
    await owner.engine.append("events", {"n": 1})
    ...
    await owner.close()

`owner.engine` is there before the start, so that other parts of a process can be built on it.

What the engine acknowledges behind a sync is in the bucket: another process on another machine finds it. So the
directory need not outlive the process (see `storage.cells.local`).

When another process has taken the cell over, or the store has not answered for too long, the log of the engine stops
as after a failed sync, and `on_lost` is called. `may_answer` says whether an answer that was computed may be sent: an
owner that cannot reach the store any more must not answer from memory, since another process may own the cell by then.

Threads: that of the log's writer creates slots, one of its own writes the signs of life and begins a new generation
when the owner's time is over; both hold `_slots_lock` for it.

Source: docs/reference/bucket.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import errno
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import msgspec
import structlog

from storage.backup import Damage, DirectoryDamaged, barrier
from storage.backup.bases import BaseTarget, are_damaged
from storage.bucket import (
    ANYONE,
    COLD_FORMAT,
    IN_BUCKET,
    TTL_S,
    Base,
    BaseMissing,
    BaseTaken,
    Body,
    Bucket,
    Candidate,
    ClockWrong,
    DamagedSlot,
    Driver,
    Fenced,
    GivenUp,
    Manifest,
    Named,
    OwnTime,
    RequestTimes,
    Seal,
    SlotFileSystem,
    Slots,
    Steps,
    StoreBroken,
    Taken,
    Trimmer,
    Unanswered,
    begin_cell,
    check_clock,
    check_slot,
    delete,
    forget_signs,
    format_here,
    get_object,
    get_piece,
    get_range_patiently,
    newest_head,
    put_base,
    put_object,
    read_base,
    show_first,
    show_signs,
    sign,
    take_over,
)
from storage.cells.bucket_metrics import collect
from storage.cells.local import LocalDirectory
from storage.engine import Engine
from storage.errors import MetadataLost, StorageError
from storage.log import split
from storage.options import Options
from storage.platform import Clock, PosixFileSystem, SystemClock, UnsyncedFileSystem, new_format
from storage.segments import SegmentError, names
from storage.segments.tiering import ColdMissing, ColdUnavailable, NamedObject, NamedTier
from storage.telemetry import Family

_log = structlog.get_logger("storage")

#: A base is put when so many slots, bytes or units of the log are behind the newest one. A takeover reads the slots and
#: the bytes, and applies the units: a lease or an ack of one job takes 17 µs
#: (docs/adr/0155-a-base-counts-units-and-not-frames.md).
BASE_SLOTS: Final = 1000
BASE_BYTES: Final = 256 << 20
BASE_UNITS: Final = 200_000
#: How often it is looked at whether a base is due, and whether the owner's time is over.
LOOK_S: Final = 0.25
#: Slots are created at most this often, if `Options.put_interval_ms` says nothing else.
PUT_INTERVAL_MS: Final = 100
#: Objects that nothing leads to are looked for this often, and so many are deleted at a time. If there are more, it is
#: looked again after a minute: a listing may be late.
SWEEP_S: Final = 86_400.0
SWEEP_AGAIN_S: Final = 60.0
SWEEP_PAGE: Final = 1000
#: How often a slot is read back, and the clock compared.
CHECK_S: Final = 60.0
#: Some bytes of an object are asked for so long.
_READ_S: Final = 30.0
#: A clean stop waits no longer for the store.
CLOSE_S: Final = 20.0


class State(enum.StrEnum):
    """What an owner does."""

    NEW = "new"
    #: The cell has a living owner.
    WAITING = "waiting"
    #: It takes the cell over, and makes the directory of what is in the bucket.
    TAKING = "taking"
    #: The engine recovers: see `Engine.recovery_progress`.
    RECOVERING = "recovering"
    OWNER = "owner"
    #: It answers nothing any more, and stops.
    CLOSING = "closing"
    LOST = "lost"
    CLOSED = "closed"


class CellOwner:
    """See the module. All methods belong to the event loop, except those that say otherwise."""

    def __init__(
        self,
        bucket: Bucket,
        cell: str,
        root: str,
        candidate: Candidate,
        *,
        options: Options | None = None,
        clock: Clock | None = None,
        on_lost: Callable[[Exception], None] = lambda _: None,
        ttl_s: float = TTL_S,
    ) -> None:
        """Makes no request. `root`: the local directory, whose content is replaced. `on_lost` is called on the loop,
        once. `ttl_s` is the same for all processes that may own the cell."""
        self._cell = cell
        self._root = root
        self._clock = clock or SystemClock()
        self.times = RequestTimes()
        self._driver = Driver(bucket, self._clock, self.times)
        self._signs = Driver(bucket, self._clock, self.times)
        self._on_lost = on_lost
        self._candidate = candidate
        self._ttl_s = ttl_s
        self._time = OwnTime(ttl_s, ttl_s / 5)
        #: Held during a request.
        self._slots_lock = threading.Lock()
        #: Of what follows; never held during a request, so that the loop may take it.
        self._facts_lock = threading.Lock()
        #: Every slot in front of it is in what follows.
        self._known_end = 0
        self._seals: set[int] = set()
        self._recent_seals: list[Seal] = []
        #: (slot, file and offset of its body) behind the redo slot of the newest base, and their bytes.
        self._behind: list[tuple[int, tuple[int, int]]] = []
        self._behind_bytes = 0
        #: Data slots since the newest base; before this process has put one, those behind it. What the next base cannot
        #: leave behind does not count: a log that cannot be flushed keeps the redo slot where it is.
        self._new_slots = 0
        #: `_units` as of the newest base.
        self._units_before = 0
        self._directory = LocalDirectory(root, cell, candidate.nonce, self._clock)
        self._objects = BucketObjects(self._driver)
        #: Where the log of the directory goes on behind the last slot; None: nowhere.
        self._tail: tuple[int, int] | None = None
        #: The takeover is over.
        self._taken = threading.Event()
        #: What is fetched before.
        self._fetching: asyncio.Task[None] | None = None
        self._attempts = 0
        #: Objects that bases without a known outcome have stored since the newest base. The next one names them again.
        self._stored: dict[str, Named] = {}
        self._trimming = asyncio.Lock()
        #: One base is put at a time.
        self._basing = asyncio.Lock()
        self._closing = False
        self._tasks: list[asyncio.Task[None]] = []
        self.state = State.NEW
        #: Bases put, objects deleted that bases superseded, and objects deleted that nothing led to, since the start.
        self.bases = 0
        #: `close` has given the cell away.
        self.released = False
        self.deleted = 0
        self.swept = 0
        self._next_sweep_ns = 0
        #: When this process put a base last, or took the cell over.
        self._base_put_s: float | None = None
        #: Bytes that this process has put into slots.
        self.slot_bytes = 0
        #: How far the wall clock is ahead of the store's, at the last comparison.
        self.clock_off_s = 0.0
        options = options or Options()
        self._wants_cold = options.cold_dir == IN_BUCKET
        #: Segments that are only in the bucket.
        self._tier = NamedTier(self._read_cold, is_open=False)
        self._cold_timeout_s = options.cold_timeout_s
        wanted = msgspec.structs.replace(
            options,
            cold_dir="",
            wal_shards=1,
            segment_pack_bytes=0,
            put_interval_ms=PUT_INTERVAL_MS if options.put_interval_ms is None else options.put_interval_ms,
            sync_leases=True,
            plain_segments=True,
        )
        files = SlotFileSystem(UnsyncedFileSystem(), root, self)
        self.engine = Engine(root, wanted, fs=files, clock=self._clock, tier=self._tier)

    async def start(self, *, wait: bool = True) -> bool:
        """Become the owner of a cell that was begun, and start its engine. False: its owner is alive (without `wait`).

        Once only. Raises ClockWrong, NeverBegun, MetadataLost, BaseMissing, DamagedSlot, GivenUp, and what the start of
        an engine raises; Unanswered, without `wait`. Nothing is held then.
        """
        self._loop = asyncio.get_running_loop()
        self.state = State.WAITING
        try:
            taken = await self._take_over(wait=wait) if await self._lock_directory(wait=wait) else None
            if taken is None:
                await self._stop()
                return False
            self.state = State.TAKING
            self._adopt(taken)
            self._run_signs()
            if self._fetching is not None:
                await asyncio.shield(self._fetching)  # if this is cancelled, its thread goes on: `_stop` waits for it
            await asyncio.to_thread(self._make_directory, taken)
            self.state = State.RECOVERING
            self._directory.release()
            await self.engine.start()
            if self._tail is not None:
                await asyncio.to_thread(self._put_rest)
        except BaseException:
            await self._stop()
            raise
        works = {
            "bases": self._put_bases(),
            "checks": self._keep_checking(),
            "cold": self._open_tier(),
            "signs-of-others": self._forget(taken.former),
        }
        for name, work in works.items():
            self._tasks.append(asyncio.create_task(work, name=f"storage-{name}"))
        if self.state is State.RECOVERING:
            self.state = State.OWNER
        return True

    async def _lock_directory(self, *, wait: bool) -> bool:
        while not await asyncio.to_thread(self._directory.lock):
            if not wait:
                return False
            await self._clock.sleep(LOOK_S)
        return True

    async def _take_over(self, *, wait: bool) -> Taken | None:
        self._fetching = asyncio.create_task(asyncio.to_thread(self._fetch_ahead))
        try:
            return await self._take(wait=wait)
        finally:
            # It ends behind the pieces that are under way. On a slow line, others would take a cell over again whose
            # owner waited for that before it showed a sign of life.
            self._taken.set()

    async def _take(self, *, wait: bool) -> Taken | None:
        await self._check_own_clock(wait=wait)
        candidate = msgspec.structs.replace(self._candidate, directory=self._candidate.nonce)
        while True:
            steps = take_over(self._cell, candidate, self._directory.is_locked_as, self._ttl_s, wait=wait)
            try:
                taken = await asyncio.to_thread(self._driver.run, steps)
            except Unanswered:
                if not wait or self._closing:
                    raise
                await self._clock.sleep(LOOK_S)
                continue
            if taken is not None or not wait:
                return taken

    async def _check_own_clock(self, *, wait: bool) -> None:
        def steps() -> Steps[float]:
            yield from show_first(self._candidate.node, self._candidate.nonce)
            return (yield from check_clock(sign(self._candidate.nonce), self._wall_s))

        while True:
            try:
                self.clock_off_s = await asyncio.to_thread(self._driver.run, steps())
                return
            except Unanswered:
                if not wait or self._closing:
                    raise
            await self._clock.sleep(LOOK_S)

    def _wall_s(self) -> float:
        return self._clock.wall_ns() / 1e9

    # -- the directory: on other threads -------------------------------------------------------------------------------

    def _fetch_ahead(self) -> None:
        """While the cell has another owner, fetch what its bases name, so that little is left for the takeover."""
        number = -1
        while not self._taken.wait(LOOK_S):
            try:
                head = self._driver.run(newest_head(self._cell, max(0, number)))
                if head is not None and head.number > number:
                    base = self._driver.run(read_base(self._cell, head))
                    self._directory.fetch(base, self._objects, self._taken.is_set)
                    number = head.number
            except (Unanswered, BaseMissing, OSError):
                continue  # the takeover fetches it, or says what is wrong

    def _make_directory(self, taken: Taken) -> None:
        self._tail = self._directory.tail_behind(taken)
        if self._tail is None:
            self._directory.make(taken, self._objects)
        else:
            self._directory.drop_fetched()
        self._name_segments(taken.base)

    def _name_segments(self, base: Base) -> None:
        """Read cold segments from the objects of this base."""
        segments = self._directory.segments_of(base, self._objects)
        self._tier.name({id: NamedObject(named.key, named.size) for id, named, _ in segments})

    def _read_cold(self, key: str, offset: int, size: int) -> bytes:
        """As `storage.segments.tiering.NamedTier` wants it."""
        try:
            data = self._driver.run(get_range_patiently(key, offset, size, self._cold_timeout_s))
        except Unanswered as error:
            raise ColdUnavailable(key, str(error)) from None
        if data is None:
            raise ColdMissing(key)
        return data

    def _put_rest(self) -> None:
        """The end of the log that the process before has left in the directory, unless a write came first."""
        active, _ = split(self.engine.shards[0].log.end_lsn)
        with self._slots_lock:
            self._renew()
            self._put_tail(active)

    def _put_tail(self, before_file: int) -> None:
        """With the lock of the slots."""
        if self._tail is not None:
            for body in self._directory.read_tail(self._tail, before_file):
                self._append(body)
            self._tail = None

    def _adopt(self, taken: Taken) -> None:
        self._time.sealed(taken.sealed_at)
        self._slots = Slots(self._cell, taken.seal)
        self._known_end = taken.seal.slot + 1
        self._seals = set(taken.seals)
        self._recent_seals = [*taken.recent_seals]
        self._base = taken.base
        self._base_put_s = self._clock.monotonic_ns() / 1e9
        self._trimmer = Trimmer(self._cell, taken.base)
        self._behind = [(slot.number, (slot.file, slot.offset)) for slot in taken.log]
        self._behind_bytes = sum(len(slot.body) for slot in taken.log)
        self._new_slots = len(self._behind)

    # -- slots: on the thread of the log's writer ----------------------------------------------------------------------

    def append(self, body: Body) -> None:
        """As `storage.bucket.log_file.SlotSink`."""
        with self._slots_lock:
            self._renew()
            self._put_tail(body.file)
            self._append(body)

    def _append(self, body: Body) -> None:
        try:
            number = self._driver.run(self._slots.append(body.file, body.offset, body.data))
        except (Fenced, GivenUp, Unanswered, DamagedSlot) as error:
            self._lose(error)
            raise OSError(errno.EIO, str(error)) from error
        with self._facts_lock:
            self._behind.append((number, (body.file, body.offset)))
            self._behind_bytes += len(body.data)
            self._new_slots += 1
            self.slot_bytes += len(body.data)
            self._known_end = number + 1

    def _lose(self, error: Exception) -> None:
        self._time.close()
        if not self._closing and self.state is not State.LOST:
            self.state = State.LOST
            self._loop.call_soon_threadsafe(self._on_lost, error)

    # -- time: on the thread of the signs ------------------------------------------------------------------------------

    def may_answer(self) -> bool:
        """Whether an answer that was computed may be sent."""
        return self._tail is None and self._time.is_open(self._clock.monotonic_ns() / 1e9)

    def _run_signs(self) -> None:
        for name, work in (("signs", self._show), ("own-time", self._keep_time)):
            threading.Thread(target=work, name=f"cell-{name}", daemon=True).start()

    def _show(self) -> None:
        try:
            candidate, every_s = self._candidate, self._ttl_s / 5
            self._signs.run(show_signs(candidate.node, candidate.nonce, [self._time], every_s))
        except Unanswered:
            return  # closed

    def _keep_time(self) -> None:
        """Begin a new generation whenever the owner's time is over."""
        while not self._signs.closed_within(self._ttl_s / 20):
            if not self._time.expired(self._clock.monotonic_ns() / 1e9):
                continue
            with self._slots_lock:
                try:
                    self._renew()
                except OSError:
                    return

    def _renew(self) -> None:
        """Begin a new generation if the owner's time is over. With the lock of the slots. Raises OSError; the cell is
        lost then."""
        if not self._time.expired(self._clock.monotonic_ns() / 1e9):
            return
        try:
            sent_at = self._driver.run(self._slots.seal_again())
        except (Fenced, GivenUp, Unanswered, DamagedSlot) as error:
            self._lose(error)
            raise OSError(errno.EIO, str(error)) from error
        with self._facts_lock:
            self._seals.add(self._slots.seal.slot)
            self._recent_seals.append(self._slots.seal)
            self._known_end = self._slots.seal.slot + 1
        self._time.sealed(sent_at)

    # -- checks: on the loop -------------------------------------------------------------------------------------------

    async def _keep_checking(self) -> None:
        while True:
            await self._clock.sleep(CHECK_S)
            try:
                await self.check()
            except Exception as error:  # for example, no thread can be started
                _log.warning("check_failed", cell=self._cell, exc_info=error)

    async def _open_tier(self) -> None:
        """Let segments become cold, if that is wanted, once the cluster is finalized for it: programs that read only
        the format before do not start on a cell with cold segments."""
        warned = False
        while self._wants_cold:
            with contextlib.suppress(Unanswered, MetadataLost):
                self._tier.is_open = await asyncio.to_thread(self._driver.run, format_here()) >= COLD_FORMAT
                if self._tier.is_open:
                    return
                if not warned:
                    _log.warning("cold_needs_finalize", cell=self._cell)
                warned = True
            await self._clock.sleep(CHECK_S)

    async def _forget(self, former: set[str]) -> None:
        """Delete the signs of the owners before, which were killed or ended without a reason to do it themselves."""
        while True:
            try:
                return await asyncio.to_thread(self._driver.run, forget_signs(former))
            except Unanswered:
                await self._clock.sleep(CHECK_S)

    async def check(self) -> None:
        """Read a slot of this process back, and compare the clock with the store's. The cell is lost if something is
        wrong."""
        if not self.may_answer():
            return
        with self._facts_lock:
            number, seal = self._known_end - 1, self._slots.seal
        try:
            await asyncio.to_thread(self._driver.run, check_slot(self._cell, number, seal))
            # A sign is put every second, while the store answers.
            steps = check_clock(sign(self._candidate.nonce), self._wall_s, self._ttl_s)
            self.clock_off_s = await asyncio.to_thread(self._driver.run, steps)
        except Unanswered:
            return
        except (StoreBroken, ClockWrong) as error:
            if not self.may_answer() or number < self._trimmer.log_from:
                return  # another process may own the cell by now, and delete slots; or this one has deleted it
            _log.error("cell_refused", cell=self._cell, error=str(error))
            self._lose(error)

    # -- bases: on the loop --------------------------------------------------------------------------------------------

    async def _put_bases(self) -> None:
        while True:
            await self._clock.sleep(LOOK_S)
            try:
                if self._is_base_due():
                    await self.put_base()
                await self.trim()
                await self._sweep_when_due()
            except DirectoryDamaged:
                return  # the process ends
            except Exception as error:  # also one that nobody expects, such as MemoryError: bases must go on
                expected = isinstance(error, StorageError | Unanswered | BaseTaken | BaseMissing | OSError)
                _log.warning(
                    "base_failed", cell=self._cell, error=type(error).__name__, exc_info=None if expected else error
                )
                await self._clock.sleep(1.0)

    def _is_base_due(self) -> bool:
        return (
            self._new_slots >= BASE_SLOTS
            or self._behind_bytes >= BASE_BYTES
            or self._units - self._units_before >= BASE_UNITS
        )

    @property
    def _units(self) -> int:
        """Of the log, in this process. Each frame that it began with counts as one."""
        return self.engine.report.frames + self.engine.shards[0].log.stats.units

    async def put_base(self) -> Base:
        """Put a base of the engine's present state, and delete what it supersedes. Raises BackupFailed, LimitReached
        during another backup, Unanswered, OSError, BaseTaken."""
        # A base that is under way is completed in any case, because the next one has the number after it.
        task = asyncio.create_task(self._put_base(clean=False))
        task.add_done_callback(_retrieve)
        return await asyncio.shield(task)

    async def _put_base(self, *, clean: bool) -> Base:
        async with self._basing:
            base = await self._put_one(clean=clean)
            if clean and base.manifest.clean != clean:
                base = await self._put_one(clean=clean)
        await self.trim()
        return base

    async def _put_one(self, *, clean: bool) -> Base:
        """`clean`: the engine stops, and writes no frame any more."""
        self._attempts += 1
        attempt, units, slots = self._attempts, self._units, self._new_slots
        name = f"{self._slots.seal.nonce}-{attempt}"
        made: list[BaseTarget] = []

        def target(going: Any) -> BaseTarget:
            known = [*self._base.manifest.objects, *self._stored.values()]
            made.append(
                BaseTarget(
                    self._objects,
                    self._cell,
                    name,
                    known,
                    PosixFileSystem(),
                    self._root,
                    going,
                    on_damage=self._found_damage,
                )
            )
            return made[0]

        try:
            [log_lsn], [instant_lsn] = await self.engine.backups.take_base(target, clean=clean)
        except DirectoryDamaged as error:
            await self._refuse(error)
            raise
        finally:
            for each in made:
                self._stored |= each.named
        log_from, instant = split(log_lsn), split(instant_lsn)
        with self._facts_lock:
            # The slot that has the first byte that is needed.
            before = [number for number, begin in self._behind if begin <= log_from]
            behind = [number for number, begin in self._behind if begin > log_from]
            redo = before[-1] if before else min(behind, default=self._known_end)
            seals = tuple(sorted(each for each in self._seals if each < redo))
            [*_, seal] = [each for each in self._recent_seals if each.slot < redo]
        manifest = Manifest(
            tuple(made[0].named.values()), seals, log_from, instant, trimmed=self._trimmer.log_from, clean=clean
        )
        steps = put_base(self._cell, self._candidate.nonce, self._base.head.number + 1, attempt, redo, seal, manifest)
        self._trimmer.is_unsure = True
        try:
            base = await asyncio.to_thread(self._driver.run, steps)
        except BaseTaken as error:
            base = await asyncio.to_thread(self._driver.run, self._found(error))
            redo = base.head.redo
            await asyncio.to_thread(self._name_segments, base)
        else:
            self._tier.name(made[0].segments())
        with self._facts_lock:
            self._base = base
            self._behind = [each for each in self._behind if each[0] >= redo]
            self._behind_bytes = 0
            self._new_slots -= slots
        self._units_before = units
        self._stored.clear()
        self.bases += 1
        self._base_put_s = self._clock.monotonic_ns() / 1e9
        self._trimmer.add(base)
        return base

    def _found_damage(self, damage: Damage) -> None:
        """As `BaseTarget` wants it, on another thread. Raises DirectoryDamaged, unless the newest base has the same
        records damaged, so that a directory made anew would have them so, too. BackupDamaged, OSError: not known."""
        objects = self._objects
        stored = bool(damage.seqs) and are_damaged(
            damage, self._cell, self._base.manifest.objects, objects, objects.read_at
        )
        _log.error(
            "cell_directory_damaged",
            cell=self._cell,
            topic_id=damage.id.topic_id,
            segment=damage.id.first_seq,
            seq=min(damage.seqs, default=damage.id.first_seq),
            records=len(damage.seqs),
            error=str(damage),
            stored=stored,
        )
        if not stored:
            raise DirectoryDamaged(f"{names.path(self._root, damage.id, names.DATA)}: {damage}.")

    async def _refuse(self, error: DirectoryDamaged) -> None:
        """The next process makes the directory anew, of the newest base and the slots."""
        self._time.close()  # before the rest of the log is put into slots: nothing more is acknowledged
        with contextlib.suppress(StorageError, OSError):
            await barrier(self.engine.logs)
        await asyncio.to_thread(self._directory.distrust)
        self._lose(error)

    def _found(self, taken: BaseTaken) -> Steps[Base]:
        """The newest base, if an earlier attempt of this process has made it after all. Raises BaseTaken if not."""
        head = yield from newest_head(self._cell, self._base.head.number)
        if head is None or head.maker != self._candidate.nonce:
            self._lose(taken)
            raise taken
        return (yield from read_base(self._cell, head))

    async def trim(self) -> None:
        """Delete what the two newest bases do not need, as far as the owner's time allows. Raises Unanswered."""
        async with self._trimming:
            self.deleted += await asyncio.to_thread(self._driver.run, self._trimmer.trim(self._time.is_open))

    async def _sweep_when_due(self) -> None:
        if self._clock.monotonic_ns() >= self._next_sweep_ns:
            await self.sweep()

    async def sweep(self) -> bool:
        """Look for objects that nothing leads to, and delete a page of them, as far as the owner's time allows. False:
        nothing was looked for: its time is over, or this process has to put a base first, or another one after one
        whose outcome is not known. Raises Unanswered."""
        async with self._basing, self._trimming:
            if not self.bases or self._trimmer.is_unsure or not self.may_answer():
                return False
            self._stored.clear()  # they are rubbish now
            rubbish = await asyncio.to_thread(self._driver.run, self._trimmer.rubbish(SWEEP_PAGE))
        async with self._trimming:
            deleted = await asyncio.to_thread(self._driver.run, self._trimmer.sweep(rubbish, self._time.is_open))
        self.swept += deleted
        again_s = SWEEP_S if deleted == len(rubbish) < SWEEP_PAGE else SWEEP_AGAIN_S
        self._next_sweep_ns = self._clock.monotonic_ns() + int(again_s * 1e9)
        return True

    @property
    def generation(self) -> int:
        """Of its last seal; 0 before it is the owner."""
        return self._recent_seals[-1].generation if self._recent_seals else 0

    @property
    def slots(self) -> int:
        """How many slots the log has had, seals included."""
        return self._known_end

    @property
    def behind(self) -> tuple[int, int]:
        """The slots behind the newest base, and their bytes."""
        return len(self._behind), self._behind_bytes

    @property
    def base_age_s(self) -> float:
        """How long ago this process put a base, or took the cell over; 0 before."""
        return 0.0 if self._base_put_s is None else self._clock.monotonic_ns() / 1e9 - self._base_put_s

    @property
    def time_left_s(self) -> float:
        """How long this process may answer, if nothing more is known to be stored."""
        return self._time.left_s(self._clock.monotonic_ns() / 1e9)

    def families(self) -> Iterator[Family]:
        """The metrics of the cell, without those of its engine."""
        return collect(self)

    async def abandon(self) -> None:
        """End as a killed process does: nothing more is put into the bucket. The engine is left as it is."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await self._stop()
        with contextlib.suppress(StorageError, OSError):
            await self.engine.close()

    async def give(self, successor: str, drain: Callable[[], Awaitable[None]], within_s: float = CLOSE_S) -> None:
        """Give the cell to the process with the nonce `successor`, which should wait in `start` already.

        A base is put while this process serves. Then `drain` is awaited: behind it, nothing is answered any more. The
        rest as in `close`. Raises what `drain` raises; the cell has not been given then.
        """
        if self.state is State.OWNER and self._behind:
            with contextlib.suppress(StorageError, SegmentError, Unanswered, BaseTaken, BaseMissing, OSError):
                await self.engine.segment_worker.flush_all()  # so that little is left for the last base
                await self.put_base()
        await drain()
        await self.close(successor, within_s)

    async def close(self, successor: str = ANYONE, within_s: float = CLOSE_S) -> None:
        """Stop the engine cleanly and give the cell to `successor`: the nonce of a process, or ANYONE. Or give up a
        start.

        Answer nothing more; put a small base of the clean stop, with leases that are not durable; create a last slot
        with the rest of the log, and then the seal that lets the successor take over without waiting. If the store does
        not do this in time, or the cell is lost, the process just stops; others take over after TTL.
        """
        serves = self.state is State.OWNER
        self._closing = True
        self._time.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if serves:
            self.state = State.CLOSING
        give_up = asyncio.get_running_loop().call_later(within_s, self._driver.interrupt)
        try:
            await self.engine.close(self._put_last_base if serves else None)
            if serves and not self.engine.failed_shards:
                await asyncio.to_thread(self._give_to, successor)
        finally:
            give_up.cancel()
            await self._stop()

    async def _put_last_base(self) -> None:
        try:
            await self._put_base(clean=True)
        except (Unanswered, BaseTaken, BaseMissing) as error:  # the log says it all, but for leases
            _log.warning("base_failed", cell=self._cell, error=type(error).__name__)

    def _give_to(self, successor: str) -> None:
        with self._slots_lock:
            try:
                self._driver.run(self._slots.give_to(successor))
                self.released = True
                self._driver.run(delete(sign(self._candidate.nonce)))
            except (Fenced, GivenUp, Unanswered) as error:
                _log.warning("cell_not_given", cell=self._cell, error=type(error).__name__)

    async def _stop(self) -> None:
        self._closing = True
        self.state = State.CLOSED
        self._time.close()
        self._taken.set()
        await asyncio.to_thread(self._signs.close)
        await asyncio.to_thread(self._driver.close)
        if self._fetching is not None:
            await asyncio.wait([self._fetching])
        self._directory.release()


def _retrieve(task: asyncio.Task[Base]) -> None:
    if not task.cancelled():
        task.exception()  # retrieve it: the caller may have gone


class BucketObjects:
    """As `storage.backup.bases.Objects`."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def create(self, key: str, data: bytes) -> Named:
        try:
            return self._driver.run(put_object(key, data))
        except Unanswered as error:
            raise OSError(errno.EIO, f"{key}: the store did not answer") from error

    def get(self, named: Named) -> bytes:
        try:
            data = self._driver.run(get_object(named))
        except Unanswered as error:
            raise OSError(errno.EIO, f"{named.key}: the store did not answer") from error
        if data is None or not named.fits(data):
            raise OSError(errno.EIO, f"{named.key} is missing or damaged")
        return data

    def read_at(self, key: str, size: int, offset: int) -> bytes:
        """Bytes of an object. Raises OSError."""
        try:
            data = self._driver.run(get_range_patiently(key, offset, size, _READ_S))
        except Unanswered as error:
            raise OSError(errno.EIO, f"{key}: the store did not answer") from error
        if data is None:
            raise OSError(errno.EIO, f"{key} is missing")
        return data

    def get_piece(self, named: Named, offset: int) -> bytes:
        """As `storage.cells.local.Pieces`."""
        try:
            data = self._driver.run(get_piece(named, offset))
        except Unanswered as error:
            raise OSError(errno.EIO, f"{named.key}: the store did not answer") from error
        if not data:
            raise OSError(errno.EIO, f"{named.key} is missing or damaged")
        return data


def begin(bucket: Bucket, cell: str, candidate: Candidate, clock: Clock | None = None) -> None:
    """Make a new cell, with no data; nothing happens if it is there. Blocking. Raises Unanswered, GivenUp."""
    driver = Driver(bucket, clock or SystemClock())
    try:
        driver.run(begin_cell(cell, candidate, new_format(shards=1)))
    finally:
        driver.close()
