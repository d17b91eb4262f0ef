"""The segments of a log, and the live records in them. Pure.

Only segments named here exist. The last one may be active (still appended to), all others are sealed. Each segment has
a bitset of dead seqs, 0 while every seq has a live record, so that memory does not grow with retained records.

Source: docs/reference/format.md#segments, docs/reference/format.md#snapshots.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import compress, islice
from operator import ne
from typing import Any, Protocol

import msgspec

from kernel import total
from storage.format import Segment as Frame
from storage.records import TagMatch
from storage.state.segment_sums import STRIDE, alive_flags, next_that_free, that_free

HOT = "hot"
COLD = "cold"
#: The live count of a segment during a replay, which counts live records at its end.
UNKNOWN = -1


class Times:
    """The times, in ms, of consecutive records. Neighbours with the same time are kept as one run."""

    __slots__ = ("_ends", "_stamps")

    def __init__(self, stamps: Sequence[int] = ()) -> None:
        self._stamps = array("Q")
        #: For each run, the number of records before its end.
        self._ends = array("I")
        if stamps:
            begins = [0, *compress(range(1, len(stamps)), map(ne, stamps, islice(stamps, 1, None)))]
            self._stamps.extend([stamps[at] for at in begins])
            self._ends.extend([*begins[1:], len(stamps)])

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> int:
        return self._stamps[bisect_right(self._ends, index)]

    @property
    def size_bytes(self) -> int:
        """Memory that the runs take."""
        return len(self._ends) * (self._ends.itemsize + self._stamps.itemsize)

    def add(self, count: int, ts: int) -> None:
        """The next `count` records have this time."""
        if count <= 0:
            return
        if self._stamps and self._stamps[-1] == ts:
            self._ends[-1] += count
        else:
            self._ends.append(len(self) + count)
            self._stamps.append(ts)

    def first_since(self, ts: int) -> int:
        """Index of the first record with this time or a later one; their number when there is none."""
        run = bisect_left(self._stamps, ts)
        return self._ends[run - 1] if run else 0


class Details:
    """For each seq of a segment: bytes of data and meta as sent (0: no record), and time in ms."""

    __slots__ = ("payloads", "stamps")

    def __init__(self, payloads: array[int], stamps: Times) -> None:
        self.payloads = payloads
        self.stamps = stamps

    @property
    def size_bytes(self) -> int:
        """Memory that the details take."""
        return len(self.payloads) * self.payloads.itemsize + self.stamps.size_bytes


class SegmentState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A segment as a snapshot section holds it. `live` and `live_bytes` count what lies above the log's floor.

    `assumed`: `live_bytes` is not measured, since the records could not be read; the next start tries again.
    `packed_bytes`: length of the .zdata that replaces .data; 0: there is none.
    """

    first_seq: int
    end_seq: int
    gen: int = 0
    sealed: bool = False
    tier: str = HOT
    live: int = 0
    live_bytes: int = 0
    data_bytes: int = 0
    first_ts: int = 0
    last_ts: int = 0
    assumed: bool = False
    packed_bytes: int = msgspec.field(default=0, name="packed")


def opened(first_seq: int) -> Frame:
    """The frame that names a new segment."""
    return Frame(first_seq=first_seq, end_seq=first_seq, event="opened", gen=0, live=0, data_bytes=0, tier=HOT)


