"""Maintains existing segments: flags deleted records, drops, rewrites and packs segments, removes deleted logs.

Nothing is unlinked, flagged or overwritten before the frame that justifies it is synced. Every action here begins with
a barrier or a synced frame, and may be interrupted by a crash and repeated.

Source: docs/reference/format.md#segments.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import closing
from typing import Protocol

import structlog

from storage.format import control, set_bits
from storage.log import EncodedUnit, Unit, encode_controls
from storage.platform import FileSystem, in_slices
from storage.records import CompressionType
from storage.segments.errors import SegmentBroken, SegmentCorrupt, SegmentError
from storage.segments.files import remove_folder
from storage.segments.flusher import Flusher
from storage.segments.names import SegmentId
from storage.segments.packed import is_worth_packing, open_data
from storage.segments.rewrite import Rewritten, remove, rewrite_anew
from storage.segments.segments import Segments
from storage.segments.store import id_of
from storage.state import CODEC, COLD, HOT, PRODUCER, Log, Segment, Topic

_log = structlog.get_logger("storage")

#: Time for packing in one round: the next flush waits for the end of the round.
_PACK_MS = 250
#: After packing has failed, for example for want of space, nothing is packed for this long.
_PACK_AGAIN_MS = 60_000
#: After these errors no other segment can be rewritten either.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
#: Most damaged records that one log event names.
_SEQS_LOGGED = 20


class ColdObjects(Protocol):
    """The part that keeps the cold tier in step with the manifests: `storage.segments.tiering.relocator`."""

    #: Deleted logs whose objects are still to be removed.
    deleted: set[int]

    def index_changed(self, id: SegmentId) -> None: ...

    def take_deleted(self, topic_id: int) -> bool: ...


class Housekeeping:
    """One round at a time, one action a segment at a time."""

    def __init__(
        self, segments: Segments, flusher: Flusher, objects: ColdObjects, allow_packing: Callable[[], None]
    ) -> None:
        """`allow_packing` is called on the I/O pool before the first segment is packed."""
        self._segments = segments
        self._logs = segments.logs
        self._runtime = segments.logs.runtime
        self._flusher = flusher
        self._objects = objects
        self._allow_packing = allow_packing
        #: Counters for the metrics: segments dropped, rewritten, records flagged.
        self.dropped = 0
        self.rewritten = 0
        self.flagged = 0
        #: Segments packed, bytes of .data and .zdata of these; records that were copied though they fail their check.
        self.packed = 0
        self.packed_from_bytes = 0
        self.packed_to_bytes = 0
        self.damaged = 0
        self._pack_until_ms = 0
        self._no_packing_before_ms = 0

    async def work(self) -> None:
        """One round. Raises StorageError, OSError, SegmentError; the next round tries again."""
        logs = self._logs
        self._pack_until_ms = logs.monotonic_ms() + _PACK_MS
        failure: Exception | None = None
        async for topic in in_slices(list(logs.catalog.topics.values()), logs.clock):
            least = self._pack_bytes(topic)
            for log in topic.logs:
                due = [segment for segment in log.held.manifest.segments if needs_work(log, segment, least)]
                if due and logs.shards[log.shard].log.failed is None:
                    for segment in due:
                        if not self._segments.pausing and self._has_waited(log, segment):
                            try:
                                await self._keep(topic, log, segment)
                            except (SegmentError, OSError) as error:
                                if isinstance(error, OSError) and error.errno in _NO_ROOM:
                                    raise
                                failure = failure or error  # of this segment alone: it must not block the others
        await self._remove_retired()
        await self._remove_folders()
        if failure is not None:
            raise failure

    def _has_waited(self, log: Log, segment: Segment) -> bool:
        """Whether it is time to flag or rewrite. Segments of a queue are soon dropped as a whole: waiting saves work.

        Until then the Delete frames keep the log from being trimmed. A full disk does not wait.
        """
        if (segment.sealed and not segment.live) or self._logs.shards[log.shard].log.full:
            return True
        now = self._logs.now_ms()
        if segment.worn_since_ms is None:
            segment.worn_since_ms = now
        return now - segment.worn_since_ms >= self._logs.options.flag_age_ms

    def _pack_bytes(self, topic: Topic) -> int:
        """The least size of a segment to be packed now, in bytes; 0: none is packed."""
        now = self._logs.monotonic_ms()
        return self._logs.options.segment_pack_bytes if packs(topic) and now >= self._no_packing_before_ms else 0

    async def _keep(self, topic: Topic, log: Log, segment: Segment) -> None:
        if segment in self._segments.busy or self._segments.pins.holds(id_of(log.topic_id, segment)):
            return  # a later round comes back to it
        self._segments.busy.add(segment)
        acted = True
        try:
            if segment.sealed and not segment.live:
                await self._drop(log, segment)
            elif needs_rewrite(log, segment) and await self._still_after_counting(log, segment):
                await self._rewrite(log, segment, packed=packs(topic))
            elif wants_packing(log, segment, self._pack_bytes(topic)) and self._may_pack(log):
                await self._pack(log, segment)
            elif segment.flips:
                await self._flip(log, segment)
            else:
                acted = False  # no time was left: the next round begins with it
        finally:
            self._segments.busy.discard(segment)
            if acted:
                segment.worn_since_ms = None

    def _may_pack(self, log: Log) -> bool:
        """Whether there is room and time. The next round of flushing waits for this one."""
        return not self._logs.shards[log.shard].log.full and self._logs.monotonic_ms() < self._pack_until_ms

    async def _pack(self, log: Log, segment: Segment) -> None:
        """Pack a segment. If that fails, the segment stays unchanged."""
        runtime, id = self._runtime, id_of(log.topic_id, segment)
        try:
            if not await runtime.run_io(_is_worth_packing, runtime.fs, runtime.path, id):
                segment.unpackable = True
                return
            await self._rewrite(log, segment, packed=True)
        except (OSError, SegmentError) as error:
            segment.unpackable = isinstance(error, SegmentCorrupt)  # reads of its records report the damage
            self._no_packing_before_ms = self._logs.monotonic_ms() + _PACK_AGAIN_MS
            _log.warning("not_packed", topic_id=log.topic_id, first_seq=id.first_seq, error=str(error))

    async def _still_after_counting(self, log: Log, segment: Segment) -> bool:
        """Whether it needs a rewrite also when only seqs with a frame count: a rewrite leaves seqs without one."""
        if segment.framed is None:
            store, id = self._segments.store, id_of(log.topic_id, segment)
            segment.framed = await self._runtime.run_io(store.reader.frames, id, segment.end_seq)
        return needs_rewrite(log, segment)

    async def _barrier(self, log: Log) -> None:
        """Wait until everything applied so far is durable."""
        shard = self._logs.shards[log.shard]
        await self._logs.submit_unit(shard, 0, EncodedUnit(Unit(None, []), b"", 0), frees=True)

    async def _submit(self, log: Log, value: control.Control) -> None:
        encoded = encode_controls([value], log.topic_id, self._logs.now_ms())
        await self._logs.submit_controls(log, encoded, frees=True)

    async def _drop(self, log: Log, segment: Segment) -> None:
        """Drop a segment whose records are all dead, by floors and deletions that precede this frame in the log."""
        await self._submit(log, segment.frame("dropped"))
        self._segments.removed(id_of(log.topic_id, segment), segment.tier)
        self.dropped += 1

    async def _flip(self, log: Log, segment: Segment) -> None:
        bits = segment.begin_flips()
        done = False
        try:
            await self._barrier(log)
            indexes = list(set_bits(bits))
            await self._runtime.run_io(self._segments.store.flag, log.topic_id, segment, indexes)
            self.flagged += len(indexes)
            done = True
            if segment.tier == COLD:
                self._objects.index_changed(id_of(log.topic_id, segment))
        except SegmentBroken as error:
            _log.error("segment_broken", topic_id=log.topic_id, error=str(error))
        finally:
            segment.end_flips(done=done)
        if not done and segment.tier == HOT:  # the file of a cold one that could not be synced is removed already
            packed = bool(segment.packed_bytes)
            renewed = (
                self._rewrite(log, segment, packed=packed) if segment.sealed else self._flusher.renew(log, segment)
            )
            await renewed

    async def _rewrite(self, log: Log, segment: Segment, *, packed: bool) -> None:
        """Copy the live records into the next generation. Records deleted meanwhile are flagged there."""
        old = id_of(log.topic_id, segment)
        segment.begin_flips()
        done = False
        try:
            bits = segment.dead | ((1 << max(0, log.marks.live_floor - segment.first_seq)) - 1)
            await self._barrier(log)
            made: Rewritten = await self._runtime.run_io(self._copy, old, segment.end_seq, bits, packed)
            await self._submit(
                log,
                segment.frame("rewritten", gen=made.id.gen, data_bytes=made.data_bytes, packed_bytes=made.packed_bytes),
            )
            segment.dead |= bits & ((1 << segment.count) - 1)
            segment.framed = None
            done = True
        finally:
            segment.end_flips(done=done)
        self._segments.removed(old, HOT)
        self.rewritten += not packed
        self.packed += packed
        self.packed_from_bytes += made.data_bytes if packed else 0
        self.packed_to_bytes += made.packed_bytes
        if made.damaged_seqs:
            self.damaged += len(made.damaged_seqs)
            _log.error("damaged_records_copied", topic_id=log.topic_id, seqs=made.damaged_seqs[:_SEQS_LOGGED])

    def _copy(self, id: SegmentId, end_seq: int, dead_bits: int, packed: bool) -> Rewritten:
        """Blocking."""
        if packed:
            self._allow_packing()
        return rewrite_anew(self._runtime.fs, self._runtime.path, id, end_seq, dead_bits, packed=packed)

    async def _remove_retired(self) -> None:
        runtime, retired = self._runtime, self._segments.retired
        for id in [id for id in retired if not self._segments.pins.holds(id)]:
            await runtime.run_io(remove, runtime.fs, runtime.path, id)
            retired.remove(id)

    async def _remove_folders(self) -> None:
        runtime, pending = self._runtime, self._logs.catalog.pending_deletes
        for topic_id in pending - self._objects.deleted - self._segments.pins.topics():
            self._flusher.forget(topic_id)
            await runtime.run_io(remove_folder, runtime.fs, runtime.path, topic_id)
            if not self._objects.take_deleted(topic_id):
                pending.discard(topic_id)


def needs_work(log: Log, segment: Segment, pack_bytes: int) -> bool:
    """Whether there may be something to do. Called for every segment, every second."""
    return (
        segment.flips != 0
        or (segment.sealed and (not segment.live or needs_rewrite(log, segment)))
        or wants_packing(log, segment, pack_bytes)
    )


def packs(topic: Topic) -> bool:
    """Whether segments of a topic are packed: its settings ask for compression, or its producers compress."""
    asked = topic.config.compression_type
    if asked is CompressionType.PRODUCER:
        states = topic.log.states
        return states is not None and states.get(CODEC, PRODUCER) is not None
    return asked is not CompressionType.UNCOMPRESSED


def wants_packing(log: Log, segment: Segment, pack_bytes: int) -> bool:
    """Whether it is complete, large enough and not packed. 0 bytes: nothing is packed."""
    return (
        0 < pack_bytes <= segment.data_bytes
        and segment.sealed
        and segment.tier == HOT
        and not segment.packed_bytes
        and not segment.unpackable
        and segment.live > 0
        and segment.end_seq > log.marks.live_floor
    )


def _is_worth_packing(fs: FileSystem, root: str, id: SegmentId) -> bool:
    with closing(open_data(fs, root, id)) as data:
        return is_worth_packing(data)


def needs_rewrite(log: Log, segment: Segment) -> bool:
    """Whether less than half of its records are live. Cold segments are not rewritten: that would fetch all of it."""
    framed = segment.count if segment.framed is None else segment.framed
    return segment.sealed and segment.tier == HOT and segment.live * 2 < framed - _evicted(log, segment)


def _evicted(log: Log, segment: Segment) -> int:
    """Its seqs below the floor. They do not make a rewrite worthwhile: they go when the segment is dropped."""
    return min(segment.count, max(0, log.marks.live_floor - segment.first_seq))
