"""Acquires the jobs for one share fetch from the queues of its session, one queue after another.

If there are none, it waits. An answer has a limited number of jobs, and roughly a limited number of bytes: jobs that
were claimed beyond that are released at once, which does not count as a delivery.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.kafka import cluster
from broker.kafka.cluster import LEADER_EPOCH
from broker.kafka.mapping import columns_of
from broker.kafka.messages.share import AcquiredRecords
from broker.kafka.records import write_batch
from storage.queues import MAX_JOBS, MAX_WAIT_MS

if TYPE_CHECKING:
    from broker.kafka.share.sessions import Session
    from broker.kafka.share.shares import Shares
    from storage.queues import ClaimedJob
    from storage.state import Topic

#: The largest answer, unless its only job is larger.
MAX_BYTES: Final = 64 << 20
#: The largest range of offsets in a batch, and the largest delivery count that fits the protocol.
_MAX_DELTA: Final = 1 << 30
_MAX_COUNT: Final = (1 << 15) - 1


class Room(NamedTuple):
    """The limits of an answer."""

    jobs: int
    bytes: int
    wait_ms: int


class Acquired(NamedTuple):
    """The result for one queue: its jobs, or why there are none."""

    topic: Topic
    jobs: Sequence[ClaimedJob] = ()
    error: Exception | None = None


async def acquire(shares: Shares, session: Session, topics: Sequence[Topic], room: Room) -> list[Acquired]:
    """Acquire jobs of these queues. Queues without a result are omitted."""
    found: list[Acquired] = []
    for topic in topics:
        remaining = room.jobs - sum(len(each.jobs) for each in found)
        if remaining > 0:
            found.append(await _one(shares, session, topic, Room(remaining, room.bytes, 0)))
    if topics and not any(each.jobs or each.error for each in found) and room.wait_ms > 0:
        found = await _first(shares, session, topics, room)
    return _fitting(shares, session, found, room)


async def _one(shares: Shares, session: Session, topic: Topic, room: Room) -> Acquired:
    # About as many as fit, by the mean size of records in the queue.
    log = topic.log
    fitting = room.bytes * log.count // log.bytes if log.count and log.bytes else MAX_JOBS
    count = max(1, min(room.jobs, fitting, MAX_JOBS))
    try:
        return Acquired(topic, await shares.claim(session, topic, count, min(room.wait_ms, MAX_WAIT_MS)))
    except Exception as error:
        return Acquired(topic, error=error)


async def _first(shares: Shares, session: Session, topics: Sequence[Topic], room: Room) -> list[Acquired]:
    """Wait until one of the queues has jobs."""
    if len(topics) == 1:
        return [await _one(shares, session, topics[0], room)]
    tasks = [asyncio.ensure_future(_one(shares, session, topic, room)) for topic in topics]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()  # it has claimed nothing, unless it has finished
        done = await asyncio.gather(*tasks, return_exceptions=True)
    return [each for each in done if isinstance(each, Acquired)]


def _fitting(shares: Shares, session: Session, found: Sequence[Acquired], room: Room) -> list[Acquired]:
    """Keep the jobs within the limits; release the others."""
    acquired: list[Acquired] = []
    jobs_left, bytes_left, empty = room.jobs, min(room.bytes, MAX_BYTES), True
    for each in found:
        count = 0
        for job in each.jobs:
            bytes_left -= len(job.record.body)
            if jobs_left <= 0 or (bytes_left < 0 and not empty):
                break
            jobs_left, empty, count = jobs_left - 1, False, count + 1
        topic_id, beyond = cluster.uuid_of(each.topic), each.jobs[count:]
        if beyond:
            leases = [(job.record.seq, job.lease_id) for job in beyond]
            shares.give_back(session, topic_id, leases, forgiven=True)
            bytes_left = 0
        if count or each.error is not None:
            acquired.append(each._replace(jobs=each.jobs[:count]))
    return acquired


def batches_of(jobs: Sequence[ClaimedJob]) -> list[bytes]:
    """Batches of these jobs, which are ordered by seq."""
    batches: list[bytes] = []
    begin = 0
    while begin < len(jobs):
        first = jobs[begin].record.seq
        end = next((at for at in range(begin, len(jobs)) if jobs[at].record.seq - first > _MAX_DELTA), len(jobs))
        seqs, columns = columns_of([job.record for job in jobs[begin:end]])
        batches.append(write_batch(first - 1, [seq - first for seq in seqs], columns, LEADER_EPOCH))
        begin = end
    return batches


def ranges_of(jobs: Sequence[ClaimedJob]) -> list[AcquiredRecords]:
    """Ranges of their offsets: consecutive jobs with the same delivery count are one range."""
    ranges: list[AcquiredRecords] = []
    for job in jobs:
        offset, count = job.record.seq - 1, min(job.deliveries, _MAX_COUNT)
        last = ranges[-1] if ranges else None
        if last is not None and last.last_offset == offset - 1 and last.delivery_count == count:
            last.last_offset = offset
        else:
            ranges.append(AcquiredRecords(first_offset=offset, last_offset=offset, delivery_count=count))
    return ranges