class Segment:
    """Records with first_seq <= seq < end_seq, in files of generation `gen`."""

    __slots__ = (
        "assumed",
        "data_bytes",
        "dead",
        "details",
        "end_seq",
        "first_seq",
        "first_ts",
        "flipping",
        "flipping_pin",
        "flips",
        "framed",
        "gen",
        "last_ts",
        "live",
        "live_bytes",
        "packed_bytes",
        "pin",
        "sealed",
        "tier",
        "unpackable",
        "worn_since_ms",
    )

    def __init__(self, state: SegmentState) -> None:
        self.first_seq = state.first_seq
        self.end_seq = state.end_seq
        self.gen = state.gen
        self.sealed = state.sealed
        self.tier = state.tier
        self.live = state.live
        self.live_bytes = state.live_bytes
        self.data_bytes = state.data_bytes
        self.first_ts = state.first_ts
        self.last_ts = state.last_ts
        self.assumed = state.assumed
        #: Length of its .zdata; 0: its records are in .data, or in the cold tier.
        self.packed_bytes = state.packed_bytes
        #: Packing was tried and saved too little: it is not tried again.
        self.unpackable = False
        #: Bit i: there is no live record first_seq + i (floors not considered).
        self.dead = 0
        #: Bits of `dead` that are not yet flagged in the files, and the position of the oldest Delete that caused one.
        self.flips = 0
        self.pin: int | None = None
        #: Bits that are being flagged right now.
        self.flipping = 0
        self.flipping_pin: int | None = None
        self.details: Details | None = None
        #: When deletions were first found to need flagging, or less than half of the segment was first found alive.
        self.worn_since_ms: int | None = None
        #: Records with a frame in its files, deleted or not; None: not counted yet.
        self.framed: int | None = None

    def state(self) -> SegmentState:
        """Its part of a snapshot."""
        return SegmentState(
            first_seq=self.first_seq,
            end_seq=self.end_seq,
            gen=self.gen,
            sealed=self.sealed,
            tier=self.tier,
            live=self.live,
            live_bytes=self.live_bytes,
            data_bytes=self.data_bytes,
            first_ts=self.first_ts,
            last_ts=self.last_ts,
            assumed=self.assumed,
            packed_bytes=self.packed_bytes,
        )

    @property
    def stored_bytes(self) -> int:
        """Length of the file that contains the segment's records."""
        return self.packed_bytes or self.data_bytes

    def frame(
        self,
        event: str,
        *,
        gen: int | None = None,
        data_bytes: int | None = None,
        tier: str = "",
        packed_bytes: int | None = None,
    ) -> Frame:
        """The frame that changes the segment; arguments not given stay as they are. No cold segment is packed."""
        packed_bytes = self.packed_bytes if packed_bytes is None else packed_bytes
        return Frame(
            first_seq=self.first_seq,
            end_seq=self.end_seq,
            event=event,
            gen=self.gen if gen is None else gen,
            live=self.live,
            live_bytes=self.live_bytes,
            data_bytes=self.data_bytes if data_bytes is None else data_bytes,
            tier=tier or self.tier,
            packed_bytes=packed_bytes if packed_bytes and (tier or self.tier) == HOT else None,
        )

    def ended(self) -> Frame:
        """The frame that seals it. An empty segment is dropped."""
        return self.frame("sealed" if self.count else "dropped")

    @property
    def count(self) -> int:
        """The number of seqs it covers."""
        return self.end_seq - self.first_seq

    def holds(self, seq: int) -> bool:
        """Whether the record exists and is not deleted (apart from floors)."""
        return self.first_seq <= seq < self.end_seq and not self.dead >> (seq - self.first_seq) & 1

    def first_live(self, seq: int) -> int | None:
        """First seq >= `seq` with a record that is not deleted."""
        at = max(0, seq - self.first_seq)
        if not self.dead:
            return self.first_seq + at if at < self.count else None
        alive = (~self.dead & ((1 << self.count) - 1)) >> at
        return self.first_seq + at + (alive & -alive).bit_length() - 1 if alive else None

    def live_seqs(self, seq: int, end_seq: int, count: int) -> Sequence[int]:
        """The first `count` seqs >= `seq` and < `end_seq` with a record that is not deleted."""
        first, end = max(seq, self.first_seq), min(end_seq, self.end_seq)
        at, stop = first - self.first_seq, min(end, first + count)
        if not self.dead or (first < stop and not self.dead >> at & ((1 << (stop - first)) - 1)):
            return range(first, stop)
        found: list[int] = []
        while first < end and len(found) < count:
            stop = min(end, first + STRIDE)
            found += compress(range(first, stop), self.alive_flags(first - self.first_seq, stop - self.first_seq))
            first = stop
        return found[:count]

    def alive(self, first_seq: int, end_seq: int) -> int:
        """The number of records with first_seq <= seq < end_seq that exist and are not deleted."""
        a, b = max(first_seq, self.first_seq), min(end_seq, self.end_seq)
        if b <= a:
            return 0
        if not self.dead:
            return b - a
        return b - a - (self.dead >> (a - self.first_seq) & ((1 << (b - a)) - 1)).bit_count()

    def alive_flags(self, begin: int, end: int) -> bytes:
        """1 or 0 for each record with begin <= index < end."""
        return alive_flags(self.dead, begin, end)

    def bytes_between(self, first_seq: int, end_seq: int) -> int:
        """Their payload bytes; needs `details`."""
        assert self.details is not None
        a, b = max(first_seq, self.first_seq) - self.first_seq, min(end_seq, self.end_seq) - self.first_seq
        if a >= b:
            return 0
        sizes = self.details.payloads[a:b]
        if not self.dead or not self.dead >> a & ((1 << (b - a)) - 1):
            return total(sizes)
        return sum(compress(sizes, self.alive_flags(a, b)))

    def going(self, first_seq: int, end_seq: int, *, whole: bool) -> tuple[int, int]:
        """(records, payload bytes) that are removed when the floor rises from `first_seq` to `end_seq`; needs
        `details`.

        `whole`: nothing that `live` and `live_bytes` count is below `first_seq`. The cost depends on the records
        removed, not on the records that stay.
        """
        if whole and self.assumed:
            # The rest of the total: assumed sizes are corrected when the real ones are read.
            return self.alive(first_seq, end_seq), self.live_bytes - self.bytes_between(end_seq, self.end_seq)
        assert self.details is not None
        if self.dead:
            return self.alive(first_seq, end_seq), self.bytes_between(first_seq, end_seq)
        a, b = max(first_seq, self.first_seq) - self.first_seq, min(end_seq, self.end_seq) - self.first_seq
        return (b - a, total(self.details.payloads[a:b])) if a < b else (0, 0)

    def assume(self) -> None:
        """Replace unreadable `details` by an estimate from the segment's totals.

        The last live record gets all the bytes, and all records get the newest time, so the remaining records are
        never counted as smaller or older than they are. A floor that rises by records can stop inside the segment; a
        floor that rises by bytes or time passes only the whole segment.
        """
        payloads = array("I", bytes(4 * self.count))
        alive = ~self.dead & ((1 << self.count) - 1)
        if alive:
            payloads[alive.bit_length() - 1] = self.live_bytes
        times = Times()
        times.add(self.count, self.last_ts)
        self.details = Details(payloads, times)
        self.assumed = True

    def sizes(self, seqs: Sequence[int]) -> list[int] | None:
        """Payload bytes of these seqs; None when the files must be read."""
        if self.details is None:
            return None
        return [self.details.payloads[seq - self.first_seq] for seq in seqs]

    def delete(self, first_seq: int, last_seq: int, lsn: int) -> Sequence[int]:
        """Mark records first_seq <= seq <= last_seq as deleted, for a Delete frame at `lsn`; returns those alive
        before."""
        at, count = first_seq - self.first_seq, last_seq - first_seq + 1
        bits = ((1 << count) - 1) << at
        already = self.dead & bits
        alive: Sequence[int] = range(first_seq, last_seq + 1)
        if already:
            alive = [*compress(alive, self.alive_flags(at, at + count))]
            bits ^= already
        self.dead |= bits
        self.to_flip(bits, lsn)
        return alive

    def to_flip(self, bits: int, lsn: int) -> None:
        """These bits of `dead` need flagging in the files, for Deletes at `lsn` or later."""
        if bits:
            self.flips |= bits
            self.pin = lsn if self.pin is None else min(lsn, self.pin)

    def begin_flips(self) -> int:
        """Take the bits to flag; `end_flips` must follow, whatever happens."""
        self.flipping, self.flipping_pin = self.flips, self.pin
        self.flips, self.pin = 0, None
        return self.flipping

    def end_flips(self, *, done: bool) -> None:
        """The bits are flagged and synced, or must be flagged again."""
        if not done and self.flipping_pin is not None:
            self.to_flip(self.flipping, self.flipping_pin)
        self.flipping, self.flipping_pin = 0, None

    def cut(self, seq: int, records: int, size_bytes: int, *, whole: bool) -> tuple[int, int, int]:
        """The lowest floor above `seq` that frees this much, or the end of the segment when no floor in it does; and
        the records and payload bytes that are removed, as in `going`. Needs `details`."""
        assert self.details is not None
        if not self.dead and not self.assumed:
            index, end = seq - self.first_seq, self.end_seq - self.first_seq
            found = next_that_free(self.details.payloads, index, end, records, size_bytes)
            if found is not None:
                return seq + found[0], *found
        floor = self.floor_that_frees(seq, records, size_bytes)
        return floor, *self.going(seq, floor, whole=whole)

    def floor_that_frees(self, seq: int, records: int, size_bytes: int) -> int:
        """The lowest floor above `seq` that frees this much; the end of the segment when no floor in it does."""
        assert self.details is not None
        index = seq - self.first_seq
        if not self.dead and size_bytes <= 0:
            return min(self.end_seq, seq + max(0, records))  # the next records, whatever their sizes
        while index < self.count and (records > 0 or size_bytes > 0):
            stop = min(self.count, index + STRIDE)
            is_whole = not self.dead >> index & ((1 << (stop - index)) - 1)
            alive = None if is_whole else self.alive_flags(index, stop)
            sizes = self.details.payloads[index:stop] if size_bytes > 0 else array("I")
            taken, records, size_bytes = that_free(stop - index, sizes, alive, records, size_bytes)
            index += taken
        return self.first_seq + index


