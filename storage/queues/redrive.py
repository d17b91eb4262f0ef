"""Moves dead jobs back to the queue that they came from.

Source: docs/reference/api.md#queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from storage.errors import InvalidRequest, StorageError
from storage.format import Lease
from storage.queues.dead_letter import AT_ONCE, MAX_MOVES, SIDE_BY_SIDE, Mover
from storage.queues.dead_meta import came_from
from storage.queues.lease_queue import SharedQueues
from storage.queues.targets import Target
from storage.records import ReadQuery
from storage.state import Topic
from storage.state.queues import READY, Redriven

MAX_JOBS = 10_000
#: A call without a rate moves jobs for this long, and then counts the remaining ones for no longer than this.
STEP_MS = 1000
#: The most seqs remembered from one call to the next, for one topic and queue.
MOST_SEEN = 1 << 17


class ScannedRecords:
    """Which records of a topic, up to `reached`, were jobs of a queue. A record's origin never changes, so each call
    examines only later records. Whether they still exist is checked each time."""

    __slots__ = ("queue", "reached", "seqs", "topic_id")

    def __init__(self, topic_id: int, queue: str) -> None:
        self.topic_id = topic_id
        self.queue = queue
        self.seqs: list[int] = []
        self.reached = 0


class Redriving(Protocol):
    """What a redrive uses, and what it remembers."""

    mover: Mover
    seen: ScannedRecords | None


async def redrive(
    shared: SharedQueues,
    queues: Redriving,
    queue: Target,
    source_name: str,
    count: int,
    rate_per_s: float | None,
    *,
    dry_run: bool,
    seqs: Sequence[int] | None = None,
) -> Redriven:
    """See `Queues.redrive`. Jobs that the queue refuses stay where they are."""
    if not 0 < count <= MAX_JOBS:
        raise InvalidRequest(f"max must be 1 to {MAX_JOBS}.", field="max")
    if rate_per_s is not None and rate_per_s <= 0:
        raise InvalidRequest("rate_per_s must be more than 0.", field="rate_per_s")
    source = shared.logs.topic(source_name)
    if source.topic_id == queue.topic_id:
        raise InvalidRequest("from: a queue is not redriven from itself.", field="from")
    if seqs is None:
        wanted, more = await _found(shared, queues, source, queue.name, count, whole=dry_run)
    else:
        named = await _named(shared, queues.mover, source, queue.name, seqs)
        wanted, more = named[:count], max(0, len(named) - count)
    if dry_run:
        return Redriven(moved=len(wanted), remaining=more)
    moved, began_ns = 0, shared.logs.clock.monotonic_ns()
    step = AT_ONCE * MAX_MOVES if rate_per_s is None else max(1, min(SIDE_BY_SIDE, int(rate_per_s)))
    for begin in range(0, len(wanted), step):
        if rate_per_s is not None and begin:
            await shared.logs.clock.sleep(step / rate_per_s)
        elif begin and shared.logs.clock.monotonic_ns() - began_ns >= STEP_MS * 1_000_000:
            break  # the rest is reported, and the next call continues from there
        before, several = moved, wanted[begin : begin + step]
        try:
            moved += await _move(shared, queues.mover, source, queue, several)
        except StorageError:
            if not moved:
                raise
            break
        finally:
            if moved - before < len(several):
                queues.seen = None  # the next examination skips records that have become unreadable
    return Redriven(moved=moved, remaining=len(wanted) + more - moved)


async def _found(
    shared: SharedQueues, queues: Redriving, source: Topic, queue: str, count: int, *, whole: bool
) -> tuple[list[int], int]:
    """The seqs of the first `count` records of `source` that were jobs of `queue` and are not held, and how many more
    follow.

    Unless `whole` is set, counting ends after STEP_MS. Then at least that many follow; the number is never 0.
    """
    clock = shared.logs.clock
    until_ns = clock.monotonic_ns() + STEP_MS * 1_000_000
    seen = queues.seen = _seen(queues, source, queue)
    free = _free(queues.mover, source, seen.seqs)
    reader, seqs, more, at = shared.reader, free[:count], max(0, len(free) - count), seen.reached
    while at < source.log.head:
        result = await reader.read(source, ReadQuery(from_seq=at, limit=1000, skip_corrupt=True, max_bytes=8 << 20))
        ours = [each.seq for each in result.records if came_from(each.body) == queue]
        free = _free(queues.mover, source, ours)
        more += max(0, len(seqs) + len(free) - count)
        seqs += free[: count - len(seqs)]
        if result.next_from_seq <= at:
            break
        if seen.reached == at and len(seen.seqs) + len(ours) <= MOST_SEEN and not source.config.ttl_ms:
            seen.seqs += ours
            seen.reached = result.next_from_seq
        at = result.next_from_seq
        if not whole and len(seqs) == count and at < source.log.head and clock.monotonic_ns() >= until_ns:
            return seqs, max(1, more)
        await asyncio.sleep(0)
    return seqs, more


async def _named(shared: SharedQueues, mover: Mover, source: Topic, queue: str, seqs: Sequence[int]) -> list[int]:
    """Those of these records of `source` that were jobs of `queue` and are not held, each once, by seq."""
    ours: list[int] = []
    for seq in source.log.live_of(sorted({*seqs})):
        result = await shared.reader.read(source, ReadQuery(from_seq=seq - 1, limit=1, skip_corrupt=True))
        # If the record is damaged, the read returns the one after it, which was not asked for.
        ours += [each.seq for each in result.records if each.seq == seq and came_from(each.body) == queue]
        await asyncio.sleep(0)
    return _free(mover, source, ours)


def _seen(queues: Redriving, source: Topic, queue: str) -> ScannedRecords:
    """What is remembered of these two topics, as far as it still exists."""
    seen = queues.seen
    if seen is None or (seen.topic_id, seen.queue) != (source.topic_id, queue) or source.config.ttl_ms:
        return ScannedRecords(source.topic_id, queue)
    seen.seqs = source.log.live_of(seen.seqs)
    return seen


def _free(mover: Mover, source: Topic, seqs: list[int]) -> list[int]:
    """Those of these seqs that are neither leased nor being moved."""
    out, opening, table = source.log.moves.out, mover.opening, source.log.queue
    if out or opening:
        seqs = [seq for seq in seqs if seq not in out and (source.topic_id, seq) not in opening]
    if table is None or not table.knows_any(seqs):
        return seqs
    jobs = zip(seqs, map(table.find, seqs), strict=True)
    return [seq for seq, job in jobs if job is None or job.state == READY]


async def _move(shared: SharedQueues, mover: Mover, source: Topic, queue: Target, seqs: list[int]) -> int:
    """Open the moves of these records and carry them out. Returns how many completed. Raises the error if all were
    refused."""
    seqs = source.log.live_of(_free(mover, source, seqs))
    if not seqs:
        return 0
    table = source.log.queue
    held = table.hold_seqs(seqs) if table is not None else []
    value = Lease(event="dead", jobs=[(seq, 0, 0, 0, 0, 0) for seq in seqs], dest_id=queue.topic_id)
    opening = {(source.topic_id, seq) for seq in seqs}
    mover.opening |= opening

    def opened(done: asyncio.Future[None]) -> None:
        mover.opening -= opening
        if table is not None and (done.cancelled() or done.exception() is not None):
            table.put_back(held)

    committing = asyncio.ensure_future(shared.commit(source, [value], sync=True))
    committing.add_done_callback(opened)
    try:
        await asyncio.shield(committing)
    except asyncio.CancelledError:
        committing.add_done_callback(lambda _: mover.kick(source))  # the frame is in flight in any case
        raise
    try:
        moved_jobs = await mover.move_many(source, seqs)
        moved, errors, refused = len(moved_jobs.moved), list[BaseException](), list[int]()
        for begin in range(0, len(moved_jobs.remaining), SIDE_BY_SIDE):
            left = moved_jobs.remaining[begin : begin + SIDE_BY_SIDE]
            outcomes = await asyncio.gather(*(mover.move(source, seq) for seq in left), return_exceptions=True)
            errors += [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
            refused += [seq for seq, outcome in zip(left, outcomes, strict=True) if isinstance(outcome, BaseException)]
            moved += outcomes.count(True)
        await mover.call_off(source, refused)
    finally:
        mover.kick(source)  # also if the caller is gone: open moves are carried out
    if len(errors) == len(seqs):
        raise errors[0]
    return moved
