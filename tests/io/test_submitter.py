"""Many threads, one ring: which entries are submitted together, which thread waits in the kernel, and that every thread
gets its result.
"""

from __future__ import annotations

import errno
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from storage.platform.io.ring import OP_NOP, Entry, Ring
from storage.platform.io.submitter import RingBroken, Submitter
from tests.support.backends import needs_io_uring


class ScriptedRing:
    """A ring that completes entries when the test says so. The result of an entry is its `offset`."""

    entries = 4
    completions = 6

    def __init__(self) -> None:
        self.submissions: list[list[int]] = []
        self.errors: deque[OSError] = deque()
        self.wait_errors: deque[OSError] = deque()
        self.takes: deque[int] = deque()
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()
        self.in_kernel = 0
        self._pushed: list[tuple[int, int]] = []
        self._flying: dict[int, int] = {}
        self._completed: list[tuple[int, int]] = []
        self._changed = threading.Condition()

    def push(self, entry: Entry, user_data: int) -> None:
        assert len(self._pushed) < self.entries
        self._pushed.append((user_data, entry.offset))

    def submit(self, count: int) -> int:
        self.entered.set()
        assert self.go_on.wait(10)
        if self.errors:
            raise self.errors.popleft()
        count = min(count, self.takes.popleft()) if self.takes else count
        taken, self._pushed = self._pushed[:count], self._pushed[count:]
        self.submissions.append([offset for _, offset in taken])
        with self._changed:
            self._flying.update(taken)
            assert len(self._flying) + len(self._completed) <= self.completions
            self._changed.notify_all()
        return count

    def wait(self, completions: int) -> None:
        if self.wait_errors:
            raise self.wait_errors.popleft()
        with self._changed:
            self.in_kernel += 1
            assert self.in_kernel == 1, "two threads wait in the kernel"
            assert self._changed.wait_for(lambda: len(self._completed) >= completions, 10)
            self.in_kernel -= 1

    def reap(self) -> list[tuple[int, int]]:
        with self._changed:
            found, self._completed = self._completed, []
            return found

    def complete(self, *offsets: int) -> None:
        """Complete the entries with these offsets."""
        with self._changed:
            for offset in offsets:
                assert self._changed.wait_for(lambda offset=offset: offset in self._flying.values(), 10)
                user_data = next(key for key, value in self._flying.items() if value == offset)
                del self._flying[user_data]
                self._completed.append((user_data, offset))
            self._changed.notify_all()

    def close(self) -> None:
        pass


class Threads:
    """Callers of one submitter, each a thread."""

    def __init__(self, ring: ScriptedRing) -> None:
        self.ring = ring
        self.submitter = Submitter(ring)
        self.pool = ThreadPoolExecutor(32)

    def run(self, *offsets: int) -> Future[list[int]]:
        return self.pool.submit(self._run, offsets)

    def _run(self, offsets: tuple[int, ...]) -> list[int]:
        return self.submitter.run([Entry(OP_NOP, -1, offset) for offset in offsets], None).results

    def until(self, what: Callable[[], bool]) -> None:
        give_up = time.monotonic() + 10
        while not what():
            assert time.monotonic() < give_up
            time.sleep(0.001)


@pytest.fixture
def threads() -> Threads:
    return Threads(ScriptedRing())


def test_results_come_in_the_order_of_the_entries(threads: Threads) -> None:
    done = threads.run(1, 2)
    threads.ring.complete(2, 1)
    assert done.result(10) == [1, 2]
    assert threads.ring.submissions == [[1, 2]]


def test_entries_queued_during_a_submission_share_the_next_submission(threads: Threads) -> None:
    ring = threads.ring
    ring.go_on.clear()
    first = threads.run(1)
    assert ring.entered.wait(10)
    others = [threads.run(2), threads.run(3), threads.run(4)]
    threads.until(lambda: len(threads.submitter._queue) == 3)
    ring.go_on.set()
    ring.complete(4, 3, 2, 1)
    assert [each.result(10) for each in (first, *others)] == [[1], [2], [3], [4]]
    assert [sorted(each) for each in ring.submissions] == [[1], [2, 3, 4]]
    assert (threads.submitter.submissions, threads.submitter.submitted) == (2, 4)


def test_a_request_does_not_wait_for_entries_of_other_requests(threads: Threads) -> None:
    leader = threads.run(1)
    threads.until(lambda: threads.ring.in_kernel == 1)
    quick = threads.run(2, 3)
    threads.ring.complete(2, 3)
    assert quick.result(10) == [2, 3]
    assert not leader.done()
    threads.ring.complete(1)
    assert leader.result(10) == [1]


def test_a_finished_leader_passes_the_lead_to_a_waiting_thread(threads: Threads) -> None:
    first = threads.run(1)
    threads.until(lambda: threads.ring.in_kernel == 1)
    others = [threads.run(2), threads.run(3)]
    threads.until(lambda: len(threads.submitter._waiting) == 2)
    threads.ring.complete(1)
    assert first.result(10) == [1]
    threads.ring.complete(3)
    threads.ring.complete(2)
    assert [each.result(10) for each in others] == [[2], [3]]
    last = threads.run(4)
    threads.ring.complete(4)
    assert last.result(10) == [4]


