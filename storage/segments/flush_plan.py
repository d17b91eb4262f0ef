"""Decides which records go from a log's tail into its active segment next. Pure. `copying` moves their bytes.

Shared by the flusher of a running engine and by a start that changes the number of shards.

Source: docs/reference/format.md#segments.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import NamedTuple

from msgspec import structs

from kernel import total
from storage.format import control
from storage.options import Options
from storage.segments.copying import Copy
from storage.segments.store import id_of
from storage.segments.writer import MAX_JUMP
from storage.state import UNKNOWN, Log, Segment, SegmentState, SliceColumns, opened

#: Most bytes of one log that go into a segment in one step.
_FLUSH_BYTES = 8 << 20
#: Most bytes of one log that go into segments in one round.
_RUN_BYTES = 128 << 20


class Plan(NamedTuple):
    """The records for a segment: the seqs from `first_seq` to `last_seq`, and their entries of the tail.

    The segment is the active one of the log, or in a run a new one that is not in a manifest yet.
    """

    segment: Segment
    columns: SliceColumns

    @property
    def first_seq(self) -> int:
        return self.columns.seqs[0]

    @property
    def last_seq(self) -> int:
        return self.columns.end_seq - 1

    def copy(self, log: Log, root: str, dead: int) -> Copy:
        """The plan as a job for `copying`, which needs no log. `dead`: a bit for each seq that is deleted."""
        folder = any(each.count for each in log.held.manifest.segments)
        return Copy(root, id_of(log.topic_id, self.segment), self.segment.end_seq, self.columns, dead, folder)


def plan_flush(log: Log, options: Options) -> Plan | None:
    """The next records for the active segment; None when there are none or it has no room for any."""
    segment = log.held.manifest.active
    begin = log.oldest_unflushed()
    if segment is None or begin is None:
        return None
    columns = _next_records(log, segment, begin, segment.end_seq, segment.data_bytes, options)
    return None if columns is None else Plan(segment, columns)


def plan_run(log: Log, options: Options, segments: int) -> list[Plan]:
    """The next records for the active segment and, as far as these fill it, for up to `segments` in all: each is full
    when the next is begun. Empty where `plan_flush` returns None.
    """
    plan = plan_flush(log, options)
    if plan is None:
        return []
    plans, size = [plan], total(plan.columns.sizes)
    while len(plans) < segments and size < _RUN_BYTES:
        end_seq, data_bytes = plan.last_seq + 1, plan.segment.data_bytes + total(plan.columns.sizes)
        begin = log.tail.first_live(max(end_seq, log.marks.live_floor), log.head + 1)
        if begin is None or log.tail.oldest_lsn(begin) is None:
            break
        full = end_seq - plan.segment.first_seq >= options.segment_max_events
        if not full and _next_records(log, plan.segment, begin, end_seq, data_bytes, options) is not None:
            break  # of this segment, in the next round
        segment = Segment(SegmentState(first_seq=begin, end_seq=begin))
        columns = _next_records(log, segment, begin, begin, 0, options)
        if columns is None:
            break
        plan = Plan(segment, columns)
        plans.append(plan)
        size += total(columns.sizes)
    return plans


def frames_of_run(log: Log, run: list[Plan], lengths: list[int], options: Options) -> list[control.Control]:
    """The frames that record the copy, as one batch: for each segment its mark; if it is full, also `sealed`, and
    `opened` for the next segment. Empty for a single segment with room left. `lengths`: of each .data now.
    """
    frames: list[control.Control] = []
    for plan, following, data_bytes in zip(run, run[1:], lengths, strict=False):
        frames += [*_ending(log, plan, data_bytes), opened(following.first_seq)]
    last = _frames_of_end(log, run[-1], lengths[-1], options)
    if frames and not last:
        last = [control.CheckpointMark(absorbed={log.topic_id: run[-1].last_seq})]
    return frames + last


def _frames_of_end(log: Log, plan: Plan, data_bytes: int, options: Options) -> list[control.Control]:
    """The frames that end a segment after the records of a plan were copied: the mark, `sealed`, and `opened` for the
    next segment if there are records for it. Empty when the segment takes more. `data_bytes`: length of .data now.
    """
    segment, end_seq = plan.segment, plan.last_seq + 1
    begin = log.tail.first_live(max(end_seq, log.marks.live_floor), log.head + 1)
    if begin is not None and log.tail.oldest_lsn(begin) is None:
        begin = None  # the next records are in memory only
    full = end_seq - segment.first_seq >= options.segment_max_events or data_bytes >= options.segment_max_bytes
    if not full and (begin is None or _next_records(log, segment, begin, end_seq, data_bytes, options) is not None):
        return []
    ending = _ending(log, plan, data_bytes)
    return ending if begin is None else [*ending, opened(begin)]


def _ending(log: Log, plan: Plan, data_bytes: int) -> list[control.Control]:
    segment, end_seq = plan.segment, plan.last_seq + 1
    live, size = log.tail.totals(max(plan.first_seq, log.marks.live_floor), end_seq)
    sealed = structs.replace(
        segment.frame("sealed", data_bytes=data_bytes),
        end_seq=end_seq,
        live=segment.live if segment.live == UNKNOWN else segment.live + live,
        live_bytes=segment.live_bytes + size,
    )
    return [control.CheckpointMark(absorbed={log.topic_id: plan.last_seq}), sealed]


def _next_records(
    log: Log, segment: Segment, begin: int, end_seq: int, data_bytes: int, options: Options
) -> SliceColumns | None:
    """The entries from `begin` on that fit into a segment that ends at `end_seq`; None when none does."""
    limit = segment.first_seq + options.segment_max_events
    columns = log.tail.slice_columns(begin, min(log.head + 1, max(limit, begin + 1)))
    room_bytes = min(_FLUSH_BYTES, options.segment_max_bytes - data_bytes)
    count = _fitting(columns, limit, room_bytes)
    if not count and end_seq == segment.first_seq and columns.seqs and columns.lsns[0]:
        count = 1  # an empty segment has room for any batch
    if not count or columns.seqs[0] - end_seq > MAX_JUMP:
        return None
    return columns.first(count)


def _fitting(columns: SliceColumns, end_seq: int, room_bytes: int) -> int:
    """How many entries from the front are in the log, end below `end_seq`, are close enough to one another, and fit."""
    count = columns.lsns.index(0) if 0 in columns.lsns else len(columns.seqs)
    if count and columns.end_seq > end_seq:
        count = min(count, len(columns.seqs) - 1)  # only the last entry can reach beyond
    if count and columns.end_seq - columns.seqs[0] >= len(columns.sizes) + MAX_JUMP:
        count = min(count, _until_jump(columns))
    if total(columns.sizes) > room_bytes:
        records = bisect_right(list(accumulate(columns.sizes)), room_bytes)
        count = min(count, bisect_right(list(accumulate(columns.counts)), records))
    return count


def _until_jump(columns: SliceColumns) -> int:
    """How many entries there are before the first gap of MAX_JUMP seqs or more."""
    for index in range(1, len(columns.seqs)):
        if columns.seqs[index] - (columns.seqs[index - 1] + columns.counts[index - 1]) >= MAX_JUMP:
            return index
    return len(columns.seqs)
