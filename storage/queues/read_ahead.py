"""Reads the records of jobs that will be claimed next, together with those being claimed.

A read of a segment or the log costs a hop to another thread, whatever it returns, and jobs are mostly claimed in the
order in which they are stored. So each read fetches more than was asked for, and the next read begins before these
records are used up. Then a claim finds its records here and waits for no read. The records have been checked and do not
change; the table decides whether they are still jobs. No read begins in the tail cache. Records and bytes are limited
for each queue, and the number of queues is limited too.

Source: docs/reference/api.md#queues, docs/architecture.md.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from storage.errors import StorageError
from storage.log import Logs
from storage.queues import job_records
from storage.queues.job_records import FoundJobs, in_memory, sizes_of
from storage.queues.prefetched import PrefetchedRecords
from storage.reads import Reader
from storage.records import ReadQuery
from storage.state import SizedRecords, Topic, consecutive_ranges

#: The most records in one read.
RECORDS = 1000
BYTES = 256 << 10
#: The most records held for one queue. Unused ones are dropped, the oldest reads first.
PREFETCH_RECORDS = 4 * RECORDS
PREFETCH_BYTES = 4 * BYTES
#: The most queues with records held.
QUEUES = 16


class _Reading(NamedTuple):
    """A read in progress, of seqs `first_seq` to `last_seq` at most."""

    first_seq: int
    last_seq: int
    done: asyncio.Future[None]


class _Ahead:
    """The records read ahead for the claims of one queue.

    `next_seq`: where the next read begins, 0 if unknown. `reach`: the seq up to which the last read went.
    """

    __slots__ = ("next_seq", "prefetched", "reach", "under_way")

    def __init__(self) -> None:
        self.prefetched = PrefetchedRecords(PREFETCH_RECORDS, PREFETCH_BYTES)
        self.next_seq = self.reach = 0
        self.under_way: list[_Reading] = []


class ReadAhead:
    """Records read ahead of the claims, by topic_id."""

    def __init__(self, logs: Logs, reader: Reader) -> None:
        self._runtime = logs.runtime
        self._reader = reader
        self._queues: OrderedDict[int, _Ahead] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, topic: Topic, seqs: Sequence[int]) -> SizedRecords | None:
        """Remove and return the records of these jobs, if all of them are here.

        When less than two reads' worth remains, the next read begins: many claims may come at once.
        """
        ahead = self._queues.get(topic.topic_id)
        found = None if ahead is None else _taken(ahead, seqs)
        if ahead is None or found is None:
            return None
        self._queues.move_to_end(topic.topic_id)
        next_seq = ahead.next_seq
        is_low = next_seq - seqs[-1] <= 2 * ahead.reach
        if is_low and not ahead.under_way and 0 < next_seq <= topic.log.head and not in_memory(topic, next_seq):
            task = self._runtime.loop.create_task(self._read(topic, ahead, self._begin(topic, ahead, next_seq)))
            self._tasks.add(task)  # the loop alone would let the task be collected
            task.add_done_callback(self._tasks.discard)
        return found

    async def read(self, topic: Topic, seqs: Sequence[int]) -> SizedRecords | FoundJobs:
        """Like `job_records.read`, for jobs that are claimed for the first time, in ascending order. Returns columns if
        nothing is wrong."""
        ahead = self._of(topic)
        found = _taken(ahead, seqs)
        if found is not None:
            return found
        first, last = seqs[0], seqs[-1]
        # Records before such a read were held when it began.
        covering = next((each for each in ahead.under_way if each.first_seq <= last <= each.last_seq), None)
        if covering is not None:
            await asyncio.wait([covering.done])
        elif len(seqs) <= RECORDS and not in_memory(topic, first):
            # The failure may concern other records. Read those asked for alone, and report what that says.
            await self._read(topic, ahead, self._begin(topic, ahead, first))
        found = _taken(ahead, seqs)
        if found is not None:
            return found
        # Too large for one read, or incomplete: no other claim asks for the rest of these records.
        for begin, end in consecutive_ranges(seqs):
            ahead.prefetched.drop(begin, end + 1)
        return await job_records.read(self._reader, topic, seqs)

    def _of(self, topic: Topic) -> _Ahead:
        ahead = self._queues.setdefault(topic.topic_id, _Ahead())
        self._queues.move_to_end(topic.topic_id)
        if len(self._queues) > QUEUES:
            self._queues.popitem(last=False)
        return ahead

    def _begin(self, topic: Topic, ahead: _Ahead, first_seq: int) -> _Reading:
        last_seq = min(first_seq + RECORDS - 1, topic.log.head)  # it does not contain later records
        under_way = _Reading(first_seq, last_seq, self._runtime.loop.create_future())
        ahead.under_way.append(under_way)
        return under_way

    async def _read(self, topic: Topic, ahead: _Ahead, under_way: _Reading) -> None:
        """Hold the records. If the read fails, none are held, and no more are read ahead."""
        ahead.next_seq = 0
        try:
            query = ReadQuery(from_seq=under_way.first_seq - 1, limit=RECORDS, max_bytes=BYTES, skip_corrupt=True)
            result = await self._reader.read(topic, query)
            ahead.prefetched.add(result.records)
            ahead.next_seq = result.next_from_seq + 1
            ahead.reach = ahead.next_seq - under_way.first_seq
        except StorageError:
            pass
        finally:
            ahead.under_way.remove(under_way)
            under_way.done.set_result(None)

    def forget(self, topic_id: int) -> None:
        """The queue was deleted."""
        self._queues.pop(topic_id, None)

    async def stop(self) -> None:
        """Cancel reads that nobody waits for."""
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)


def _taken(ahead: _Ahead, seqs: Sequence[int]) -> SizedRecords | None:
    records = ahead.prefetched.take(seqs)
    return None if records is None else SizedRecords(records, sizes_of(records))
