"""A shard as the event loop sees it: a bounded queue in front of the one thread that touches its files.

The loop enqueues; the thread takes everything that waits, commits it as one group and posts the outcome back, in
order. With `threaded=False` the same work is done on the loop by `call_soon`, so that a test can crash it after
every call to the disk and get the same run twice.

Source: docs/reference/guarantees.md#crash-points-of-a-write.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import structlog

from storage.errors import StorageFull, WalSaturated
from storage.log.commit_window import CommitWindow
from storage.log.shard_log import ShardLog
from storage.log.submission import Outcome, Submission
from storage.options import Options
from storage.platform.clock import Clock

_log = structlog.get_logger("storage")

RESUME_INTERVAL_NS = 500_000_000
GROUP_MAX_BYTES = 8 << 20


class Shard:
    """Queue, thread and outcome of one shard. All methods but `_run` are the loop's."""

    def __init__(
        self,
        index: int,
        log: ShardLog,
        options: Options,
        clock: Clock,
        on_complete: Callable[[Shard, Submission], None],
        failed: Callable[[Shard], None],
        *,
        threaded: bool = True,
    ) -> None:
        self.index = index
        self.log = log
        self._options = options
        self._clock = clock
        self._on_complete = on_complete
        self._failed = failed
        self._threaded = threaded
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Submission] = deque()
        #: Writes that came to the queue, counted by the loop, and that were taken from it, counted by the thread.
        self._came = self._taken = 0
        #: Whether one of the group under way is acked only after a sync.
        self._wants_sync = False
        self._condition = threading.Condition()
        self._wake_at = 1
        self._stopping = False
        self._failure_reported = False
        #: A commit could not be applied: its log's state is unknown until the next start.
        self._defect = False
        self._drain_scheduled = False
        self._thread: threading.Thread | None = None
        self._window = CommitWindow(options.gc_min_us, options.gc_max_us)
        #: When the writer was last done with a group.
        self._worked_ns = self._clock.monotonic_ns()
        #: How many writes came while a group was synced: those that wait when the first of it is answered.
        self._came_meanwhile: int | None = None
        self._resume_at_ns = 0
        self._room_waiters: deque[asyncio.Future[None]] = deque()
        #: Writes of a generation build on one another's seqs; a failure ends the generation.
        self.generation = 0
        #: Called on the loop after a sync, for as long as it is set.
        self.on_synced: Callable[[], None] | None = None
        self._syncs_reported = 0
        #: In flight, in the order of the log. The first one's place bounds what a snapshot may call applied.
        self.unresolved: deque[Submission] = deque()
        #: Everything of this shard below this place has been applied.
        self.applied_lsn = log.end_lsn
        self.queued_frames = 0
        self.queued_bytes = 0
        self.peak_frames = 0

    # -- enqueueing --------------------------------------------------------------------------------------------------

    def has_room(self, frames: int, size_bytes: int, *, internal: bool = False) -> bool:
        """Whether so much more fits. A tenth of the queue is kept for internal frames."""
        if not self.unresolved:
            return True  # a single write larger than the queue must be possible
        share = 10 if internal else 9
        return (
            self.queued_frames + frames <= self._options.wal_queue_frames * share // 10
            and self.queued_bytes + size_bytes <= self._options.wal_queue_bytes * share // 10
        )

    @property
    def fill(self) -> float:
        """How full the queue is, 0 to 1."""
        options = self._options
        return max(self.queued_frames / options.wal_queue_frames, self.queued_bytes / options.wal_queue_bytes)

    @property
    def waiting_for_room(self) -> int:
        """How many writes are held because the queue is full."""
        return len(self._room_waiters)

    def oldest_ms(self) -> float:
        """How long the oldest write has waited that is not committed; 0 when there is none."""
        if not self.unresolved:
            return 0.0
        return (self._clock.monotonic_ns() - self.unresolved[0].enqueued_ns) / 1e6

    def widen_window(self, factor: int) -> None:
        """A group commit waits for this many times the writes it would wait for."""
        self._window.pressure_factor = factor

    async def wait_room(self, frames: int, size_bytes: int, waited_ns: int = 0) -> None:
        """Wait until so much fits. Raises WalSaturated after the enqueue timeout, of which `waited_ns` are over: others
        may have taken the room that was waited for."""
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
        """Enqueue; the future gives what `apply` returned, or the error."""
        done: asyncio.Future[int | None] = self._loop.create_future()
        self.enqueue(each, done)
        return done

    def enqueue(self, each: Submission, outcome: Outcome) -> None:
        """Enqueue; `outcome` is told what `apply` returned, or the error."""
        each.done = outcome
        each.enqueued_ns = self._clock.monotonic_ns()
        self.unresolved.append(each)
        self.queued_frames += each.frames
        self.queued_bytes += len(each.payload)
        if self.queued_frames > self.peak_frames:
            self.peak_frames = self.queued_frames
        self._queue.append(each)
        self._came += each.writers
        self._wake()

    def _wake(self) -> None:
        if not self._threaded:
            if not self._drain_scheduled:
                self._drain_scheduled = True
                self._loop.call_soon(self._drain_inline)
        elif self._came - self._taken >= self._wake_at:
            with self._condition:
                self._condition.notify()

    @property
    def _waiting(self) -> int:
        """How many writes wait in the queue: a submission may be of several."""
        return self._came - self._taken

    @property
    def completed_end(self) -> int:
        """The end of the last unit whose outcome is known, or of all that is known: nothing settled is behind it.

        Units in front of it may still wait for their sync, which the next one issued covers.
        """
        ends = [each.lsn + len(each.payload) for each in self.unresolved if each.resolved and each.error is None]
        return max([self.applied_lsn, *ends])

    # -- the outcome -------------------------------------------------------------------------------------------------

    def post(self, group: list[Submission]) -> None:
        """Called by the log, on the thread: bring the outcome to the loop."""
        if self._came_meanwhile is None:
            self._came_meanwhile = self._came - self._taken  # from here on those may be among them who are answered now
        for each in group:
            each.posted = True
        self._call(self._resolve, group)

    def _call(self, callback: Callable[[Any], None], argument: Any) -> None:
        if self._threaded:
            self._loop.call_soon_threadsafe(callback, argument)
        else:
            callback(argument)

    def _resolve(self, group: list[Submission]) -> None:
        for each in group:
            self.queued_frames -= each.frames
            self.queued_bytes -= len(each.payload)
            each.resolved = True
            self._complete(each)
        while self.unresolved and self.unresolved[0].resolved:
            first = self.unresolved.popleft()
            # In the order of the log: a disk-class write is settled before the fsync-class one in front of it.
            if first.error is None and first.payload:
                self.applied_lsn = first.lsn + len(first.payload)
        while self._room_waiters:
            waiter = self._room_waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def _complete(self, each: Submission) -> None:
        """What cannot be applied stops the shard, as what cannot be synced does: nobody is left waiting for it."""
        if self._defect and each.error is None:
            each.error = self.log.failure()  # it builds on a state that nobody knows
        try:
            self._on_complete(self, each)
        except Exception as error:
            _log.exception("commit_not_applied", shard=self.index)
            self._defect = True
            self.log.stop_for(error)
            each.error = self.log.failure()
            if each.done is not None and not each.done.done():
                each.done.set_exception(each.error)
            if not self._failure_reported:
                self._failure_reported = True
                self._failed(self)

    def refuse_when_full(self) -> None:
        """Raises what a write would be told anyway, before it is given a seq."""
        if self.log.failed is not None:
            raise self.log.failure()
        if self.log.full:
            raise StorageFull()

    # -- the writer --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to write. The log has been opened."""
        if self._threaded:
            self._thread = threading.Thread(target=self._run, name=f"wal-{self.index}", daemon=True)
            self._thread.start()

    def _take(self) -> list[Submission]:
        group: list[Submission] = []
        size = 0
        self._wants_sync = False
        queue = self._queue
        while queue and size < GROUP_MAX_BYTES:
            each = queue.popleft()
            size += len(each.payload)
            self._taken += each.writers
            self._wants_sync = self._wants_sync or each.needs_sync
            group.append(each)
        return group

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._queue and not self._stopping:
                    self._wake_at = 1
                    # Re-checked under the lock: a submission that came before `_wake_at` was set did not notify.
                    if self._queue:
                        break
                    if not self._clock.wait(self._condition, self._next_chore_s()):
                        break
                self._gather()
            self._work()
            if self._stopping and not self._queue:
                return

    def _gather(self) -> None:
        """Wait for more writes, if earlier groups had several. Called with the condition held."""
        before = self._came - self._taken
        wanted, window_ns = self._window.wait_for(before)
        if not wanted or not before or self._stopping:
            return
        began = self._clock.monotonic_ns()
        deadline = began + window_ns
        self._wake_at = wanted
        while self._waiting < wanted and not self._stopping:
            left = deadline - self._clock.monotonic_ns()
            if left <= 0 or not self._clock.wait(self._condition, left / 1e9):
                break
        self._wake_at = 1
        self._window.waited(before, self._waiting, self._clock.monotonic_ns() - began)

    def _work(self) -> None:
        taken = self._taken
        group = self._take()
        if group:
            began = self._clock.monotonic_ns()
            self._came_meanwhile = None
            self._commit(group)
            ended = self._clock.monotonic_ns()
            if self._wants_sync:
                idle_ns = began - self._worked_ns
                waiting, writers = self._came_meanwhile or 0, self._taken - taken
                self._window.committed(writers, waiting, gathering_ns=idle_ns, syncing_ns=ended - began)
            self._worked_ns = ended
        if self.log.dirty_since_ns is not None or self.log.full:
            self.harden()
        if self.on_synced is not None and self.log.syncs != self._syncs_reported:
            self._syncs_reported = self.log.syncs
            self._call(Shard._report_synced, self)
        if self.log.failed is not None and not self._failure_reported:
            self._failure_reported = True
            self._call(self._failed, self)

    def _report_synced(self) -> None:
        if self.on_synced is not None:
            self.on_synced()

    def _commit(self, group: list[Submission]) -> None:
        try:
            self.log.commit(group)
        except Exception as error:
            # A defect, not a disk: what was written is unknown, so the shard stops, and nobody is left waiting.
            _log.exception("writer_crashed", shard=self.index)
            self.log.stop_for(error)
            left = [each for each in group if not each.posted]
            for each in left:
                each.error = self.log.failure()
            self.post(left)

    def harden(self) -> None:
        """Chores between groups: sync what has been waiting for the timer, look for space when full."""
        now = self._clock.monotonic_ns()
        since = self.log.dirty_since_ns
        if since is not None and now - since >= self._sync_after_ns():
            self.log.sync()
        if self.log.full and self.log.failed is None and now >= self._resume_at_ns:
            self._resume_at_ns = now + RESUME_INTERVAL_NS
            self.log.resume()

    def _sync_after_ns(self) -> int:
        """How long what is written may wait for its sync; what is in a hurry only for more writes, as a group does."""
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

    def _drain_inline(self) -> None:
        self._drain_scheduled = False
        self._work()
        if self._queue:
            self._wake()

    async def stop(self) -> None:
        """Write and settle what waits, sync, close the file. Raises OSError when that last sync fails."""
        if self._thread is not None:
            with self._condition:
                self._stopping = True
                self._condition.notify()
            await self._loop.run_in_executor(None, self._thread.join)
        while self._queue:
            self._work()
        await asyncio.sleep(0)  # lets the outcomes posted by the thread settle
        if self._thread is not None:
            await self._loop.run_in_executor(None, self.log.close)
        else:
            self.log.close()
