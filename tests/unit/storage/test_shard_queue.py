"""The queue in front of a writer is bounded, drops no submission, and completes submissions in order."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from typing import Any

import pytest

from storage.errors import StorageFailed, StorageFull, WalSaturated
from storage.log import split
from storage.log.submission import Submission
from storage.log.writer import Shard
from tests.unit.storage.shard_rig import ShardRig


class Queue:
    """A shard that runs inline, over a rig's log."""

    def __init__(self, **changes: Any) -> None:
        self.rig = ShardRig(**changes).open()
        self.failures = 0
        self.shard = Shard(
            0,
            self.rig.log,
            self.rig.options,
            self.rig.clock,
            lambda *_: None,
            lambda: None,
            lambda _: None,
            self._failed,
            threaded=False,
        )
        self.shard.start()

    def _failed(self, shard: Shard) -> None:
        self.failures += 1

    def submit(self, size: int = 100, **more: Any) -> tuple[Submission, asyncio.Future[int | None]]:
        each = self.rig.submission(size, **more)
        return each, self.shard.submit(each)


@pytest.fixture
async def queue() -> AsyncIterator[Queue]:
    queue = Queue(wal_queue_frames=20, wal_queue_bytes=10_000, wal_enqueue_timeout_ms=5)
    yield queue
    queue.rig.disk.clear_faults()
    await queue.shard.stop()


async def test_submissions_of_a_loop_step_form_a_single_group(queue: Queue) -> None:
    done = [queue.submit(sync=True)[1] for _ in range(10)]
    await asyncio.gather(*done)
    assert (queue.rig.log.stats.groups, queue.rig.log.stats.fsyncs) == (1, 1)


async def test_a_group_is_bounded_and_the_rest_follows(queue: Queue) -> None:
    done = [queue.submit(5 << 20)[1] for _ in range(3)]
    await asyncio.gather(*done)
    assert queue.rig.log.stats.groups == 2


async def test_queued_submissions_and_the_peak_are_counted(queue: Queue) -> None:
    done = [queue.submit(100)[1] for _ in range(7)]
    assert (queue.shard.queued_frames, queue.shard.queued_bytes) == (7, 700)
    await asyncio.gather(*done)
    assert (queue.shard.queued_frames, queue.shard.queued_bytes, queue.shard.peak_frames) == (0, 0, 7)


async def test_a_tenth_of_the_queue_is_reserved_for_internal_frames(queue: Queue) -> None:
    for _ in range(10):
        queue.submit(100)
    assert (queue.shard.has_room(8, 100), queue.shard.has_room(9, 100)) == (True, False)
    assert (queue.shard.has_room(10, 100, internal=True), queue.shard.has_room(11, 100, internal=True)) == (True, False)
    assert (queue.shard.has_room(1, 8000), queue.shard.has_room(1, 8001)) == (True, False)
    assert (queue.shard.has_room(1, 9000, internal=True), queue.shard.has_room(1, 9001, internal=True)) == (True, False)


async def test_an_empty_queue_accepts_a_write_larger_than_the_queue(queue: Queue) -> None:
    assert queue.shard.has_room(1000, 10**9)
    queue.submit(100)
    assert not queue.shard.has_room(1000, 10**9)


async def test_a_waiter_for_room_is_woken_when_there_is_room(queue: Queue) -> None:
    for _ in range(18):
        queue.submit(100)
    await queue.shard.wait_room(18, 100)
    assert queue.shard.queued_frames == 0


async def test_a_wait_for_room_beyond_the_timeout_fails_with_wal_saturated(queue: Queue) -> None:
    for _ in range(18):
        queue.rig.submission()
        queue.shard.submit(queue.rig.submission())
    queue.shard._drain_scheduled = True  # the writer is stuck
    queue.shard._queue.clear()
    with pytest.raises(WalSaturated) as caught:
        await queue.shard.wait_room(1, 1)
    assert caught.value.code == "wal_saturated"
    assert caught.value.outcome == "none"
    assert caught.value.detail["max"] == 20


async def test_the_applied_lsn_is_bounded_by_the_first_pending_submission(queue: Queue) -> None:
    places: list[int] = []
    post = queue.shard.post

    def watch(group: list[Submission]) -> None:
        post(group)
        places.append(split(queue.shard.applied_lsn)[1])

    queue.rig.log.on_written = watch
    queue.submit(100, topic_id=1, sync=True)
    _, last = queue.submit(100, topic_id=2)
    await last
    assert places == [0, 200], "the second one was settled first, but lies behind the first"


async def test_a_barrier_does_not_move_the_applied_lsn_back(queue: Queue) -> None:
    await queue.submit(100)[1]
    before = queue.shard.applied_lsn
    barrier = Submission(queue.rig.submission().unit, b"", frames=0, topic_id=0, ts=5, needs_sync=True, frees=True)
    await queue.shard.submit(barrier)
    assert queue.shard.applied_lsn == before == queue.rig.log.end_lsn


async def test_a_shard_failure_is_reported_once(queue: Queue) -> None:
    queue.rig.disk.fail("pwritev", "*/wal-*", errno=errno.EIO)
    for _ in range(3):
        with pytest.raises(StorageFailed):
            await queue.submit(100)[1]
    assert queue.failures == 1
    with pytest.raises(StorageFailed):
        queue.shard.refuse_when_full()


async def test_a_full_shard_refuses_writes_without_a_seq(queue: Queue) -> None:
    queue.rig.disk.fail("pwritev", "*/wal-*", errno=errno.ENOSPC)
    queue.rig.disk.fail("allocate", errno=errno.ENOSPC, sticky=True)
    with pytest.raises(StorageFull):
        await queue.submit(100)[1]
    queue.rig.log.full = True
    with pytest.raises(StorageFull):
        queue.shard.refuse_when_full()


async def test_dirty_bytes_are_synced_by_the_timer(queue: Queue) -> None:
    await queue.submit(100)[1]
    interval_ms = queue.rig.options.disk_sync_ms
    queue.rig.clock.tick(interval_ms - 1)
    queue.shard.harden()
    assert queue.rig.log.stats.fsyncs == 0
    queue.rig.clock.tick(1)
    queue.shard.harden()
    assert (queue.rig.log.stats.fsyncs, queue.rig.log.dirty_since_ns) == (1, None)
    queue.rig.clock.tick(10_000)
    queue.shard.harden()
    assert queue.rig.log.stats.fsyncs == 1


async def test_space_is_looked_for_twice_a_second(queue: Queue) -> None:
    queue.rig.disk.fail("pwritev", "*/wal-*", errno=errno.ENOSPC)
    queue.rig.disk.fail("allocate", errno=errno.ENOSPC, sticky=True)
    with pytest.raises(StorageFull):
        await queue.submit(100)[1]
    queue.rig.log.full = True
    queue.rig.disk.clear_faults()
    queue.rig.clock.tick(500)
    queue.shard.harden()
    assert not queue.rig.log.full
    queue.shard.refuse_when_full()


async def test_a_stop_writes_and_completes_queued_submissions() -> None:
    queue = Queue()
    submissions = [queue.submit(100) for _ in range(5)]
    await queue.shard.stop()
    assert all(done.done() and done.exception() is None for _, done in submissions)
    assert [seq for _, seq in queue.rig.frames(1)] == [1, 2, 3, 4, 5]


async def test_a_defect_in_the_writer_fails_all_submissions(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, sync: bool) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(queue.rig.log, "_write", broken)
    submissions = [queue.submit(100) for _ in range(3)]
    for _, done in submissions:
        with pytest.raises(StorageFailed):
            await done
    assert queue.failures == 1
