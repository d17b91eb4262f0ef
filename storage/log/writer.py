"""The writer of one shard of the log: from a submission in its queue to bytes that are synced, and the outcome back.

    Shard         the queue, on the event loop, and the thread that empties it
    CommitWindow  how long the thread waits for more writes before it syncs (pure)
    ShardLog      the files of the shard, on the thread: writes a group, syncs it, reports the outcome of each member
    WalStats counters

The loop enqueues; the thread takes everything that waits, commits it as one group and posts the outcome back, in order.
With `threaded=False` the loop does the thread's work by `call_soon`, so that a test can crash it after every call to
the disk and get the same run twice.

Source: docs/reference/guarantees.md#crash-points-of-a-write.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, cast

import structlog

from storage.errors import StorageError, StorageFailed, StorageFull, WalSaturated
from storage.format import control, wal_frame
from storage.log.behind import Behind, PutLater
from storage.log.files import SHIFT, PreparedFile, WalFiles, no_space, position
from storage.log.submission import Outcome, Submission, Unit, resolve
from storage.options import Options
from storage.platform import Buffer, Clock, FileSystem, SyncFailed, write_buffers

_log = structlog.get_logger("storage")

#: How often a shard whose disk is full looks for space.
RESUME_INTERVAL_NS: Final = 500_000_000
#: A group takes no further submission once it has this many bytes.
GROUP_MAX_BYTES: Final = 8 << 20
#: Left free at the end of a file for a SyncPoint in front of what is written.
_SYNC_POINT_ROOM: Final = 128


class Shard:
    """Queue, thread and outcomes of one shard. All methods but those of the thread belong to the event loop."""

    def __init__(
        self,
        index: int,
        log: ShardLog,
        options: Options,
        clock: Clock,
        take: Callable[[Unit, bytes, int, int, int], int | None],
        end_group: Callable[[], None],
        roll_back: Callable[[Shard], None],
        failed: Callable[[Shard], None],
        *,
        threaded: bool = True,
    ) -> None:
        """`take` applies a committed unit (unit, bytes, LSN of its begin and end, the entry of its records) and returns
        its outcome; `end_group` is called after those of a group, and what they put off is done. `roll_back` takes the
        logs back to what is published. `failed` is called once, when the shard has stopped. All are called on the
        loop."""
        self.index = index
        self.log = log
        log.on_written = self.post
        self._options = options
        self._clock = clock
        self._take = take
        self._end_group = end_group
        self._roll_back = roll_back
        self._failed = failed
        self._threaded = threaded
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Submission] = deque()
        #: Writes enqueued, counted by the loop, and writes taken, counted by the thread. A submission may be several
        #: writes.
        self._came = self._taken = 0
        self._condition = threading.Condition()
        #: The loop wakes the thread when this many writes wait.
        self._wake_at = 1
        self._stopping = False
        self._failure_reported = False
        #: A commit could not be applied: the state of its log is unknown until the next start.
        self._defect = False
        self._drain_scheduled = False
        self._thread: threading.Thread | None = None
        self._window = CommitWindow(options.gc_min_us, options.gc_max_us)
        #: When the thread finished the last group.
        self._worked_ns = clock.monotonic_ns()
        #: How many writes arrived during a sync: those waiting when the first write of its group is answered.
        self._came_meanwhile: int | None = None
        self._resume_at_ns = 0
        self._room_waiters: deque[asyncio.Future[None]] = deque()
        #: Writes of a generation build on one another's seqs; a failure ends the generation.
        self.generation = 0
        #: Called on the loop after a sync, for as long as it is set.
        self.on_synced: Callable[[], None] | None = None
        self._syncs_reported = 0
        #: In flight, in the order of the log. A snapshot may count as applied only what is before the LSN of the first.
        self.unresolved: deque[Submission] = deque()
        #: Everything of this shard below this LSN has been applied.
        self.applied_lsn = log.end_lsn
        self.queued_frames = 0
        self.queued_bytes = 0
        self.peak_frames = 0

    # -- enqueueing --------------------------------------------------------------------------------------------------

    def refuse_when_full(self) -> None:
        """Raise the error that a write would get as its outcome, before it gets a seq."""
        if self.log.failed is not None:
            raise self.log.failure()
        if self.log.full:
            raise StorageFull()

    def refuse_when_behind(self) -> None:
        """Raise WalSaturated while syncs are behind by more than allowed: for a write that is acked before its sync."""
        since = self.log.unsynced_since_ns
        if since is not None and self._clock.monotonic_ns() - since > self._options.slot_lag_ms * 1_000_000:
            raise WalSaturated("The log's writes do not reach the bucket in time; nothing was stored.")

    def has_room(self, frames: int, size_bytes: int, *, internal: bool = False) -> bool:
        """Whether this much more fits. A tenth of the queue is kept for internal frames."""
        if not self.unresolved:
            return True  # a write larger than the queue must be possible when it is alone
        share = 10 if internal else 9
        return (
            self.queued_frames + frames <= self._options.wal_queue_frames * share // 10
            and self.queued_bytes + size_bytes <= self._options.wal_queue_bytes * share // 10
        )

    async def wait_room(self, frames: int, size_bytes: int, waited_ns: int = 0) -> None:
        """Wait until this much fits. Raises WalSaturated after the enqueue timeout, of which `waited_ns` have passed
        already, because other writes may have taken the room before."""
        left_s = self._options.wal_enqueue_timeout_ms / 1000 - waited_ns / 1e9
        try:
            async with asyncio.timeout(max(0.0, left_s)):
                while not self.has_room(frames, size_bytes):
                    waiter = self._loop.create_future()
                    self._room_waiters.append(waiter)
                    await waiter
        except TimeoutError:
            raise WalSaturated(queued_frames=self.queued_frames, max=self._options.wal_queue_frames) from None

    def submit(self, each: Submission) -> asyncio.Future[int | None]:
        """Enqueue; the future gives what `publish` returned, or raises the error."""
        done: asyncio.Future[int | None] = self._loop.create_future()
        self.enqueue(each, partial(resolve, done))
        return done

    def enqueue(self, each: Submission, outcome: Outcome) -> None:
        """Enqueue; `outcome` gets what `publish` returned, or the error."""
        each.done = outcome
        each.enqueued_ns = self._clock.monotonic_ns()
        self.unresolved.append(each)
        self.queued_frames += each.frames
        self.queued_bytes += len(each.payload)
        if self.queued_frames > self.peak_frames:
            self.peak_frames = self.queued_frames
        self._queue.append(each)
        self._came += each.writers
        if not self._threaded:
            self._schedule_drain()
        elif self._came - self._taken >= self._wake_at:
            with self._condition:
                self._condition.notify()

    @property
    def fill(self) -> float:
        """How full the queue is, 0 to 1."""
        options = self._options
        return max(self.queued_frames / options.wal_queue_frames, self.queued_bytes / options.wal_queue_bytes)

    @property
    def waiting_for_room(self) -> int:
        """How many writes wait because the queue is full."""
        return len(self._room_waiters)

    def oldest_ms(self) -> float:
        """How long the oldest write in flight has waited; 0 when there is none."""
        if not self.unresolved:
            return 0.0
        return (self._clock.monotonic_ns() - self.unresolved[0].enqueued_ns) / 1e6

    def widen_window(self, factor: int) -> None:
        """Make a group commit wait for this many times as many writes."""
        self._window.pressure_factor = factor

    # -- the outcome -------------------------------------------------------------------------------------------------

    def post(self, group: list[Submission]) -> None:
        """Called by the log, on the thread: take the outcome to the loop."""
        if self._came_meanwhile is None:
            self._came_meanwhile = self._came - self._taken  # later writes may come from writers that are answered now
        for each in group:
            each.posted = True
        if self._threaded:
            self._loop.call_soon_threadsafe(self._resolve, group)
        else:
            self._resolve(group)

    def _resolve(self, group: list[Submission]) -> None:
        """On the loop: publish what is committed, roll back what failed, and pass the outcomes on."""
        for each in group:
            self.queued_frames -= each.frames
            self.queued_bytes -= len(each.payload)
            each.resolved = True
        # Outcomes are reported only after the group has ended, because a caller may read at once.
        outcomes: list[int | None] = []
        for each in group:
            removed: int | None = None
            if self._defect and each.error is None:
                each.error = self.log.failure()  # it builds on a state that nobody knows
            try:
                if each.error is None:
                    removed = self._take(each.unit, each.payload, each.lsn, each.lsn + len(each.payload), each.entry)
                elif each.generation == self.generation:
                    self._roll_back(self)
            except Exception as error:
                self._stop_after_defect(error)
                each.error = self.log.failure()
            outcomes.append(removed)
        try:
            self._end_group()
        except Exception as error:
            self._stop_after_defect(error)
            for each in group:
                each.error = each.error or self.log.failure()
        for each, removed in zip(group, outcomes, strict=True):
            done = each.done
            assert done is not None
            try:
                done(removed if each.error is None else each.error)
            except Exception as error:
                self._stop_after_defect(error)
                each.error = self.log.failure()
                done(each.error)
        while self.unresolved and self.unresolved[0].resolved:
            first = self.unresolved.popleft()
            # In the order of the log: a disk-class write may resolve before the fsync-class write in front of it.
            if first.error is None and first.payload:
                self.applied_lsn = first.lsn + len(first.payload)
        while self._room_waiters:
            waiter = self._room_waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def _stop_after_defect(self, error: Exception) -> None:
        """A commit that cannot be applied stops the shard, as a failed sync does, and ends all waits."""
        _log.exception("commit_not_applied", shard=self.index)
        self._defect = True
        self.log.stop_for(error)
        if not self._failure_reported:
            self._failure_reported = True
            self._failed(self)

    @property
    def completed_end(self) -> int:
        """The end of the last unit whose outcome is known, or of everything applied. No resolved unit is after it.
        Units before it may still wait for their sync; the next sync covers them.
        """
        ends = [each.lsn + len(each.payload) for each in self.unresolved if each.resolved and each.error is None]
        return max([self.applied_lsn, *ends])

    # -- the thread --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to write. The log has been opened."""
        if self.log.behind is not None:
            defer = None if self._threaded else self._loop.call_soon
            self.log.behind.start(self.log.on_written, self._look_at_log, defer)
        if self._threaded:
            self._thread = threading.Thread(target=self._run, name=f"wal-{self.index}", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        log, queue, condition, clock = self.log, self._queue, self._condition, self._clock
        while True:
            with condition:
                while not queue and not self._stopping:
                    self._wake_at = 1
                    # Checked again under the lock: a submission from before `_wake_at` was set did not notify.
                    if queue:
                        break
                    has_chores = log.dirty_since_ns is not None or log.full
                    if not clock.wait(condition, self._next_chore_s() if has_chores else None):
                        break
                waiting = self._came - self._taken
                if waiting and not self._stopping and log.behind is None:
                    wanted, window_ns = self._window.wait_for(waiting)
                    if wanted:
                        self._gather(waiting, wanted, window_ns)
            self._work()
            if self._stopping and not queue:
                return

    def _gather(self, before: int, wanted: int, window_ns: int) -> None:
        """Wait until `wanted` writes wait instead of `before`, or the window ends. Called with the condition held."""
        began = self._clock.monotonic_ns()
        deadline = began + window_ns
        self._wake_at = wanted
        while self._came - self._taken < wanted and not self._stopping:
            left = deadline - self._clock.monotonic_ns()
            if left <= 0 or not self._clock.wait(self._condition, left / 1e9):
                break
        self._wake_at = 1
        self._window.waited(before, self._came - self._taken, self._clock.monotonic_ns() - began)

    def _work(self) -> None:
        """Commit what waits, as one group; then the chores."""
        log, queue, clock = self.log, self._queue, self._clock
        group: list[Submission] = []
        size, writers, needs_sync = 0, 0, False
        while queue and size < GROUP_MAX_BYTES:
            each = queue.popleft()
            size += len(each.payload)
            self._taken += each.writers
            writers += each.writers
            needs_sync = needs_sync or each.needs_sync
            group.append(each)
        if group:
            began = clock.monotonic_ns()
            self._came_meanwhile = None
            try:
                log.commit(group)
            except Exception as error:
                self._stop_after_crash(group, error)
            ended = clock.monotonic_ns()
            if needs_sync:
                waiting = self._came_meanwhile or 0
                self._window.committed(writers, waiting, gathering_ns=began - self._worked_ns, syncing_ns=ended - began)
            self._worked_ns = ended
        if log.dirty_since_ns is not None or log.full:
            self.harden()
        self._look_at_log()

    def _look_at_log(self) -> None:
        """Tell the loop of syncs and of a failure. Called behind each group, and behind each sync."""
        log = self.log
        if self.on_synced is not None and log.syncs != self._syncs_reported:
            self._syncs_reported = log.syncs
            self._call(Shard._report_synced)
        if log.failed is not None:
            with self._condition:
                reported, self._failure_reported = self._failure_reported, True
            if not reported:
                self._call(self._failed)

    def _stop_after_crash(self, group: list[Submission], error: Exception) -> None:
        """A defect, not the disk: nobody knows what was written, so the shard stops, and all waits end."""
        _log.exception("writer_crashed", shard=self.index)
        self.log.stop_for(error)
        left = [each for each in group if not each.posted]
        for each in left:
            each.error = self.log.failure()
        self.post(left)

    def _call(self, callback: Callable[[Shard], None]) -> None:
        if self._threaded:
            self._loop.call_soon_threadsafe(callback, self)
        else:
            callback(self)

    def _report_synced(self) -> None:
        if self.on_synced is not None:
            self.on_synced()

    def harden(self) -> None:
        """Work between groups: sync bytes that have waited for the timer, look for space when the disk is full."""
        now = self._clock.monotonic_ns()
        since = self.log.dirty_since_ns
        if since is not None and now - since >= self._sync_after_ns():
            self.log.sync()
        if self.log.full and self.log.failed is None and now >= self._resume_at_ns:
            self._resume_at_ns = now + RESUME_INTERVAL_NS
            self.log.resume()

    def _sync_after_ns(self) -> int:
        """How long written bytes may wait for their sync; hastened ones wait only for more writes, as a group does."""
        if not self.log.hastened:
            return self._options.disk_sync_ms * 1_000_000
        return self._options.gc_max_us * 1000 if self._queue else 0

    def _next_chore_s(self) -> float | None:
        since = self.log.dirty_since_ns
        if self.log.failed is not None:
            return None
        if since is not None:
            due = since + self._sync_after_ns()
            return max(0.0, (due - self._clock.monotonic_ns()) / 1e9)
        return RESUME_INTERVAL_NS / 1e9 if self.log.full else None

    def _schedule_drain(self) -> None:
        if not self._drain_scheduled:
            self._drain_scheduled = True
            self._loop.call_soon(self._drain_inline)

    def _drain_inline(self) -> None:
        self._drain_scheduled = False
        self._work()
        if self._queue:
            self._schedule_drain()

    async def stop(self) -> None:
        """Write the waiting submissions, sync, close the file. Raises OSError when that last sync fails."""
        if self._thread is not None:
            with self._condition:
                self._stopping = True
                self._condition.notify()
            await self._loop.run_in_executor(None, self._thread.join)
        while self._queue:
            self._work()
        await asyncio.sleep(0)  # lets the loop resolve what the thread has posted
        if self._thread is not None:
            await self._loop.run_in_executor(None, self.log.close)
            await asyncio.sleep(0)
        else:
            self.log.close()


#: After this many groups it decides again whether to alternate.
GROUPS_A_LOOK: Final = 16
#: Fewer expected writers than this are not split.
MIN_EXPECTED: Final = 4
#: After this many groups without a wait, one is tried again.
GROUPS_A_TRIAL: Final = 64
#: While it alternates, the first few of this many groups wait for all expected writers.
GROUPS_A_COUNT: Final = 256
GROUPS_TO_COUNT: Final = 4


class CommitWindow:
    """How long the writer waits for more writes before it syncs. Pure.

    A lone write never waits. Writers that were answered come back, and others arrived while the disk was busy: this
    number is expected. The writer waits for all of them, for at most a window that doubles while the wait pays (more
    writes a ns than an immediate sync would have had) and halves when it does not, down to none; now and then it is
    tried again.

    During a sync for all of them no writer has anything to do, and while they come back the disk is idle. If they take
    longer to come back than the disk takes to sync, the writer alternates: it syncs half of them, and the other half
    arrives during the sync. Their total is not visible then, so now and then it waits for all of them, to count.

    `min_us` and `max_us` bound the wait. Source: docs/adr/0030-group-commit.md.
    """

    __slots__ = (
        "_alternating",
        "_alternations",
        "_expected",
        "_gathering_ns",
        "_groups",
        "_max_ns",
        "_min_ns",
        "_sync_ns",
        "_syncing_ns",
        "_unwaited",
        "_window_ns",
        "pressure_factor",
    )

    def __init__(self, min_us: int, max_us: int) -> None:
        self._min_ns = min_us * 1000
        self._max_ns = max(max_us, min_us) * 1000
        self._window_ns = self._min_ns
        #: The estimate of how many writes are on their way at a time.
        self._expected = 1
        self._sync_ns = 0
        #: Groups since the window closed.
        self._unwaited = 0
        self._alternating = False
        #: Groups since it alternates.
        self._alternations = 0
        self._look_anew()
        #: Under pressure it waits for this many times as many writes, and this many times as long.
        self.pressure_factor = 1

    def _look_anew(self) -> None:
        self._groups = self._gathering_ns = self._syncing_ns = 0

    @property
    def alternating(self) -> bool:
        """Whether it syncs half of the writers, except when it counts them."""
        return self._alternating and self.pressure_factor == 1 and self._expected >= MIN_EXPECTED

    @property
    def _half(self) -> int:
        """How many writers are half of those expected, if it alternates now; else 0."""
        counting = self._alternations % GROUPS_A_COUNT < GROUPS_TO_COUNT
        return (self._expected + 1) // 2 if self.alternating and not counting else 0

    def wait_for(self, waiting: int) -> tuple[int, int]:
        """(how many to wait for, at most how many ns) when `waiting` writes are there; (0, 0): sync now."""
        if self._expected <= 1:
            return 0, 0
        wanted = self._half or self._expected * self.pressure_factor
        window_ns = max(self._window_ns, self._min_ns if self.pressure_factor > 1 else 0) * self.pressure_factor
        if waiting >= wanted or not window_ns:
            return 0, 0
        return wanted, window_ns

    def waited(self, before: int, came: int, for_ns: int) -> None:
        """After a wait of `for_ns`: how many were there before, and how many came by now in all."""
        # An immediate sync would have had `before` writes; a wait that brings as many again in the same time gains
        # nothing.
        gains = (came - before) * self._sync_ns > 2 * before * for_ns
        half = self._half
        paid = came >= half if half else gains
        if paid:
            self._window_ns = min(self._max_ns, max(self._min_ns, self._window_ns * 2))
        elif self._window_ns > self._min_ns:
            self._window_ns = max(self._min_ns, self._window_ns // 2)
        elif not self.alternating:
            self._window_ns = self._unwaited = 0

    def committed(self, group: int, waiting: int = 0, *, gathering_ns: int = 0, syncing_ns: int = 0) -> None:
        """A group of this size was synced, and `waiting` writes wait already for the next.

        `gathering_ns`: from the end of the sync before to the start of this one. `syncing_ns`: write and sync.
        """
        half = 0
        if self._alternating and self._expected >= MIN_EXPECTED:
            half = self._half
            if self.alternating and not half and group < self._expected:
                # Counted: nobody else is coming.
                self._alternations += GROUPS_TO_COUNT - self._alternations % GROUPS_A_COUNT - 1
        arrivals = group + waiting
        if arrivals > self._expected:
            self._expected = (self._expected + arrivals + 1) // 2
        elif group < half or not half:  # a full half does not say how many the others are
            self._expected = max(1, arrivals)
        self._alternations += 1
        self._sync_ns = syncing_ns
        self._unwaited += 1
        if self._window_ns == 0 and self._unwaited >= GROUPS_A_TRIAL:
            self._window_ns = self._min_ns
        self._groups += 1
        self._gathering_ns += min(gathering_ns, self._max_ns)  # longer pauses had no writers at all
        self._syncing_ns += syncing_ns
        if self._groups >= GROUPS_A_LOOK:
            self._look()

    def _look(self) -> None:
        """Decide whether to alternate. That pays while the disk has to wait for writes; a disk that never waits gains
        more from larger groups."""
        if self._alternating:
            self._alternating = self._gathering_ns > self._syncing_ns // 8
        elif self._gathering_ns > self._syncing_ns * 3 // 2:
            self._alternating = True
            self._alternations = GROUPS_TO_COUNT  # all of them were waiting a moment ago
        if self._alternating:
            self._window_ns = max(self._window_ns, self._min_ns)
        self._look_anew()


class ShardLog:
    """The files of one shard: takes groups of submissions, writes and syncs them, and reports what became of each.

    Runs on the shard's thread (or, in deterministic tests, on the loop): no locks, no queue, no waiting.

        running --ENOSPC--> full --space again--> running
           \\__any other failed write, sync, truncate or rename__> failed, for good

    A sync acks a frame only if it was issued after every write below the frame's end had completed.
    """

    #: Gets submissions in order, failures after all earlier successes; `Shard` sets it.
    on_written: Callable[[list[Submission]], None]

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        shard: int,
        options: Options,
        clock: Clock,
        spawn: Callable[[Callable[[], None]], None],
    ) -> None:
        self.shard = shard
        self._options = options
        self._clock = clock
        self.stats = WalStats()
        size, reserve = options.wal_file_bytes, options.wal_reserve_bytes
        self.files = WalFiles(fs, directory, file_bytes=size, reserve_bytes=reserve, spawn=spawn, stats=self.stats)
        self._active: PreparedFile | None = None
        self._next_number = 1
        self._end = 0  # end of the last whole write in the active file
        self._written_ns = 0  # when the group in progress was written, if its write and sync are one call
        self._synced = 0  # below here the active file is durable
        self._point_offset = 0
        self._point_ns = 0
        self._lowest_generation = 0
        #: Set when the disk is full: only frames that free space, or that an earlier ack requires, are accepted.
        self.full = False
        #: Set once, when a write or sync has failed: nothing is written any more.
        self.failed: OSError | None = None
        #: Since when (monotonic ns) there are written bytes without a sync. `hastened`: some of them do not wait for
        #: the timer.
        self.dirty_since_ns: int | None = None
        self.hastened = False
        #: How many syncs have succeeded.
        self.syncs = 0
        interval_ms = options.put_interval_ms
        self.behind = None if interval_ms is None else Behind(self, clock, interval_ms)
        #: As `dirty_since_ns`, of what a sync is wanted for, and of what one is under way for.
        self._wanted_since_ns: int | None = None
        self._syncing_since_ns: int | None = None
        #: Of the sync under way: where it ends, and when it began.
        self._syncing = (0, 0)

    # -- opening -----------------------------------------------------------------------------------------------------

    def open(self, number: int) -> None:
        """Begin a new file; without space for one the log is `full`. Raises OSError for any other failure."""
        self._next_number = number
        try:
            self._begin(self.files.take(number, 0))
            self.files.make_reserve()
        except OSError as error:
            if not no_space(error):
                raise
            self.full = True
            with contextlib.suppress(OSError):  # there may be room for the reserve, with which to delete
                self.files.make_reserve()
        self._prepare_ahead()

    def _begin(self, prepared: PreparedFile) -> None:
        try:
            self.files.begin(prepared.number)
        except OSError as error:
            if not no_space(error):
                raise
        if self._active is not None:
            self._active.file.close()
        self._active = prepared
        self._next_number = prepared.number + 1
        self._end = self._synced = self._point_offset = 0
        self._point_ns = self._clock.monotonic_ns()

    def _prepare_ahead(self) -> None:
        if not self.full:
            self.files.prepare_ahead(self._next_number)

    @property
    def end_lsn(self) -> int:
        """Where the next frame would go."""
        number = self._active.number if self._active else self._next_number
        return position(number, self._end)

    # -- a group -----------------------------------------------------------------------------------------------------

    def commit(self, group: list[Submission]) -> None:
        """Write a group, sync it if a member needs that, and report every member: those that need no sync before it,
        the others after it, in order. With `behind`, the sync and the reports after it come later."""
        if self.behind is None:
            self._commit(group)
            return
        with self.behind.lock:
            self._commit(group)

    def _commit(self, group: list[Submission]) -> None:
        writers, sync = 0, True
        for each in group:
            writers += each.writers
            sync = sync and each.needs_sync
        self.stats.groups += 1
        self.stats.group_size.observe(writers)
        self._written_ns = 0
        batch: list[Submission] = []
        size = 0
        written: list[Submission] = []
        for each in group:
            if batch and self._end + size + len(each.payload) > self._room():
                self._flush(batch, size, written)
                batch, size = [], 0
            # Checked after that flush, which may have failed: nothing is written after a failure.
            if self.failed is not None or self.full or 0 <= each.generation < self._lowest_generation:
                refusal = self._refusal(each)
                if refusal is not None:
                    self._flush(batch, size, written)
                    batch, size = [], 0
                    each.error = refusal
                    written.append(each)
                    continue
            batch.append(each)
            size += len(each.payload)
        behind = self.behind
        if batch:
            self._flush(batch, size, written, sync=sync and behind is None)  # nobody is answered before the sync
        now = self._written_ns or self._clock.monotonic_ns()
        waiting = False
        for each in written:
            each.written_ns = now
            waiting = waiting or (each.needs_sync and each.error is None)
        if behind is not None:
            behind.accept(written)
            return
        if not waiting:
            self.on_written(written)
            return
        late = written if sync else self._report_early(written)
        if self.failed is None and self._synced != self._end:
            self.sync()
        now = self._clock.monotonic_ns()
        for each in late:
            each.synced_ns = now
            if self.failed is not None and each.error is None:
                each.error = self.failure()
        self.on_written(late)

    def _report_early(self, written: list[Submission]) -> list[Submission]:
        """Report the members that need no sync, and return the others. The order within each log is kept, and no report
        overtakes a failure."""
        held: set[int] = set()
        early: list[Submission] = []
        late: list[Submission] = []
        failing = False
        for each in written:
            failing = failing or each.error is not None
            if each.needs_sync or failing or each.topic_id in held:
                held.add(each.topic_id)
                late.append(each)
            else:
                early.append(each)
        if early:
            self.on_written(early)
        return late

    def _room(self) -> int:
        return (self._active.size if self._active else 0) - _SYNC_POINT_ROOM

    def _refusal(self, each: Submission) -> StorageError | None:
        if self.failed is not None:
            return self.failure()
        if 0 <= each.generation < self._lowest_generation:
            return StorageFull()  # a write that it builds on was refused
        if self.full and not each.frees:
            return self._refuse(each, StorageFull())
        return None

    def _refuse(self, each: Submission, error: StorageError) -> StorageError:
        # Writes after the seqs of a refused write are refused too, until the loop has taken those seqs back.
        if each.generation >= 0:
            self._lowest_generation = max(self._lowest_generation, each.generation + 1)
        if isinstance(error, StorageFull):
            self.stats.storage_full += 1
        return error

    def stop_for(self, error: Exception) -> None:
        """Stop the shard for an error that does not come from the disk."""
        if self.failed is None:
            self.failed = error if isinstance(error, OSError) else OSError(errno.EIO, repr(error))

    def failure(self) -> StorageFailed:
        """The error of every write after the shard has stopped."""
        number = self.failed.errno if self.failed else None
        message = f"Log shard {self.shard} stopped after a failed write or sync (errno {number}); restart to recover."
        return StorageFailed(message, shard=self.shard, errno=number)

    def _flush(self, batch: list[Submission], size: int, written: list[Submission], *, sync: bool = False) -> None:
        """Write `size` bytes to the active file, or to the next one if they do not fit, and with `sync` sync them."""
        if not batch:
            return
        if size == 0:  # barriers: they only want the sync
            written += batch
            return
        active = self._active
        try:
            if active is None or self._end + size > active.size - _SYNC_POINT_ROOM:
                self._rotate(size)
            self._write(batch, sync=sync)
            written += batch
            return
        except OSError as error:
            if self.failed is None and no_space(error):
                self._become_full()
            elif self.failed is None:
                self.failed = error
        # The disk is full: submissions that free space go to the reserve, one by one; the others are refused.
        for each in batch:
            each.error = self._refusal(each)
            if each.error is None:
                self._write_to_reserve(each)
            written.append(each)

    def _write_to_reserve(self, each: Submission) -> None:
        try:
            if self._active is None or self._end + len(each.payload) > self._room():
                self._finish_active()
                self._begin(self.files.take_reserve(self._next_number))
                self.stats.rotations += 1
            self._write([each])
        except OSError as error:
            if self.failed is not None:
                each.error = self.failure()
            elif isinstance(error, FileNotFoundError) or no_space(error):
                each.error = self._refuse(each, StorageFull("The disk is full, and so is the log's reserve."))
            else:
                self.failed = error
                each.error = self.failure()

    def _write(self, batch: Sequence[Submission], *, sync: bool = False) -> None:
        """One write, whole or not at all, and with `sync` one sync after it. Raises OSError unless it was the sync
        that failed; sets `failed` for everything but a full disk."""
        active, clock, stats = self._active, self._clock, self.stats
        assert active is not None
        start = at = self._end
        buffers: list[Buffer] = []
        point_bytes = self._synced - self._point_offset
        if has_point := point_bytes > 0 and (
            point_bytes >= self._options.sync_point_bytes
            or (clock.monotonic_ns() - self._point_ns) // 1_000_000 >= self._options.sync_point_ms
        ):
            buffers.append(self._sync_point(active.number, batch[0].ts))
            at += len(buffers[0])
        first_lsn = active.number << SHIFT
        frames, hasten = len(buffers), False
        for each in batch:
            each.lsn = first_lsn | at
            at += len(each.payload)
            frames += each.frames
            hasten = hasten or each.hasten
            buffers.append(each.payload)
        try:
            if sync:
                self._written_ns = active.file.write_and_sync(buffers, start, clock.monotonic_ns)
            else:
                write_buffers(active.file, buffers, start)
        except SyncFailed as error:
            self.failed = error
            sync = False
        except OSError as error:
            if not no_space(error):
                self.failed = error
            raise
        self._end = at
        if has_point:
            self._point_offset = start
            self._point_ns = clock.monotonic_ns()
            stats.sync_points += 1
        stats.bytes += at - start
        stats.frames += frames
        stats.units += len(batch)
        if sync:
            # As `_note_synced`, without the call.
            stats.fsyncs += 1
            stats.fsync_seconds.observe((clock.monotonic_ns() - self._written_ns) / 1e9)
            self._synced = at
            self.syncs += 1
            self.dirty_since_ns = None
            return
        if self.dirty_since_ns is None:
            self.dirty_since_ns, self.hastened = clock.monotonic_ns(), False
        self.hastened = self.hastened or hasten

    def _sync_point(self, number: int, ts: int) -> bytes:
        """The frame that says how far this file is durable."""
        value = control.SyncPoint(file=number, at=self._end, offset=self._synced)
        return wal_frame.encode(wal_frame.FrameType.SYNC_POINT, 0, 0, 0, ts, data=control.encode_control(value))

    # -- syncs and files ---------------------------------------------------------------------------------------------

    def sync(self) -> bool:
        """Make all that is written durable, or with `behind` want that. False when the shard has stopped, before or by
        this."""
        if self.behind is None or self.failed is not None:
            return self._sync()
        with self.behind.lock:
            self._wanted_since_ns = self._wanted_since_ns or self.dirty_since_ns
            self.dirty_since_ns = None
            self.behind.want()
        return True

    def _sync(self) -> bool:
        if self.failed is not None:
            return False
        active = self._active
        if active is None or self._synced == self._end:
            self.dirty_since_ns = None
            return True
        begin = self._clock.monotonic_ns()
        try:
            active.file.datasync()
        except OSError as error:
            self.failed = error
            return False
        self._note_synced(begin, self._end)
        return True

    @property
    def unsynced_since_ns(self) -> int | None:
        """Since when there are written bytes that are not known to be durable."""
        return self._syncing_since_ns or self._wanted_since_ns or self.dirty_since_ns

    def is_synced(self) -> bool:
        """As `storage.log.behind.Synced`."""
        return self._active is None or self._synced == self._end

    def unsynced_bytes(self) -> int:
        """As `storage.log.behind.Synced`."""
        return 0 if self._active is None else self._end - self._synced

    def begin_sync(self) -> Callable[[], None] | None:
        """As `storage.log.behind.Synced`."""
        self._syncing_since_ns = self._wanted_since_ns or self.dirty_since_ns
        self._wanted_since_ns = self.dirty_since_ns = None
        if self.failed is not None or self._active is None or self._synced == self._end:
            return None
        self._syncing = (self._end, self._clock.monotonic_ns())
        return cast(PutLater, self._active.file).begin_sync()

    def end_sync(self, error: OSError | None) -> None:
        """As `storage.log.behind.Synced`."""
        self._syncing_since_ns = None
        end, began = self._syncing
        self._syncing = (0, 0)
        if error is not None:
            self.failed = self.failed or error
        elif self.failed is None and end:
            self._note_synced(began, end)

    def _note_synced(self, begin_ns: int, end: int) -> None:
        self.stats.fsyncs += 1
        self.stats.fsync_seconds.observe((self._clock.monotonic_ns() - begin_ns) / 1e9)
        self._synced = end
        self.syncs += 1
        if end == self._end:
            self.dirty_since_ns = None

    def _finish_active(self) -> None:
        """Truncate the active file to its length and sync it. A failure stops the shard."""
        active = self._active
        if active is None:
            return
        try:
            active.file.truncate(self._end)
            if self.behind is not None:
                self.behind.drain()
                if self.failed is not None:
                    raise self.failed
            active.file.sync()
        except OSError as error:
            self.failed = error
            raise
        active.size = self._synced = self._end
        self.syncs += 1
        self.dirty_since_ns = None

    def _rotate(self, size: int) -> None:
        prepared = self.files.take(self._next_number, size + 256)
        self._finish_active()
        if self._active is not None:
            self.stats.rotations += 1
        self._begin(prepared)
        self._prepare_ahead()

    def _become_full(self) -> None:
        """Truncate to the last whole write. If that fails, the shard stops."""
        self.full = True
        with contextlib.suppress(OSError):  # it has set `failed`
            self._finish_active()

    def resume(self) -> bool:
        """When full: accept writes again if there is space for a file and a reserve. True when the shard is running."""
        if self.failed is not None:
            return False
        if not self.full:
            return True
        if self.behind is None:
            return self._resume()
        with self.behind.lock:
            return self._resume()

    def _resume(self) -> bool:
        if self._active is not None and self._active.size - self._end > self._options.wal_file_bytes // 2:
            return self._resume_in_active()
        try:
            prepared = self.files.take(self._next_number, 0)
        except OSError:
            return False
        try:
            self.files.make_reserve()
        except OSError:
            self.files.discard(prepared)
            return False
        try:
            self._finish_active()
            self._begin(prepared)
        except OSError as error:
            self.failed = self.failed or error
            return False
        self.full = False
        self._prepare_ahead()
        return True

    def _resume_in_active(self) -> bool:
        """The start found space for a file, but not for the reserve beside it."""
        try:
            self.files.make_reserve()
        except OSError:
            return False
        self.full = False
        self._prepare_ahead()
        return True

    def close(self) -> None:
        """Sync what is written, free the unused space, close. The prepared file, which is empty, is deleted."""
        if self.behind is not None:
            self.behind.stop()
        if self.failed is None and self._sync() and self._active is not None:
            self._finish_active()
        if self._active is not None:
            self._active.file.close()
        self.files.drop_ahead()


FSYNC_BUCKETS_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
GROUP_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


class Histogram:
    """Counts by upper bound, as Prometheus has them (not cumulative here), and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.sum += value
        self.counts[bisect_left(self.bounds, value)] += 1


class WalStats:
    """Counters of one shard since the start. Only its thread writes them; any thread reads them."""

    __slots__ = (
        "bytes",
        "frames",
        "fsync_seconds",
        "fsyncs",
        "group_size",
        "groups",
        "rotations",
        "storage_full",
        "sync_points",
        "units",
    )

    def __init__(self) -> None:
        self.frames = 0
        #: Batches of frames that are applied together.
        self.units = 0
        self.groups = 0
        self.bytes = 0
        self.fsyncs = 0
        self.rotations = 0
        self.sync_points = 0
        self.storage_full = 0
        self.fsync_seconds = Histogram(FSYNC_BUCKETS_S)
        self.group_size = Histogram(GROUP_BUCKETS)
