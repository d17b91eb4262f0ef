"""One ring for many threads: requests made at the same time go to the kernel in one submission.

A thread puts its entries in a queue and takes the lock. The holder of the lock submits everything in the queue. So
entries that arrive during a submission all go into the next one. One of the waiting threads, the leader, waits in the
kernel for all. The others sleep until the leader has their results, or until the leader has its own results and makes
one of them the next leader.
The submitter has no thread of its own: a single write and sync costs two calls and no change of threads.

Guarantees: a request's entries are submitted in order. `split` says that they did not all go in one submission, so a
link between them may not have held. The memory that entries point to is kept until the kernel is done with it.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Sequence

from storage.platform.io.ring import Entry, RingLike

#: Errors of a call on the ring after which the call is repeated.
_AGAIN = (errno.EINTR, errno.EAGAIN, errno.EBUSY)
_MOST_TRIES = 10_000

#: Requests whose memory the kernel may still use although nobody will get their results. The memory is never freed.
_ABANDONED: list[Request] = []


class RingBroken(OSError):
    """The ring itself failed: the outcome of the entries is unknown, and the kernel may still carry them out."""


class Request:
    """Entries of one caller and their results; `keep` is the memory they point to."""

    __slots__ = ("entries", "keep", "left", "results", "split", "wake")

    def __init__(self, entries: Sequence[Entry], keep: object) -> None:
        self.entries = entries
        self.keep = keep
        self.results = [0] * len(entries)
        self.left = len(entries)
        self.split = False
        #: Held by the waiting thread; released once, when the results are there or to make that thread the leader.
        self.wake = threading.Lock()


class Submitter:
    """Shared by the threads of an engine. Any thread may call every method."""

    def __init__(self, ring: RingLike) -> None:
        self._ring = ring
        #: Never held while waiting for a disk: the kernel passes slow work to its own threads.
        self._lock = threading.Lock()
        self._queue: deque[Request] = deque()
        self._in_flight: dict[int, tuple[Request, int]] = {}
        self._waiting: dict[Request, None] = {}  # submitted, asleep: the leader is not among them
        self._leading = False
        self._next_id = 1
        self._broken: RingBroken | None = None
        #: Submissions so far, and entries in them.
        self.submissions = 0
        self.submitted = 0

    @property
    def most_entries(self) -> int:
        """Most entries of a request."""
        return self._ring.entries

    def run(self, entries: Sequence[Entry], keep: object) -> Request:
        """Run the entries in the kernel; returns when each has its result. Raises RingBroken."""
        request = Request(entries, keep)
        request.wake.acquire()
        self._queue.append(request)
        try:
            if not self._lead_or_follow(request):
                request.wake.acquire()
            if request.left:
                self._lead(request)
        except BaseException as error:
            # No thread may keep waiting for a leader that is gone.
            with self._lock:
                self._break(error if isinstance(error, OSError) else OSError(errno.EIO, repr(error)))
            raise
        if request.left:
            assert self._broken is not None
            raise self._broken
        return request

    def _lead_or_follow(self, request: Request) -> bool:
        """Submit the queue, including the request unless another thread has submitted it. False when this thread must
        sleep until it is woken."""
        with self._lock:
            self._submit_queued()
            if self._broken is not None:
                raise self._broken
            if not request.left:
                return True  # other threads submitted and completed it while this thread waited for the lock
            if self._leading:
                self._waiting[request] = None
                return False
            self._leading = True
            return True

    # -- going out ---------------------------------------------------------------------------------------------------

    def _submit_queued(self) -> None:
        """Submit the queue as far as the rings have room. The caller holds the lock."""
        while self._queue and self._broken is None:
            taken: list[Request] = []
            count = 0
            while self._queue:
                more = len(self._queue[0].entries)
                if count + more > self._ring.entries or len(self._in_flight) + more > self._ring.completions:
                    break
                request = self._queue.popleft()
                for index, entry in enumerate(request.entries):
                    self._in_flight[self._next_id] = (request, index)
                    self._ring.push(entry, self._next_id)
                    self._next_id += 1
                count += more
                taken.append(request)
            if not taken:
                return  # the leader submits it when there is room
            self._submit_taken(taken, count)

    def _submit_taken(self, taken: list[Request], count: int) -> None:
        self.submissions += 1
        self.submitted += count
        done = tries = 0
        while done < count:
            try:
                took = self._ring.submit(count - done)
            except OSError as error:
                if error.errno not in _AGAIN or tries > _MOST_TRIES:
                    self._break(error)
                    return
                took = 0
            if took == 0:
                tries += 1
                if tries > _MOST_TRIES:
                    self._break(OSError(errno.EBUSY, "the ring takes no entries"))
                    return
                os.sched_yield()
                continue
            done += took
            if done < count:
                _mark_split(taken, done)

    # -- coming back ---------------------------------------------------------------------------------------------------

    def _lead(self, own: Request) -> None:
        """Wait in the kernel until `own` has its results, then make another thread the leader."""
        tries = 0
        while True:
            with self._lock:
                self._deliver()
                self._submit_queued()
                if not own.left or self._broken is not None:
                    self._choose_leader()
                    return
                # If it is the only request, the kernel wakes the thread once for all its entries.
                least = own.left if len(self._in_flight) == own.left else 1
            try:
                self._ring.wait(least)
            except OSError as error:
                tries += 1
                if error.errno not in _AGAIN or tries > _MOST_TRIES:
                    with self._lock:
                        self._break(error)

    def _deliver(self) -> None:
        for user_data, result in self._ring.reap():
            request, index = self._in_flight.pop(user_data)
            request.results[index] = result
            request.left -= 1
            if not request.left and request in self._waiting:
                del self._waiting[request]
                request.wake.release()

    def _choose_leader(self) -> None:
        """Make the thread that has waited longest the next leader, if any thread waits."""
        following = next(iter(self._waiting), None)
        if following is None:
            self._leading = False
        else:
            del self._waiting[following]
            following.wake.release()

    def _break(self, error: OSError) -> None:
        if self._broken is None:
            self._broken = RingBroken(error.errno, f"the ring failed: {error.strerror}")
            _ABANDONED.extend({request: None for request, _ in self._in_flight.values()})
            for request in self._waiting:
                request.wake.release()
            self._waiting.clear()

    def close(self) -> None:
        """Close the ring. No thread may be in `run`."""
        with self._lock:
            self._broken = self._broken or RingBroken(errno.EBADF, "the ring is closed")
            self._ring.close()


def _mark_split(taken: list[Request], done: int) -> None:
    """Mark the request whose entries are on both sides of the first `done` entries of a submission."""
    begin = 0
    for request in taken:
        end = begin + len(request.entries)
        if begin < done < end:
            request.split = True
        begin = end
