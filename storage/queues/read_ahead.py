"""Records of the jobs that will be claimed next, read from segments along with those that are being claimed.

A look into a segment costs a hop to another thread, whatever it brings back; jobs are mostly claimed in the order in
which they lie there. What is kept has been checked, and does not change; whether it is still a job is the table's to
say. Bounded by records and bytes a queue, and by queues. Source: api.md §6 (claim order); architecture.md.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from storage.catalog import Topic
from storage.errors import StorageError
from storage.queues import reading
from storage.queues.kept import Kept
from storage.queues.reading import Found, Read, sizes_of
from storage.read import Reader
from storage.records import ReadQuery
from storage.spans import stretches

if TYPE_CHECKING:
    from storage.core import EngineCore

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


class ReadAhead:
    """What was read ahead of the claims, by topic_id."""

    def __init__(self, engine: EngineCore) -> None:
        self._engine = engine
        self._kept: OrderedDict[int, Kept] = OrderedDict()
        self._under_way: dict[int, list[_Reading]] = {}

    def take(self, topic: Topic, seqs: Sequence[int]) -> Read | None:
        """The records of these jobs, no longer kept here, if all of them are."""
        kept = self._kept.get(topic.topic_id)
        records = None if kept is None else kept.take(seqs)
        return None if records is None else Read(records, sizes_of(records))

    async def read(self, topic: Topic, seqs: Sequence[int]) -> Read | Found:
        """As `reading.read`, of jobs that are claimed for the first time, ascending; in columns when all is well."""
        found = self.take(topic, seqs)
        if found is not None:
            return found
        first, last = seqs[0], seqs[-1]
        others = self._under_way.setdefault(topic.topic_id, [])
        covering = next((each for each in others if each.first_seq <= first and last <= each.last_seq), None)
        if covering is not None:
            await asyncio.wait([covering.done])
        elif last <= topic.log.held.absorbed and last - first < RECORDS:
            under_way = _Reading(first, first + RECORDS - 1, self._engine.loop.create_future())
            others.append(under_way)
            try:
                await self._read(topic, first)
            except StorageError:
                pass  # it may have been about others: those asked for are read by themselves, and then it is told
            finally:
                others.remove(under_way)
                under_way.done.set_result(None)
        found = self.take(topic, seqs)
        if found is not None:
            return found
        if (kept := self._kept.get(topic.topic_id)) is not None:
            for begin, end in stretches(seqs):  # too large to be read at once, or not all there: nobody else asks for
                kept.drop(begin, end + 1)  # the rest of them
        return await reading.read(self._engine, topic, seqs)

    async def _read(self, topic: Topic, first_seq: int) -> None:
        query = ReadQuery(from_seq=first_seq - 1, limit=RECORDS, max_bytes=BYTES, skip_corrupt=True)
        result = await Reader(self._engine).read(topic, query)
        if self._engine.catalog.by_id.get(topic.topic_id) is not topic:
            return
        kept = self._kept.setdefault(topic.topic_id, Kept(KEPT_RECORDS, KEPT_BYTES))
        self._kept.move_to_end(topic.topic_id)
        kept.add(result.records)
        if len(self._kept) > QUEUES:
            self._kept.popitem(last=False)

    def forget(self, topic_id: int) -> None:
        """The queue is gone."""
        self._kept.pop(topic_id, None)
        self._under_way.pop(topic_id, None)
