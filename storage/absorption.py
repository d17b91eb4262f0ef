"""Which records go from a log's tail into its active segment next. Pure. `copying` moves their bytes.

Shared by the absorber of a running engine and by a start that changes the number of shards. Source: storage.md §4.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import NamedTuple

from storage.copying import Copy
from storage.format.cutting import total
from storage.log import Log
from storage.manifest import Segment
from storage.options import Options
from storage.segment.writer import MAX_JUMP
from storage.segment_store import id_of
from storage.spans import Rows

#: Most bytes of one log moved in one go: what a turn holds in memory.
_TURN_BYTES = 8 << 20


class Plan(NamedTuple):
    """What goes into a log's active segment: seqs from `first_seq` to `last_seq`, and the rows of those that live."""

    segment: Segment
    rows: Rows

    @property
    def first_seq(self) -> int:
        return self.rows.seqs[0]

    @property
    def last_seq(self) -> int:
        return self.rows.end_seq - 1

    @property
    def records(self) -> int:
        """How many are looked at."""
        return len(self.rows.sizes)

    @property
    def size_bytes(self) -> int:
        """Of their frames."""
        return total(self.rows.sizes)

    def copy(self, log: Log, root: str, dead: int) -> Copy:
        """The same for whoever does it."""
        return Copy(root, id_of(log.topic_id, self.segment), self.segment.end_seq, self.rows, dead)


def plan_turn(log: Log, options: Options) -> Plan | None:
    """The next records for the active segment; None when there are none, or none that it has room for."""
    segment = log.held.manifest.active
    begin = log.oldest_unabsorbed()
    if segment is None or begin is None:
        return None
    end_seq = segment.first_seq + options.segment_max_events
    rows = log.tail.rows(begin, min(log.head + 1, max(end_seq, begin + 1)))
    room_bytes = min(_TURN_BYTES, options.segment_max_bytes - segment.data_bytes)
    count = _fitting(rows, end_seq, room_bytes)
    if not count and not segment.count and rows.seqs and rows.places[0]:
        count = 1  # an empty segment has room for any batch
    if not count or rows.seqs[0] - segment.end_seq > MAX_JUMP:
        return None
    return Plan(segment, rows.first(count))


def _fitting(rows: Rows, end_seq: int, room_bytes: int) -> int:
    """How many rows, from the front, are in the log, end below `end_seq`, follow one another and fit."""
    count = rows.places.index(0) if 0 in rows.places else len(rows.seqs)
    if count and rows.end_seq > end_seq:
        count = min(count, len(rows.seqs) - 1)  # no other can: it begins below
    if count and rows.end_seq - rows.seqs[0] >= len(rows.sizes) + MAX_JUMP:
        count = min(count, _until_jump(rows))
    if total(rows.sizes) > room_bytes:
        records = bisect_right(list(accumulate(rows.sizes)), room_bytes)
        count = min(count, bisect_right(list(accumulate(rows.counts)), records))
    return count


def _until_jump(rows: Rows) -> int:
    """How many rows there are before the first that does not follow closely enough."""
    for index in range(1, len(rows.seqs)):
        if rows.seqs[index] - (rows.seqs[index - 1] + rows.counts[index - 1]) >= MAX_JUMP:
            return index
    return len(rows.seqs)