def test_entries_in_flight_never_exceed_the_completion_queue(threads: Threads) -> None:
    futures = [threads.run(10 * number, 10 * number + 1) for number in range(1, 8)]
    threads.until(lambda: len(threads.submitter._queue) == 4)
    pending = {offset for number in range(1, 8) for offset in (10 * number, 10 * number + 1)}
    while pending:
        threads.until(lambda: bool(threads.ring._flying))
        flying = set(threads.ring._flying.values())
        threads.ring.complete(*flying)
        pending -= flying
    assert [each.result(10) for each in futures] == [[10 * n, 10 * n + 1] for n in range(1, 8)]
    assert max(len(each) for each in threads.ring.submissions) <= 4


def test_a_request_in_two_submissions_is_marked_as_split(threads: Threads) -> None:
    threads.ring.takes.extend([1, 1])
    request = threads.pool.submit(threads.submitter.run, [Entry(OP_NOP, -1, 1), Entry(OP_NOP, -1, 2)], None)
    threads.ring.complete(1, 2)
    assert request.result(10).split
    assert threads.ring.submissions == [[1], [2]]
    whole = threads.pool.submit(threads.submitter.run, [Entry(OP_NOP, -1, 3), Entry(OP_NOP, -1, 4)], None)
    threads.ring.complete(3, 4)
    assert not whole.result(10).split


def test_only_requests_across_the_cut_are_marked_as_split(threads: Threads) -> None:
    threads.ring.go_on.clear()
    first = threads.run(1)
    assert threads.ring.entered.wait(10)
    run = threads.submitter.run
    pairs = [threads.pool.submit(run, [Entry(OP_NOP, -1, n), Entry(OP_NOP, -1, n + 1)], None) for n in (10, 20)]
    threads.until(lambda: len(threads.submitter._queue) == 2)
    threads.ring.takes.extend([1, 3])
    threads.ring.go_on.set()
    threads.ring.complete(1, 10, 11, 20, 21)
    assert first.result(10) == [1]
    assert sorted(each.result(10).split for each in pairs) == [False, True]
    assert [len(each) for each in threads.ring.submissions] == [1, 3, 1]


@pytest.mark.parametrize("code", [errno.EINTR, errno.EAGAIN, errno.EBUSY])
def test_an_interrupted_call_is_repeated(threads: Threads, code: int) -> None:
    threads.ring.errors.extend([OSError(code, "again")] * 3)
    threads.ring.wait_errors.extend([OSError(code, "again")] * 3)
    done = threads.run(1)
    threads.ring.complete(1)
    assert done.result(10) == [1]


def test_a_ring_that_takes_no_entry_is_broken(threads: Threads) -> None:
    threads.ring.takes.extend([0] * 20_000)
    with pytest.raises(RingBroken):
        threads.run(1).result(30)


@pytest.mark.parametrize("where", ["submit", "wait"])
def test_a_broken_ring_fails_waiting_and_later_requests(threads: Threads, where: str) -> None:
    threads.ring.go_on.clear()
    futures = [threads.run(1)]
    assert threads.ring.entered.wait(10)
    futures += [threads.run(number) for number in (2, 3)]
    threads.until(lambda: len(threads.submitter._queue) == 2)
    errors = threads.ring.errors if where == "submit" else threads.ring.wait_errors
    errors.append(OSError(errno.EFAULT, "broken"))
    threads.ring.go_on.set()
    for each in futures:
        with pytest.raises(RingBroken):
            each.result(10)
    with pytest.raises(RingBroken):
        threads.run(4).result(10)


def test_an_interrupted_leader_leaves_no_thread_waiting(threads: Threads) -> None:
    class Stopped(BaseException):
        pass

    ring, entered = threads.ring, threading.Event()
    others: list[Future[list[int]]] = []

    def stop(_: int) -> None:
        entered.set()
        threads.until(lambda: len(threads.submitter._waiting) == 1)
        raise Stopped

    ring.wait = stop  # type: ignore[method-assign]
    first = threads.run(1)
    assert entered.wait(10)
    others.append(threads.run(2))
    with pytest.raises(Stopped):
        first.result(10)
    with pytest.raises(RingBroken):
        others[0].result(10)


@needs_io_uring
def test_many_threads_on_a_real_ring_get_the_right_results() -> None:
    submitter = Submitter(Ring(8))

    def work(number: int) -> int:
        for round_ in range(300):
            results = submitter.run([Entry(OP_NOP, -1)] * (1 + (number + round_) % 4), None).results
            assert results == [0] * (1 + (number + round_) % 4)
        return number

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(work, range(12))) == list(range(12))
    assert submitter.submissions <= submitter.submitted
    assert submitter._in_flight == {}
    submitter.close()
