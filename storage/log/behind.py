"""Syncs of a log behind its writer, for a log whose syncs take long: each one is an object that is put into a bucket.

Meanwhile the writer continues, and acknowledges writes that need no sync. One sync is in progress at a time. It covers
everything written before it began; later writes that need a sync wait for the next one. Syncs begin at least
`interval_ms` apart, except when the writer waits for one, or when FULL_BYTES are written: an object costs the same
whatever its size, so waiting saves money for small ones only.

Outcomes have the same order as without this: a submission is reported after the earlier ones of its log that wait. A
refused submission is reported after everything before it, and before everything after it.

With `threaded=False` the loop does the thread's work by `call_soon`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from storage.errors import StorageFailed
from storage.log.submission import Submission
from storage.platform import Clock

_log = structlog.get_logger("storage")


#: With so many bytes, a sync does not wait for the interval.
FULL_BYTES: Final = 128 * 1024


class PutLater(Protocol):
    """A file whose sync begins at one time and is carried out at another."""

    def begin_sync(self) -> Callable[[], None] | None:
        """Return what makes everything written so far durable (raises OSError); None: it is. Later writes are not
        part of it."""
        ...


class Synced(Protocol):
    """The files of the log. All calls are made with the lock held."""

    failed: OSError | None

    def begin_sync(self) -> Callable[[], None] | None:
        """Return what makes everything written so far durable, to be called without the lock; None: it is."""
        ...

    def end_sync(self, error: OSError | None) -> None: ...

    def is_synced(self) -> bool: ...

    def unsynced_bytes(self) -> int: ...

    def stop_for(self, error: Exception) -> None: ...

    def failure(self) -> StorageFailed: ...


class Behind:
    """See the module. `lock`: held by the writer while it writes."""

    def __init__(self, log: Synced, clock: Clock, interval_ms: int) -> None:
        self._log = log
        self._clock = clock
        self._interval_ns = interval_ms * 1_000_000
        self.lock = threading.Condition(threading.RLock())
        #: They wait for a sync that has not begun, or for what is in front of them, in order.
        self._late: list[Submission] = []
        #: The logs of all that wait, also for the sync under way; `_blocked`: a refused one is among them.
        self._held: set[int] = set()
        self._blocked = False
        self._wanted = self._hurry = self._in_progress = self._stopping = False
        self._last_ns = clock.monotonic_ns() - self._interval_ns
        self._thread: threading.Thread | None = None
        #: Without a thread: calls its argument soon.
        self._defer: Callable[[Callable[[], None]], object] | None = None
        self._report: Callable[[list[Submission]], None] = lambda _: None
        self._after: Callable[[], None] = lambda: None

    def start(
        self,
        report: Callable[[list[Submission]], None],
        after: Callable[[], None],
        defer: Callable[[Callable[[], None]], object] | None,
    ) -> None:
        """`report` gets outcomes in order; `after` is called behind each sync. `defer`: None for a thread."""
        self._report, self._after, self._defer = report, after, defer
        if defer is None:
            self._thread = threading.Thread(target=self._run, name="wal-sync", daemon=True)
            self._thread.start()

    # -- called by the writer, with the lock held ----------------------------------------------------------------------

    def accept(self, written: list[Submission]) -> None:
        """Report what needs no sync, and keep the others."""
        early: list[Submission] = []
        for each in written:
            refused = each.error is not None
            if self._blocked or refused or each.needs_sync or each.topic_id in self._held:
                self._blocked = self._blocked or refused
                self._held.add(each.topic_id)
                self._late.append(each)
            else:
                early.append(each)
        if early:
            self._report(early)
        if self._log.failed is not None and not self._in_progress:
            self._report_late([])
        elif self._late:
            self.want()

    def want(self) -> None:
        """Sync what is written, soon."""
        if self._wanted and not self._is_full():
            return
        self._wanted = True
        if self._defer is None:
            self.lock.notify_all()
        else:
            self._defer(self._push_if_wanted)

    def drain(self) -> None:
        """Return when everything written is durable and reported, or the log has failed."""
        while self._in_progress or self._late or not (self._log.is_synced() or self._log.failed is not None):
            if self._thread is None:
                self._push()
                continue
            self._wanted = self._hurry = True
            self.lock.notify_all()
            self.lock.wait()
        self._hurry = False

    # -- stopping ------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Drain, and end the thread."""
        with self.lock:
            self.drain()
            self._stopping = True
            self.lock.notify_all()
        if self._thread is not None:
            self._thread.join()

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self.lock:
                while not self._stopping and not (self._wanted and self._left_ns() <= 0):
                    self._clock.wait(self.lock, self._left_ns() / 1e9 if self._wanted else None)
                if self._stopping:
                    return
            self._push()

    def _left_ns(self) -> int:
        """How long the next sync has to wait; one without anything to write, or with much, need not."""
        if self._hurry or self._log.is_synced() or self._is_full():
            return 0
        return self._last_ns + self._interval_ns - self._clock.monotonic_ns()

    def _is_full(self) -> bool:
        return self._log.unsynced_bytes() >= FULL_BYTES

    def _push_if_wanted(self) -> None:
        if self._wanted:
            self._push()

    def _push(self) -> None:
        """One sync."""
        error: OSError | None = None
        with self.lock:
            self._wanted, self._in_progress = False, True
            late, self._late = self._late, []
            finish = self._log.begin_sync()
            if finish is not None:
                self._last_ns = self._clock.monotonic_ns()
        try:
            if finish is not None:
                finish()
        except OSError as found:
            error = found
        except Exception as defect:  # nobody is left waiting
            _log.exception("writer_crashed", shard=0)
            self._log.stop_for(defect)
        with self.lock:
            self._log.end_sync(error)
            self._in_progress = False
            self._report_late(late)
            self.lock.notify_all()
        self._after()

    def _report_late(self, late: list[Submission]) -> None:
        """Report these; after a failure, all that wait."""
        now, failed = self._clock.monotonic_ns(), self._log.failed is not None
        if failed:
            late += self._late
            self._late = []
        for each in late:
            each.synced_ns = now
            if failed and each.error is None:
                each.error = self._log.failure()
        self._held = {each.topic_id for each in self._late}
        self._blocked = any(each.error is not None for each in self._late)
        if late:
            self._report(late)