class Access(Protocol):
    """Reads of segments' contents for the state. Blocking: for recovery, and for contents loaded beforehand."""

    def details(self, topic_id: int, segment: Segment) -> Details:
        """Sizes and times of every seq."""
        ...

    def tagged(self, topic_id: int, segment: Segment, match: TagMatch) -> list[int]:
        """Seqs of records whose tag matches; deleted ones may be missing."""
        ...

    def sizes(self, topic_id: int, segment: Segment, seqs: Sequence[int]) -> list[int]:
        """Payload bytes of these seqs."""
        ...


class Manifest:
    """The segments of one log in seq order."""

    __slots__ = ("_firsts", "segments")

    def __init__(self, states: Sequence[SegmentState] = ()) -> None:
        self.segments = [Segment(state) for state in states]
        #: `first_seq` of each, for binary search.
        self._firsts = array("Q", [state.first_seq for state in states])

    def __len__(self) -> int:
        return len(self.segments)

    def states(self) -> list[SegmentState]:
        return [segment.state() for segment in self.segments]

    @property
    def active(self) -> Segment | None:
        """The segment that records are appended to."""
        return self.segments[-1] if self.segments and not self.segments[-1].sealed else None

    def index(self, seq: int) -> int:
        """Number of the last segment that begins at or below `seq`; -1: there is none."""
        return bisect_right(self._firsts, seq) - 1

    def named(self, first_seq: int) -> Segment | None:
        """The segment that begins with `first_seq`."""
        at = self.index(first_seq)
        return self.segments[at] if at >= 0 and self.segments[at].first_seq == first_seq else None

    def behind(self, seq: int) -> Iterator[Segment]:
        """Segments with a seq >= `seq`, in order."""
        segments = self.segments
        at = max(0, self.index(seq))
        if at < len(segments) and segments[at].end_seq <= seq:
            at += 1
        return map(segments.__getitem__, range(at, len(segments)))

    def first_behind(self, seq: int) -> Segment | None:
        """The first segment with a seq >= `seq`."""
        segments, at = self.segments, bisect_right(self._firsts, seq) - 1
        if at < 0 or segments[at].end_seq <= seq:
            at += 1
        return segments[at] if at < len(segments) else None

    def containing(self, seq: int) -> Segment | None:
        """The segment that covers `seq`."""
        at = self.index(seq)
        return self.segments[at] if at >= 0 and seq < self.segments[at].end_seq else None

    def unmeasured(self, seq: int, segments: int, records: int) -> Iterator[Segment]:
        """The sealed segments without details among the next `segments` after the one with `seq`, as far as they
        begin within `records` of `seq`. Nobody needs the details of an active segment beforehand."""
        at = self.index(seq) + 1
        for segment in self.segments[at : at + segments] if at else ():
            if segment.first_seq - seq > records or not segment.sealed:
                return
            if segment.details is None and segment.live:
                yield segment

    def sealed_end(self, seq: int) -> int:
        """The end of the newest sealed segment that lies wholly below `seq`; 0: there is none."""
        at = bisect_right(self.segments, seq, key=_end_seq) - 1
        if at >= 0 and not self.segments[at].sealed:
            at -= 1  # only the last segment can be active
        return self.segments[at].end_seq if at >= 0 else 0

    def first_live(self, seq: int) -> int | None:
        """First seq >= `seq` with a record that is not deleted."""
        for segment in self.behind(seq):
            if segment.live and (found := segment.first_live(seq)) is not None:
                return found
        return None

    def add(self, state: SegmentState) -> Segment:
        """A new active segment."""
        segment = Segment(state)
        self.segments.append(segment)
        self._firsts.append(segment.first_seq)
        return segment

    def remove(self, segment: Segment) -> None:
        at = self.segments.index(segment)
        del self.segments[at], self._firsts[at]

    def pin(self) -> int | None:
        """Position of the oldest Delete frame whose flags are not in the files yet."""
        pins = [pin for segment in self.segments for pin in (segment.pin, segment.flipping_pin) if pin is not None]
        return min(pins, default=None)


def _end_seq(segment: Any) -> int:
    return segment.end_seq
