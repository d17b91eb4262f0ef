"""Records of the jobs that will be claimed next, read from files along with those that are being claimed.

A look into a segment or into the log costs a hop to another thread, whatever it brings back; jobs are mostly claimed in
the order in which they lie there. So more is read than was asked for, and the next part before this one has been used
up: then a claim finds its records here, and waits for no read. What is kept has been checked, and does not change;
whether it is still a job is the table's to say. No read begins at what the tail cache has. Bounded by records and
bytes a queue, and by queues. Source: api.md §6 (claim order); architecture.md.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import StorageError
from storage.queues import reading
from storage.queues.reading import Found, Read, in_memory, sizes_of
from storage.records.spans import stretches
from storage.records.values import ReadQuery
from storage.state.catalog import Topic
from storage.state.queues.kept import Kept

if TYPE_CHECKING:
    from storage.engine import Engine

#: Read at once, at most.
RECORDS = 1000
BYTES = 256 << 10
#: Kept of one queue: what is not asked for is dropped, what was read first before the rest.
KEPT_RECORDS = 4 * RECORDS
KEPT_BYTES = 4 * BYTES
#: Queues of which something is kept.
QUEUES = 16


class _Reading(NamedTuple):
    """A read that is under way, of seqs first_seq to `last_seq` at most."""

    first_seq: int
    last_seq: int
    done: asyncio.Future[None]


class _Ahead:
    """What was read ahead of the claims of one queue.

    `next_seq`: where what comes next begins, 0: that is not known; `reach`: seqs that the last read went through.
    """

    __slots__ = ("kept", "next_seq", "reach", "under_way")

    def __init__(self) -> None:
        self.kept = Kept(KEPT_RECORDS, KEPT_BYTES)
        self.next_seq = self.reach = 0
        self.under_way: list[_Reading] = []


class ReadAhead:
    """What was read ahead of the claims, by topic_id."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._queues: OrderedDict[int, _Ahead] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, topic: Topic, seqs: Sequence[int]) -> Read | None:
        """The records of these jobs, no longer kept here, if all of them are.

        When less than two reads' worth is left, what comes next is begun to be read: many may come at a time.
        """
        ahead = self._queues.get(topic.topic_id)
        found = None if ahead is None else _taken(ahead, seqs)
        if ahead is None or found is None:
            return None
        self._queues.move_to_end(topic.topic_id)
        next_seq = ahead.next_seq
        is_low = next_seq - seqs[-1] <= 2 * ahead.reach
        if is_low and not ahead.under_way and 0 < next_seq <= topic.log.head and not in_memory(topic, next_seq):
            task = self._engine.loop.create_task(self._read(topic, ahead, self._begin(topic, ahead, next_seq)))
            self._tasks.add(task)  # the loop itself would let it be collected
            task.add_done_callback(self._tasks.discard)
        return found

    async def read(self, topic: Topic, seqs: Sequence[int]) -> Read | Found:
        """As `reading.read`, of jobs that are claimed for the first time, ascending; in columns when all is well."""
        ahead = self._of(topic)
        found = _taken(ahead, seqs)
        if found is not None:
            return found
        first, last = seqs[0], seqs[-1]
        # What lies in front of such a read was kept when it began.
        covering = next((each for each in ahead.under_way if each.first_seq <= last <= each.last_seq), None)
        if covering is not None:
            await asyncio.wait([covering.done])
        elif len(seqs) <= RECORDS and not in_memory(topic, first):
            # Should it fail, that may be about others: those asked for are read by themselves, and then it is told.
            await self._read(topic, ahead, self._begin(topic, ahead, first))
        found = _taken(ahead, seqs)
        if found is not None:
            return found
        for begin, end in stretches(seqs):  # too large to be read at once, or not all there: nobody else asks for the
            ahead.kept.drop(begin, end + 1)  # rest of them
        return await reading.read(self._engine, topic, seqs)

    def _of(self, topic: Topic) -> _Ahead:
        ahead = self._queues.setdefault(topic.topic_id, _Ahead())
        self._queues.move_to_end(topic.topic_id)
        if len(self._queues) > QUEUES:
            self._queues.popitem(last=False)
        return ahead

    def _begin(self, topic: Topic, ahead: _Ahead, first_seq: int) -> _Reading:
        last_seq = min(first_seq + RECORDS - 1, topic.log.head)  # what comes later is not in it
        under_way = _Reading(first_seq, last_seq, self._engine.loop.create_future())
        ahead.under_way.append(under_way)
        return under_way

    async def _read(self, topic: Topic, ahead: _Ahead, under_way: _Reading) -> None:
        """Keep what lies there. Where that cannot be had, nothing is kept, and nothing more is read unasked."""
        ahead.next_seq = 0
        try:
            query = ReadQuery(from_seq=under_way.first_seq - 1, limit=RECORDS, max_bytes=BYTES, skip_corrupt=True)
            result = await self._engine.reader.read(topic, query)
            ahead.kept.add(result.records)
            ahead.next_seq = result.next_from_seq + 1
            ahead.reach = ahead.next_seq - under_way.first_seq
        except StorageError:
            pass
        finally:
            ahead.under_way.remove(under_way)
            under_way.done.set_result(None)

    def forget(self, topic_id: int) -> None:
        """The queue is gone."""
        self._queues.pop(topic_id, None)

    async def stop(self) -> None:
        """What nobody waits for is not read to its end."""
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)


def _taken(ahead: _Ahead, seqs: Sequence[int]) -> Read | None:
    records = ahead.kept.take(seqs)
    return None if records is None else Read(records, sizes_of(records))
