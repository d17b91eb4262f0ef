"""Records of one log, wherever they are: in segments up to `flushed`, then in the tail index. Pure, except for
`load`.

Counts and whole segments come from the manifest. Sizes and times of single records of a segment come from its
details, which are loaded beforehand where a caller can wait (`wants`).

Source: docs/reference/format.md#segments, docs/reference/format.md#evictwatermark.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from storage.format import control
from storage.state.manifest import UNKNOWN, Access, Details, Manifest, Segment, SegmentState, Times
from storage.state.tail import TailIndex, consecutive_ranges


class Written(NamedTuple):
    """Bits from `first_seq` on, 1 for records that were not copied into a segment, as of the frames below `lsn`.

    `data_bytes`: size of the segment's .data with the copied records; 0: the copy is in progress. `measured`: a floor
    will need the sizes and times of the segment, whose first records these are.
    """

    first_seq: int
    dead: int
    lsn: int
    data_bytes: int = 0
    measured: bool = False


class Eviction(NamedTuple):
    """A floor, and the live records and payload bytes that are removed when the floor rises to it. `short`: these are
    all records, and still less than requested."""

    floor: int
    records: int
    size_bytes: int
    short: bool = False


class Retained:
    """Segments and tail of a log. The caller has the floors."""

    __slots__ = (
        "access",
        "deferred",
        "flushed",
        "look_ahead_from",
        "manifest",
        "replaying",
        "tail",
        "topic_id",
        "written",
    )

    def __init__(self, topic_id: int, access: Access | None, *, replaying: bool = False) -> None:
        self.topic_id = topic_id
        self.manifest = Manifest()
        self.tail = TailIndex()
        #: Records up to here are in segments.
        self.flushed = 0
        #: During a replay: Deletes and their positions, which are looked up in segments at its end. Until then the
        #: counts of segments are not exact (see `storage.recovery.segments`).
        self.replaying = replaying
        self.deferred: list[tuple[control.Delete, int]] = []
        #: The look-ahead for floors below this has been done.
        self.look_ahead_from = 0
        #: Copies into segments in progress, in order: the active segment's, and those of segments that the batch of
        #: its mark opens and marks. A mark takes the first.
        self.written: list[Written] = []
        #: Blocking reads of details that were not loaded beforehand: in recovery, and as a last resort.
        self.access = access

    def details(self, segment: Segment) -> Details:
        """The segment's details, loaded now if they are not here yet."""
        if segment.details is None:
            assert self.access is not None, "a log with segments has a reader for them"
            segment.details = self.access.details(self.topic_id, segment)
        return segment.details

    def holds(self, seq: int) -> bool:
        """Whether the record exists and is not deleted."""
        if seq > self.flushed:
            return self.tail.holds(seq)
        segment = self.manifest.containing(seq)
        return segment is not None and segment.holds(seq)

    def first_live(self, seq: int, end_seq: int) -> int | None:
        """The first seq >= `seq` and < `end_seq` with a record that is not deleted."""
        if seq <= self.flushed:
            found = self.manifest.first_live(seq)
            if found is not None:
                return found if found < end_seq else None
        return self.tail.first_live(max(seq, self.flushed + 1), end_seq)

    def live_seqs(self, seq: int, end_seq: int, count: int) -> list[int]:
        """The first `count` seqs >= `seq` and < `end_seq` with a record that is not deleted."""
        found: list[int] = []
        if seq <= self.flushed:
            for segment in self.manifest.behind(seq):
                if segment.first_seq >= end_seq or len(found) >= count:
                    break
                if segment.live:
                    found += segment.live_seqs(seq, end_seq, count - len(found))
        if len(found) < count:
            found += self.tail.live_seqs(max(seq, self.flushed + 1), end_seq, count - len(found))
        return found

    def time_of(self, seq: int) -> int | None:
        """The time of the record `seq`; in a segment, the time of its oldest record."""
        if seq > self.flushed:
            return self.tail.time_of(seq)
        segment = self.manifest.containing(seq)
        return segment.first_ts if segment is not None else None

    def wants(self, first_seq: int, end_seq: int, floor: int) -> Segment | None:
        """A segment whose details `totals` of this range needs, and that has none loaded."""
        for segment in self.manifest.behind(first_seq):
            if segment.first_seq >= end_seq:
                return None
            partly = segment.end_seq > end_seq or first_seq > max(segment.first_seq, floor)
            if partly and segment.live and segment.details is None:
                return segment
        return None

    def totals(self, first_seq: int, end_seq: int, floor: int) -> tuple[int, int]:
        """(records, payload bytes) alive with first_seq <= seq < end_seq. Nothing below `floor` counts."""
        count = size = 0
        first_seq = max(first_seq, floor)
        if first_seq <= self.flushed:
            for segment in self.manifest.behind(first_seq):
                if segment.first_seq >= end_seq:
                    break
                # `live` counts from the floor on: a range that begins at the floor wants the whole of that segment.
                if end_seq >= segment.end_seq and first_seq <= max(segment.first_seq, floor):
                    count += segment.live
                    size += segment.live_bytes
                elif segment.live and not self.replaying:
                    self.details(segment)
                    whole = first_seq <= max(segment.first_seq, floor)
                    went, size_went = segment.going(first_seq, end_seq, whole=whole)
                    count += went
                    size += size_went
        if end_seq <= self.flushed + 1:
            return count, size
        tail_count, tail_size = self.tail.totals(max(first_seq, self.flushed + 1), end_seq)
        return count + tail_count, size + tail_size

    def count_from(self, first_seq: int, end_seq: int) -> int:
        """The number of live records with first_seq <= seq < end_seq. Reads no file, and nothing below `first_seq`."""
        count = 0
        if first_seq <= self.flushed:
            for segment in self.manifest.behind(first_seq):
                if segment.first_seq >= end_seq:
                    break
                whole = segment.first_seq >= first_seq and segment.end_seq <= end_seq
                count += segment.live if whole else segment.alive(first_seq, end_seq)
        return count + self.tail.count(max(first_seq, self.flushed + 1), end_seq)

    def plan_eviction(self, seq: int, records: int, size_bytes: int, floor: int) -> Eviction | Segment:
        """The lowest floor above `seq` with at least this many live records and bytes between them (the end if
        fewer), and what is removed when it rises from `seq`. Or the segment whose details are needed and not loaded.

        Examines only the records that go, because every write at a cap calls it.
        """
        gone = size = 0
        while seq <= self.flushed and (segment := self.manifest.first_behind(seq)) is not None:
            begin = seq if seq > segment.first_seq else segment.first_seq
            whole = begin <= floor or begin == segment.first_seq  # `live` counts from the floor on
            if whole and (records > segment.live or size_bytes > segment.live_bytes):
                seq, went, size_went = segment.end_seq, segment.live, segment.live_bytes
            elif segment.details is None:
                return segment
            else:
                seq, went, size_went = segment.cut(begin, records, size_bytes, whole=whole)
            gone += went
            size += size_went
            records -= went
            size_bytes -= size_went
            if seq < segment.end_seq or (records <= 0 and size_bytes <= 0):
                return Eviction(seq, gone, size)
        end, went, size_went = self.tail.plan_eviction(max(seq, self.flushed + 1), records, size_bytes)
        short = records > went or size_bytes > size_went
        return Eviction(end, gone + went, size + size_went, short)

    def expired_floor(self, seq: int, oldest_ts: int, end_seq: int, *, loaded: bool = False) -> int:
        """The lowest floor >= `seq` that leaves no record older than `oldest_ts` below `end_seq`.

        `loaded`: stop before a segment whose details are needed and not loaded.
        """
        for segment in self.manifest.behind(seq):
            if segment.first_ts >= oldest_ts:
                return seq
            if segment.last_ts >= oldest_ts:
                if loaded and segment.details is None:
                    return max(seq, segment.first_seq)
                return max(seq, segment.first_seq + self.details(segment).stamps.first_since(oldest_ts))
            seq = segment.end_seq
        return max(seq, self.tail.expired_floor(max(seq, self.flushed + 1), oldest_ts, end_seq))

    def expiry_wants(self, seq: int, oldest_ts: int) -> Segment | None:
        """A segment whose details `expired_floor` needs, and that has none loaded."""
        for segment in self.manifest.behind(seq):
            if segment.first_ts >= oldest_ts:
                return None
            if segment.last_ts >= oldest_ts:
                return segment if segment.details is None else None
        return None

    def evict(self, floor: int, new_floor: int, end_seq: int) -> tuple[int, int]:
        """The floor rises: returns (records, payload bytes) that were alive below it; segments count from there on."""
        gone = size = 0
        if new_floor > self.flushed + 1:
            gone, size = self.tail.totals(max(floor, self.flushed + 1), min(new_floor, end_seq))
        for segment in self.manifest.behind(floor) if floor <= self.flushed else ():
            if segment.first_seq >= new_floor:
                break
            if new_floor >= segment.end_seq:
                gone += segment.live
                size += segment.live_bytes
                segment.live = segment.live_bytes = 0
                if segment.sealed or segment.assumed:  # an active segment receives more records, with known sizes
                    segment.details = None
                segment.assumed = False
            elif self.replaying:
                segment.live = UNKNOWN
            elif segment.live:
                self.details(segment)
                went, size_went = segment.going(floor, new_floor, whole=True)
                gone += went
                size += size_went
                segment.live -= went
                segment.live_bytes -= size_went
        return gone, size

    def delete_all(self, seqs: Sequence[int], sizes: Sequence[int], lsn: int) -> tuple[list[int], list[int]]:
        """Records of segments, ascending, with their payload bytes, are deleted: returns those that were alive."""
        deleted: list[int] = []
        deleted_sizes: list[int] = []
        at = 0
        for begin, end in consecutive_ranges(seqs):
            for segment in self.manifest.behind(begin):
                if segment.first_seq > end:
                    break
                first, last = max(begin, segment.first_seq), min(end, segment.end_seq - 1)
                gone = segment.delete(first, last, lsn)
                found = sizes[at + first - begin : at + last + 1 - begin]
                if len(gone) < len(found):
                    found = [found[seq - first] for seq in gone]
                segment.live -= len(gone)
                segment.live_bytes -= sum(found)
                deleted += gone
                deleted_sizes += found
            at += end - begin + 1
        return deleted, deleted_sizes

    def mark_flushed(self, last_seq: int, floor: int, written: Written | None) -> None:
        """Records up to `last_seq` are in the active segment from now on.

        `written`: the dead records that were not copied (None in recovery, which compares the files at its end).
        """
        segment = self.manifest.active
        if segment is None:  # only when salvage has lost the frame that names it
            return
        start, end = segment.end_seq, last_seq + 1
        if written is not None and written.measured and not segment.count and segment.details is None:
            segment.details = Details(array("I"), Times())
        live, size = self.tail.totals(max(start, floor), end)
        # In a replay, a record that is no longer in the log may be in the segment: its files show that at the end.
        dead = self.tail.deleted_bits(start, end) if self.replaying else self.tail.dead_bits(start, end)
        if segment.details is not None:
            segment.details.payloads.extend(self.tail.payloads(start, end))
            for count, ts in self.tail.stamps(start, end, segment.last_ts):
                segment.details.stamps.add(count, ts)
        segment.last_ts = self.tail.stamp(last_seq, start, segment.last_ts)
        if not segment.count:
            # The segment's first records may be gone: then it is as old as the next record.
            oldest = self.tail.oldest_ts(start)
            segment.first_ts = segment.last_ts if oldest is None else min(oldest, segment.last_ts)
        if written is not None:
            segment.data_bytes = written.data_bytes
        if written is not None and dead:
            # Records deleted since the frames were copied must be flagged.
            known = written.dead << (written.first_seq - start) | ((1 << (written.first_seq - start)) - 1)
            segment.to_flip((dead & ~known) << (start - segment.first_seq), written.lsn)
        segment.dead |= dead << (start - segment.first_seq)
        segment.live_bytes += size  # the estimate, in case measuring fails later
        if segment.live != UNKNOWN:
            segment.live += live
        segment.end_seq = end
        self.flushed = last_seq
        self.tail.drop_below(end)

    def take_segment(self, value: control.Segment) -> None:
        """Apply a Segment frame; repeating it changes nothing."""
        segment = self.manifest.named(value.first_seq)
        if value.event == "opened":
            if segment is None and value.first_seq > self.flushed:
                self.manifest.add(SegmentState(first_seq=value.first_seq, end_seq=value.first_seq, gen=value.gen))
        elif segment is None:
            return
        elif value.event == "dropped":
            self.manifest.remove(segment)
        elif value.event == "tier":
            segment.tier, segment.packed_bytes = value.tier, value.packed_bytes or 0
        else:
            segment.data_bytes, segment.gen = value.data_bytes, value.gen
            segment.packed_bytes = value.packed_bytes or 0
            segment.sealed = segment.sealed or value.event == "sealed"
