"""What happens to segments once they are there: flags, drops, rewriting, removal of deleted logs' folders.

Nothing is unlinked, flagged or overwritten before the frame that justifies it is synced: every action here begins
with a barrier or a synced frame, and each can be cut short by a crash and taken again. Source: storage.md §4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from storage.format import control
from storage.format.idx_entry import set_bits
from storage.log.encode import EncodedUnit, encode_controls
from storage.log.submission import Unit
from storage.platform.slices import in_slices
from storage.segments.errors import SegmentBroken
from storage.segments.files import remove_folder
from storage.segments.names import SegmentId
from storage.segments.rewrite import remove, rewrite_anew
from storage.segments.store import id_of
from storage.state.log import Log
from storage.state.manifest import COLD, HOT, Segment

if TYPE_CHECKING:
    from storage.engine import Engine

_log = structlog.get_logger("storage")


class Housekeeping:
    """One round at a time, one action a segment at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._retired: list[SegmentId] = []
        #: Segments that somebody is at, the relocator included: one action a segment at a time.
        self.busy: set[Segment] = set()
        #: Counters for the metrics: segments dropped, rewritten, records flagged.
        self.dropped = 0
        self.rewritten = 0
        self.flagged = 0

    def retire(self, id: SegmentId) -> None:
        """These files are in no manifest any more: remove them."""
        self._retired.append(id)

    async def work(self) -> None:
        """See the module. Raises StorageError, OSError, SegmentError; what was not done is tried again."""
        engine = self._engine
        async for topic in in_slices(list(engine.catalog.topics.values()), engine.clock):
            for log in topic.logs:
                due = [segment for segment in log.held.manifest.segments if wants_care(log, segment)]
                if due and engine.shards[log.shard].log.failed is None:
                    for segment in due:
                        if not engine.upkeep.pausing and self._has_waited(log, segment):
                            await self._keep(log, segment)
        await self._remove_retired()
        await self._remove_folders()

    def _has_waited(self, log: Log, segment: Segment) -> bool:
        """Whether it is time. A queue that is worked off leaves nothing to be flagged: the segment goes as a whole.

        Until then the Delete frames pin the log, which a full disk does not wait for.
        """
        engine = self._engine
        if (segment.sealed and not segment.live) or engine.shards[log.shard].log.full:
            return True
        now = engine.now_ms()
        if segment.worn_since_ms is None:
            segment.worn_since_ms = now
        return now - segment.worn_since_ms >= engine.options.flag_age_ms

    async def _keep(self, log: Log, segment: Segment) -> None:
        if segment in self.busy or self._engine.backups.pins.holds(id_of(log.topic_id, segment)):
            return  # its turn comes with a later round
        self.busy.add(segment)
        try:
            if segment.sealed and not segment.live:
                await self._drop(log, segment)
            elif needs_rewrite(log, segment) and await self._still_after_counting(log, segment):
                await self._rewrite(log, segment)
            elif segment.flips:
                await self._flip(log, segment)
        finally:
            self.busy.discard(segment)
            segment.worn_since_ms = None

    async def _still_after_counting(self, log: Log, segment: Segment) -> bool:
        """Seqs without a frame, as a rewrite leaves them, are no reason for the next one."""
        if segment.framed is None:
            store, id = self._engine.store, id_of(log.topic_id, segment)
            segment.framed = await self._engine.run_io(store.reader.frames, id, segment.end_seq)
        return needs_rewrite(log, segment)

    async def _barrier(self, log: Log) -> None:
        """What has been applied is durable on return."""
        shard = self._engine.shards[log.shard]
        await self._engine.submit_unit(shard, 0, EncodedUnit(Unit(None, []), b"", 0), frees=True)

    async def _submit(self, log: Log, value: control.Control) -> None:
        engine = self._engine
        await engine.submit_controls(log, encode_controls([value], log.topic_id, engine.now_ms()), frees=True)

    async def _drop(self, log: Log, segment: Segment) -> None:
        """All of it is dead: by floors and deletions that lie before this frame in the same log."""
        await self._submit(log, segment.frame("dropped"))
        self.forget(log, segment)
        self.dropped += 1

    def forget(self, log: Log, segment: Segment) -> None:
        """It was dropped: nobody looks into its files any more, and they go."""
        id = id_of(log.topic_id, segment)
        self._engine.store.forget(id)
        self._retired.append(id)
        self._engine.relocator.gone(id, segment.tier)

    async def _flip(self, log: Log, segment: Segment) -> None:
        engine = self._engine
        bits = segment.begin_flips()
        done = False
        try:
            await self._barrier(log)
            indexes = list(set_bits(bits))
            await engine.run_io(engine.store.flag, log.topic_id, segment, indexes)
            self.flagged += len(indexes)
            done = True
            if segment.tier == COLD:
                engine.relocator.index_changed(id_of(log.topic_id, segment))
        except SegmentBroken as error:
            _log.error("segment_broken", topic_id=log.topic_id, error=str(error))
        finally:
            segment.end_flips(done=done)
        if not done and segment.tier == HOT:  # of a cold one the file that could not be synced is gone already
            await (self._rewrite(log, segment) if segment.sealed else engine.absorber.renew(log, segment))

    async def _rewrite(self, log: Log, segment: Segment) -> None:
        """Only what lives is copied into the next generation; what is deleted meanwhile is flagged there."""
        engine = self._engine
        old = id_of(log.topic_id, segment)
        segment.begin_flips()
        done = False
        try:
            bits = segment.dead | ((1 << max(0, log.marks.live_floor - segment.first_seq)) - 1)
            await self._barrier(log)
            made = await engine.run_io(rewrite_anew, engine.fs, engine.path, old, segment.end_seq, bits)
            await self._submit(log, segment.frame("rewritten", gen=made.id.gen, data_bytes=made.data_bytes))
            segment.dead |= bits & ((1 << segment.count) - 1)
            segment.framed = None
            done = True
        finally:
            segment.end_flips(done=done)
        self._engine.store.forget(old)
        self._retired.append(old)
        self._engine.relocator.gone(old, HOT)
        self.rewritten += 1

    async def _remove_retired(self) -> None:
        engine = self._engine
        for id in [id for id in self._retired if not engine.backups.pins.holds(id)]:
            await engine.run_io(remove, engine.fs, engine.path, id)
            self._retired.remove(id)

    async def _remove_folders(self) -> None:
        engine = self._engine
        for topic_id in engine.catalog.pending_deletes - engine.relocator.deleted - engine.backups.pins.topics():
            engine.absorber.forget(topic_id)
            await engine.run_io(remove_folder, engine.fs, engine.path, topic_id)
            if not engine.relocator.take_deleted(topic_id):
                engine.catalog.pending_deletes.discard(topic_id)


def wants_care(log: Log, segment: Segment) -> bool:
    """Whether there may be something to do about it. Asked of every segment there is, every second."""
    return segment.flips != 0 or (segment.sealed and (not segment.live or needs_rewrite(log, segment)))


def needs_rewrite(log: Log, segment: Segment) -> bool:
    """Whether less than half of it lives. Cold ones stay as they are: to rewrite one, all of it would be fetched."""
    framed = segment.count if segment.framed is None else segment.framed
    return segment.sealed and segment.tier == HOT and segment.live * 2 < framed - _evicted(log, segment)


def _evicted(log: Log, segment: Segment) -> int:
    """Seqs of it that lie below the floor: they do not make it worth rewriting, they go with all of it."""
    return min(segment.count, max(0, log.marks.live_floor - segment.first_seq))
