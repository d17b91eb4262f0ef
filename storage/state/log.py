"""One log: a sequence of records with seqs. Each partition of a topic has one; `topic_id` on disk names a log.

It has two views: *published* (committed, readable) and *assigned* (published plus writes in flight), so that seqs,
caps and expected_seq are exact under concurrent writes. A failed write resets the assigned view to the published
one. Used by the live path and by recovery; no I/O.

Source: docs/reference/guarantees.md#crash-points-of-a-write, docs/reference/format.md#evictwatermark.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import kernel
from kernel import Batches, Kind, total
from storage.format import control
from storage.records import SMALL_BUFFER, AppendedRecords, FrameRecords, LossCause, StoredRecord
from storage.state.consumers import ConsumerTable
from storage.state.keys import KeyRing
from storage.state.lookup import FoundRecords, find, tag_match
from storage.state.manifest import Segment
from storage.state.producer_table import ProducerTable
from storage.state.queues import LeaseTable, Moves
from storage.state.retained import Eviction, Retained
from storage.state.state_table import StateTable
from storage.state.tail import TailIndex, consecutive_ranges
from storage.state.tail_tags import TailTags
from storage.state.usage import Usage
from storage.state.watermarks import LossRange, Watermarks

#: When a floor has risen by this many seqs, the bytes below it are dropped from memory.
_UNCACHED_EVERY = 1024
#: When at least one seq in this many is wanted, all seqs between the first and the last are examined at once.
_DENSE = 4
#: The most renewed epochs that a log remembers.
_MAX_RENEWALS = 16
#: Events of a Lease that open or close moves.
_MOVING = frozenset({"dead", "released"})


class SizedRecords(NamedTuple):
    """Records in order, and the payload bytes of each."""

    records: Sequence[StoredRecord]
    sizes: Sequence[int]


class Log:
    """State of one log. Seqs start at 1; counts and bytes are of live records; times are ms since the epoch."""

    __slots__ = (
        "applied_lsn",
        "assigned_bytes",
        "assigned_count",
        "assigned_floor",
        "assigned_head",
        "being_written",
        "bytes",
        "cached",
        "consumers",
        "count",
        "durable_head",
        "ephemeral",
        "epoch",
        "half_written",
        "head",
        "held",
        "keys",
        "last_ts",
        "last_write_ts",
        "marks",
        "memory_bytes",
        "moves",
        "partition",
        "producers",
        "queue",
        "renewals",
        "reserved",
        "section",
        "shard",
        "states",
        "tags",
        "tail",
        "topic_id",
        "uncached_below",
        "usage",
    )

    def __init__(self, topic_id: int, *, shard: int, epoch: int, usage: Usage, partition: int = 0) -> None:
        self.topic_id = topic_id
        self.partition = partition
        self.shard = shard
        self.epoch = epoch
        #: Renewed epochs, ascending, each with the head when it began: later seqs may have been others before.
        self.renewals: list[tuple[int, int]] = []
        self.usage = usage
        self.ephemeral = False
        #: Replay: the first record found in the WAL of an ephemeral log whose class was being changed.
        self.half_written: int | None = None
        #: A change of class is writing the records in memory to the WAL.
        self.being_written = False
        #: While ephemeral: records up to here are in the WAL from before; later ones are in memory only.
        self.durable_head = 0
        #: Assigned bytes that are in memory only: this log's part of `usage.ephemeral_bytes`.
        self.memory_bytes = 0
        self.marks = Watermarks()
        self.held = Retained(topic_id, usage.access, replaying=usage.replaying)
        self.tail: TailIndex = self.held.tail
        self.keys: KeyRing | None = None
        #: Idempotent producers; None until the first one.
        self.producers: ProducerTable | None = None
        #: Leases of jobs; None when the topic is no queue.
        self.queue: LeaseTable | None = None
        self.moves = Moves()
        self.consumers = ConsumerTable()
        #: Values that other components store with this log; None: there are none.
        self.states: StateTable | None = None
        self.head = 0
        #: No seq up to here is assigned twice: durable (HeadWatermark).
        self.reserved = 0
        self.last_ts = 0
        self.last_write_ts: int | None = None
        self.count = self.bytes = 0
        self.assigned_head, self.assigned_floor = 0, 1
        self.assigned_count = self.assigned_bytes = 0
        #: This state holds every frame of the log below this position of its shard's WAL, and none above.
        self.applied_lsn = 0
        self.tags = TailTags()
        #: Batches whose bytes are in memory: first seq -> (bytes, offset of the first Append frame).
        self.cached: dict[int, tuple[bytes, int]] = {}
        #: The floor when cached batches below it were last dropped.
        self.uncached_below = 0
        #: The last encoded snapshot section; None = changed since.
        self.section: bytes | None = None

    def renew(self, epoch: int, head: int) -> None:
        """The log has a new epoch. Seqs above `head` may be assigned anew."""
        if epoch == self.epoch and self.renewals:
            return  # it is known before its frame is written
        self.epoch = epoch
        self.renewals.append((epoch, head))
        if len(self.renewals) > _MAX_RENEWALS:
            (_, earlier), (second, later) = self.renewals[:2]
            self.renewals[:2] = [(second, min(earlier, later))]
        self.section = None

    @property
    def earliest_seq(self) -> int:
        """The first live record; head + 1 when there is none."""
        floor, end_seq = self.marks.live_floor, self.head + 1
        if floor > self.held.flushed:
            found = self.tail.first_live(floor, end_seq)
        else:
            found = self.held.first_live(floor, end_seq)
        return end_seq if found is None else found

    def earliest_from(self, floor: int) -> int:
        """The first live record from `floor` on; head + 1 when there is none."""
        found = self.held.first_live(floor, self.head + 1)
        return self.head + 1 if found is None else found

    def _use(self, size_bytes: int, memory_bytes: int = 0) -> None:
        self.usage.bytes += size_bytes
        self.usage.ephemeral_bytes += memory_bytes
        self.memory_bytes += memory_bytes

    def lost_below(self, floor: int) -> int | None:
        """The jobs lost when the floor rises to here, in the assigned view; None: not a queue."""
        if self.queue is None:
            return None
        return self.held.totals(self.assigned_floor, floor, self.marks.live_floor)[0]

    def _in_memory(self, first_seq: int, end_seq: int) -> int:
        """Live bytes with first_seq <= seq < end_seq that are in memory only."""
        first_seq = max(first_seq, self.durable_head + 1)
        return self.tail.totals(first_seq, end_seq)[1] if self.ephemeral and first_seq < end_seq else 0

    def set_ephemeral(self, ephemeral: bool) -> None:
        """From now on, appended records are in memory only (or no longer)."""
        if ephemeral != self.ephemeral:
            self.half_written = None
            self.written_out(self.head)
            self.ephemeral = ephemeral

    def written_out(self, last_seq: int) -> None:
        """Records up to `last_seq`, in memory only before, are in the WAL now."""
        if last_seq > self.durable_head:
            self._use(0, -self._in_memory(self.assigned_floor, last_seq + 1))
            self.durable_head = last_seq
            self.section = None

    def take_usage(self) -> None:
        """Count the usage that a snapshot states for this log."""
        self._use(self.assigned_bytes)

    def release(self) -> None:
        """The log is deleted: release its usage."""
        self._use(-self.assigned_bytes, -self.memory_bytes)
        self.usage.keys -= self.keys.key_count if self.keys else 0
        self.usage.producers -= len(self.producers or ())
        self.usage.consumers -= len(self.consumers)

    # -- records -------------------------------------------------------------------------------------------------

    def reserve(self, appended: AppendedRecords) -> int:
        """Add the records to the assigned view; returns the number of their entry for `commit`."""
        entry = self.tail.append(appended)
        payloads = appended.payloads
        count, size = len(payloads), payloads[0] if len(payloads) == 1 else total(payloads)
        self.assigned_head = appended.first_seq + count - 1
        if appended.first_seq < self.assigned_floor:
            count, size = self._above(self.assigned_floor, appended)
        self.assigned_count += count
        self.assigned_bytes += size
        self.usage.bytes += size
        if self.ephemeral:
            self._use(0, size)
        return entry

    def _above(self, floor: int, appended: AppendedRecords | Batches) -> tuple[int, int]:
        """(records, bytes) of appended records above the floor. Records below it occur only where a log was written
        out."""
        if appended.first_seq < floor:
            return self.tail.totals(floor, appended.last_seq + 1)
        return len(appended.sizes), total(appended.payloads)

    def commit(self, appended: AppendedRecords, entry: int, unit_lsn: int, lead: int) -> None:
        """Publish reserved records whose batch is in the WAL at `unit_lsn` (0: in memory only)."""
        self.tail.set_lsn(entry, unit_lsn, lead)
        payloads = appended.payloads
        count, size = len(payloads), payloads[0] if len(payloads) == 1 else total(payloads)
        self.head = appended.first_seq + count - 1
        self.last_ts = self.last_write_ts = appended.ts
        if appended.first_seq < self.marks.live_floor:
            count, size = self._above(self.marks.live_floor, appended)
        self.count += count
        self.bytes += size
        if appended.tagged:
            self.tags.add(appended.tagged)
        if appended.delayed and self.queue is not None:
            self.queue.delay([each for each in appended.delayed if each[1] > appended.ts])
        self.section = None

    def take_batches(self, batches: Batches) -> None:
        """`reserve` and `commit` for many batches (recovery)."""
        self.tail.extend(batches)
        count, size = self._above(self.assigned_floor, batches)
        self.assigned_head = self.head = batches.last_seq
        self.assigned_count += count
        self.assigned_bytes += size
        self._use(size, size if self.ephemeral else 0)
        count, size = self._above(self.marks.live_floor, batches)
        self.count += count
        self.bytes += size
        self.last_ts = self.last_write_ts = batches.stamps[-1]
        self.tags.extend(batches.tags)
        self.section = None

    def index_only(self, appended: AppendedRecords, unit_lsn: int, lead: int) -> None:
        """Recovery, below a snapshot's as_of: the section counts these records already, without their positions."""
        self.tail.set_lsn(self.tail.append(appended), unit_lsn, lead)
        self.tags.add(appended.tagged)

    def roll_back(self) -> None:
        """Forget everything assigned that was not published."""
        self.tail.truncate(self.head + 1)
        if self.producers is not None:
            self.producers.roll_back()
        memory_bytes = self._in_memory(self.marks.live_floor, self.head + 1)
        self._use(self.bytes - self.assigned_bytes, memory_bytes - self.memory_bytes)
        self.assigned_head = self.head
        self.assigned_floor = self.marks.live_floor
        self.assigned_count = self.count
        self.assigned_bytes = self.bytes

    def recount(self) -> None:
        """Count the records that exist, instead of trusting the snapshot's counts: salvage has lost some records."""
        floor = self.marks.live_floor
        self.count, self.bytes = self.held.totals(floor, self.head + 1, floor)
        self.roll_back()

    # -- the tail cache ------------------------------------------------------------------------------------------

    def read_cached(self, seqs: Sequence[int], max_bytes: int, now_ms: int, ttl_ms: int) -> SizedRecords | None:
        """The records with these ascending seqs if the tail cache has the bytes of all of them; else None.

        None as well when one has expired (`ttl_ms` 0: none ever does) or is damaged, or when they have more than
        `max_bytes`.
        """
        tail = self.tail
        first, last, count = seqs[0], seqs[-1], len(seqs)
        if first <= self.held.flushed or last > self.head:
            return None
        oldest_ts = now_ms - ttl_ms if ttl_ms else 0
        payloads = array("I")
        pieces: list[tuple[bytes, int, int]] = []
        adjacent = last - first + 1 == count
        for begin, end in ((first, last),) if adjacent else consecutive_ranges(seqs):
            found = tail.whole(begin, end + 1)
            if found is None:
                return None
            for batch_seq, _, offset, _, ts, sizes in found[0]:
                in_cache = self.cached.get(batch_seq)
                if in_cache is None or ts < oldest_ts:
                    return None
                pieces.append((in_cache[0], in_cache[1] + offset, sum(sizes)))
            payloads += found[1]
        data, at, size = pieces[0]
        if len(pieces) > 1:
            data, at = b"".join([data[at : at + size] for data, at, size in pieces]), 0
        elif len(data) > SMALL_BUFFER and 2 * size < len(data):  # the rest would stay in memory with it
            data, at = data[at : at + size], 0
        first_seq = first if adjacent else None
        frames = kernel.scan(
            data,
            Kind.LOG,
            at,
            max_frames=count,
            max_bytes=max_bytes,
            verify=False,
            topic_id=self.topic_id,
            first_seq=first_seq,
        ).columns
        return SizedRecords(FrameRecords(data, frames), payloads) if frames.count == count else None

    # -- losses and deletions ------------------------------------------------------------------------------------

    def plan_eviction(self, records: int, size_bytes: int) -> Eviction | Segment:
        """What to evict to make this much room, in the assigned view; a segment when that must be loaded first."""
        return self.held.plan_eviction(self.assigned_floor, records, size_bytes, self.marks.live_floor)

    def assign_eviction(self, eviction: Eviction) -> None:
        """An eviction is in flight: remove its records from the assigned view."""
        self.assigned_count -= eviction.records
        self.assigned_bytes -= eviction.size_bytes
        self._use(-eviction.size_bytes, -self._in_memory(self.assigned_floor, eviction.floor) if self.ephemeral else 0)
        self.assigned_floor = eviction.floor

    def assign_floor(self, floor: int) -> None:
        """The floor is about to rise to here: remove everything below it from the assigned view."""
        if floor > self.assigned_floor:
            self.assign_eviction(Eviction(floor, *self.held.totals(self.assigned_floor, floor, self.marks.live_floor)))

    def evict(self, floors: dict[str, int] | None = None, loss: list[LossRange] | None = None) -> int:
        """Apply an EvictWatermark: raise floors, add loss ranges; returns the number of live records removed."""
        marks = self.marks
        before = marks.live_floor
        for start, end, _ in loss or ():
            self._lose(start, end)
        # The assigned view first: it counts the records that are still here.
        self.assign_floor(marks.live_floor_with(floors, loss))
        marks.merge(floors, loss)
        for _, end, _ in loss or ():
            self._raise_head(end)
        floor = marks.live_floor
        gone = 0
        if floor > before:
            gone, size = self.held.evict(before, floor, self.head + 1)
            self.count -= gone
            self.bytes -= size
            self._forget_below(floor)
            if self.queue is not None:
                self.queue.floor_raised(floor)
        self.section = None
        return gone

    def _lose(self, first_seq: int, last_seq: int) -> None:
        """Mark records in a loss range as deleted. Some may exist, after a change of class that was not finished."""
        first_seq = max(first_seq, self.marks.live_floor, self.held.flushed + 1)
        if first_seq <= last_seq and self.tail.totals(first_seq, last_seq + 1)[0]:
            self._count_deleted(*self.tail.delete_all(range(first_seq, min(last_seq, self.head) + 1)))

    def _raise_head(self, head: int) -> None:
        """Seqs up to `head` are gone for good: the next record gets a later one."""
        if head > self.head:
            self.head = head
            self.section = None
        self.assigned_head = max(self.assigned_head, self.head)

    def _forget_below(self, floor: int) -> None:
        if floor > self.held.flushed:
            self.tail.drop_below(floor)
        if self.tags.chunks:
            self.tags.forget_below(floor)
        # A floor that rises with every write is not checked every time, because the tail cache has its own bound.
        # Records of an ephemeral log have no such bound.
        if floor >= self.uncached_below + _UNCACHED_EVERY or self.ephemeral:
            self.uncached_below = floor
            # Batches are cached in seq order. The last one that begins below the floor may hold live records above it.
            for first_seq in list(takewhile(lambda seq: seq < floor, self.cached))[:-1]:
                del self.cached[first_seq]

    def delete(self, request: control.Delete, lsn: int = 0, found: FoundRecords | None = None) -> int:
        """Apply a Delete whose frame is at `lsn`; returns the number of live records removed. Repeating it changes
        nothing.

        `found`: the records in segments that the Delete removes, looked up beforehand.
        """
        last = self.delete_end(request)
        if request.match is None and request.seqs is None:
            return self.evict({LossCause.DELETE: last + 1}) if last > 0 else 0
        if self.usage.replaying:
            self.held.deferred.append((request, lsn))
            found = FoundRecords(self.held.flushed, [], [])
        elif found is None:
            found = self._find(request, 0)
        elif found.flushed < self.held.flushed:
            # A flush moved records to segments after the lookup: look up only these.
            more = self._find(request, found.flushed + 1)
            found = FoundRecords(more.flushed, found.seqs + more.seqs, found.sizes + more.sizes)
        gone, floor, flushed = 0, self.marks.live_floor, self.held.flushed
        if found.seqs and min(found.seqs) <= flushed:
            gone += self._count_deleted(*self.held.delete_all(*found.between(floor, min(last, flushed)), lsn))
        seqs = request.seqs if request.seqs is not None else self.tags.find(tag_match(request.match or []), last)
        first = max(floor, flushed + 1)
        if seqs and max(seqs) >= first:
            inside = min(seqs) >= first and max(seqs) <= last
            wanted = set(seqs) if inside else {seq for seq in seqs if first <= seq <= last}
            gone += self._count_deleted(*self.tail.delete_all(sorted(wanted)))
        self._forget_below(self.earliest_seq)
        self.section = None
        return gone

    def delete_end(self, request: control.Delete) -> int:
        """The last seq that a Delete can reach."""
        last = min(request.bound_head, self.head)
        return last if request.before_seq is None else min(last, request.before_seq - 1)

    def _find(self, request: control.Delete, first_seq: int) -> FoundRecords:
        """Live records in segments, from `first_seq` on, that a Delete wants by tag or seq. Blocking."""
        return find(self.held, request, max(first_seq, self.marks.live_floor), self.delete_end(request))

    def _count_deleted(self, seqs: Sequence[int], sizes: Sequence[int]) -> int:
        """Stop counting these records, ascending, as live; returns their number."""
        if not seqs:
            return 0
        self.count -= len(seqs)
        self.bytes -= sum(sizes)
        if self.queue is not None and self.queue.knows_any(seqs):
            for seq in seqs:
                self.queue.deleted(seq)
        counted = bisect_left(seqs, self.assigned_floor)
        size = sum(sizes[counted:])
        in_memory = sum(sizes[max(counted, bisect_right(seqs, self.durable_head)) :]) if self.ephemeral else 0
        self.assigned_count -= len(seqs) - counted
        self.assigned_bytes -= size
        self.usage.bytes -= size
        if in_memory:
            self._use(0, -in_memory)
        return len(seqs)

    @property
    def in_memory_only(self) -> bool:
        """Whether no live record of this log is in the WAL, so that losing one needs no frame."""
        return self.ephemeral and not self.being_written and self.marks.live_floor > self.durable_head

    # -- jobs --------------------------------------------------------------------------------------------------------

    def take_lease(self, value: control.Lease, node: str) -> None:
        """Apply a Lease frame; repeating it changes nothing."""
        if value.event in _MOVING:
            self.moves.take(value)
        if self.queue is not None:
            self.queue.apply(value, node)
        self.section = None

    def jobs_done(self, seqs: list[int]) -> None:
        """A Delete of these jobs is being applied: drop their leases and open moves."""
        if self.moves.out:
            self.moves.end(seqs)
        if self.queue is not None:
            self.queue.forget_deleted(seqs)

    def live_seqs(self, seq: int, count: int) -> list[int]:
        """The first `count` live seqs from `seq` on."""
        seq = max(seq, self.marks.live_floor)
        if seq > self.held.flushed:
            return self.tail.live_seqs(seq, self.head + 1, count)
        return self.held.live_seqs(seq, self.head + 1, count)

    def live_of(self, seqs: Sequence[int]) -> list[int]:
        """The seqs among these that have a live record."""
        if not seqs:
            return []
        first, reach = min(seqs), max(seqs) - min(seqs) + 1
        if reach > _DENSE * len(seqs):
            return [seq for seq in seqs if self.is_live(seq)]
        live = frozenset(self.live_seqs(first, reach))
        return [seq for seq in seqs if seq in live]

    def is_live(self, seq: int) -> bool:
        """Whether a live record has this seq."""
        return self.marks.live_floor <= seq <= self.head and self.held.holds(seq)

    def wal_needed_from(self) -> int | None:
        """Position of the oldest frame of this log that the WAL must keep."""
        unflushed = self.tail.oldest_lsn(max(self.earliest_seq, self.held.flushed + 1))
        written = self.held.written
        copying = written[0].lsn if written else None
        needed = [lsn for lsn in (unflushed, self.held.manifest.pin(), copying) if lsn is not None]
        return min(needed, default=None)

    def oldest_unflushed(self) -> int | None:
        """The first live record that is in the WAL and in no segment."""
        first = max(self.held.flushed + 1, self.marks.live_floor)
        seq = self.tail.first_live(first, self.head + 1) if first <= self.head else None
        return seq if seq is not None and self.tail.oldest_lsn(seq) is not None else None

    def unflushed_bytes(self) -> int:
        """Payload bytes of live records that are in no segment."""
        return self.bytes - sum(segment.live_bytes for segment in self.held.manifest.segments)

    def take_segment(self, value: control.Segment) -> None:
        """Apply a Segment frame; repeating it changes nothing."""
        self.held.take_segment(value)
        self.section = None

    def mark_flushed(self, last_seq: int) -> None:
        """Apply a CheckpointMark: records up to `last_seq` are in the active segment."""
        if last_seq > self.held.flushed:
            written = self.held.written.pop(0) if self.held.written else None
            self.held.mark_flushed(last_seq, self.marks.live_floor, written)
            self._forget_below(last_seq + 1)
            self.section = None
