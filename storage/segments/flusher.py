"""Works records off from the write-ahead log into segments, so that the log can be trimmed.

For each log that is due: frames are copied into the active segment and synced, .data before .idx; then one
CheckpointMark a shard says up to where. Nothing written here counts before that mark is synced; a crash before it
leaves bytes that the next start cuts off. A segment is named by a synced Segment{opened} before a mark covers it.

Source: docs/reference/format.md#segments.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import structlog

from storage.config import Retention
from storage.format import control
from storage.log.encode import encode_controls
from storage.log.fetch import WalFileGone
from storage.log.position import split
from storage.platform.slices import in_slices
from storage.segments.copying import Copied, Copy, append, open_writer, read
from storage.segments.errors import SegmentBroken
from storage.segments.flush_plan import Plan, last_words, plan_flush
from storage.segments.rewrite import rewrite_anew
from storage.segments.store import id_of
from storage.segments.writer import MAX_JUMP, ActiveSegment
from storage.state.catalog import Topic
from storage.state.log import Log
from storage.state.manifest import Segment, opened
from storage.state.retained import Written

if TYPE_CHECKING:
    from storage.engine import Engine

_log = structlog.get_logger("storage")

#: Logs whose files are written side by side: under load a turn is mostly waiting for its turn on the loop.
_SIDE_BY_SIDE = 8
#: Most logs flushed in one round, oldest records first: the rest comes with the next one.
_ROUND_LOGS = 512
#: Most segments kept open for writing between two rounds, the ones last written to: two descriptors each.
_HELD_WRITERS = 256
#: Segments too old are sealed so many at a time: their frames share a sync, and the loop goes on in between.
_SEALS_AT_ONCE = 32
#: Segments too old are looked for so many times within the age they may have.
_SEEK_OLD = 100
#: Records that a log must have in the WAL alone to be flushed at a clean stop, and how long all that may take.
_WORTH_FINISHING = 1000
FINISH_WITHIN_MS = 5000
#: With so many records or bytes a log is flushed whose records go when they are consumed: segments are what goes then.
CONSUMED_RECORDS = 5000
CONSUMED_BYTES = 4 << 20


class Flusher:
    """One round at a time; see `tick`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writers: dict[int, ActiveSegment] = {}
        self._sought_old_ms = 0
        #: Counters for the metrics: records and bytes flushed, segments opened and sealed, files given up.
        self.records = 0
        self.bytes = 0
        self.opened = 0
        self.sealed = 0
        self.broken = 0
        self.failures = 0

    async def work(self) -> None:
        """Flush what is due. Raises StorageError, OSError, SegmentError; all of it is tried again."""
        before = -1
        while before != self.records and not self._engine.segment_worker.pausing:  # nothing moved = nothing can be
            before = self.records
            due = await self._logs(self._due)
            due.sort(key=lambda log: log.tail.oldest_ts(log.held.flushed + 1) or 0)
            await self._flush(due[:_ROUND_LOGS])
        await self._seal_old()

    async def finish(self) -> None:
        """Before a clean stop: what is left to be replayed at the next start is little. Raises as `work`.

        Whoever stops the broker waits so long and no longer: the next start reads from the log what is left then.
        """
        until = self._engine.monotonic_ms() + FINISH_WITHIN_MS
        before = -1
        while before != self.records:
            before = self.records
            logs = await self._logs(lambda log: log.head - log.held.flushed >= _WORTH_FINISHING)
            for begin in range(0, len(logs), _SIDE_BY_SIDE):
                if self._engine.monotonic_ms() >= until:
                    return
                await self._flush(logs[begin : begin + _SIDE_BY_SIDE])

    async def flush_all(self) -> None:
        """Everything published, of every log that can be, is in segments on return. Raises as `work`."""
        before = -1
        while before != self.records:  # else nothing comes of trying again now
            before = self.records
            await self._flush(await self._logs(lambda log: log.oldest_unflushed() is not None))

    async def _logs(self, wanted: Callable[[Log], bool]) -> list[Log]:
        """Those of which this is true, and that can be worked on now."""
        topics = in_slices(list(self._engine.catalog.topics.values()), self._engine.clock)
        found = [topic async for topic in topics if wanted(topic.log)]
        return [topic.log for topic in found if self._usable(topic)]  # as things are now, at the end of all slices

    def _usable(self, topic: Topic) -> bool:
        engine, log = self._engine, self._engine.shards[topic.log.shard].log
        there = engine.catalog.by_id.get(topic.topic_id) is topic and not topic.provisional
        return there and topic.topic_id not in engine.changing and log.failed is None and not log.full

    def _due(self, log: Log) -> bool:
        if log.head <= log.held.flushed or (first := log.oldest_unflushed()) is None:
            return False
        engine, options = self._engine, self._engine.options
        oldest, lsn = log.tail.oldest_ts(first), log.tail.oldest_lsn(first)
        if oldest is None or lsn is None:
            return False
        most_records, most_bytes = options.checkpoint_records, options.checkpoint_bytes
        topic = engine.catalog.by_id.get(log.topic_id)  # None: it went between two slices
        if topic is not None and topic.config.retention is Retention.CONSUMED:
            most_records, most_bytes = min(most_records, CONSUMED_RECORDS), min(most_bytes, CONSUMED_BYTES)
        active_file = split(engine.shards[log.shard].log.end_lsn)[0]
        return (
            log.head + 1 - first >= most_records
            or log.tail.entries_from(first) >= options.checkpoint_batches
            or log.unflushed_bytes() >= most_bytes
            or engine.now_ms() - oldest >= options.checkpoint_age_ms
            or split(lsn)[0] < active_file - 1
        )

    async def _flush(self, logs: Sequence[Log]) -> None:
        for begin in range(0, len(logs), _ROUND_LOGS):
            some = logs[begin : begin + _ROUND_LOGS]
            by_shard: defaultdict[int, list[Log]] = defaultdict(list)
            for log in some:
                by_shard[log.shard].append(log)
            try:
                await _all(self._flush_shard(index, of_shard) for index, of_shard in by_shard.items())
            finally:
                self._hold_few([log.topic_id for log in some])

    def _hold_few(self, last_used: list[int]) -> None:
        """Nobody is at the files now: keep those open that are likely to be written to again, and not too many."""
        for topic_id in last_used:
            if topic_id in self._writers:
                self._writers[topic_id] = self._writers.pop(topic_id)
        for topic_id in list(self._writers)[:-_HELD_WRITERS]:
            self._drop_writer(topic_id)

    async def _flush_shard(self, index: int, logs: list[Log]) -> None:
        engine = self._engine
        await self._open_segments(logs)
        flushed: list[tuple[Log, Plan, Copied]] = []
        try:
            for begin in range(0, len(logs), _SIDE_BY_SIDE):
                await _all(self._flush_log(log, flushed) for log in logs[begin : begin + _SIDE_BY_SIDE])
            # A sync of these covers what the log says before: what was left out as deleted or evicted stays so.
            saying: list[Awaitable[Any]] = []
            flushed_seqs: dict[int, int] = {}
            for log, plan, copied in flushed:
                if words := last_words(log, plan, copied.data_bytes, engine.options):
                    saying.append(self._say(log, words))
                else:
                    flushed_seqs[log.topic_id] = plan.last_seq
            if flushed_seqs:
                mark = encode_controls([control.CheckpointMark(absorbed=flushed_seqs)], 0, engine.now_ms())
                saying.append(engine.submit_unit(engine.shards[index], 0, mark, frees=True))
            await _all(saying)
        finally:
            for log in logs:
                log.held.written = None

    async def _flush_log(self, log: Log, flushed: list[tuple[Log, Plan, Copied]]) -> None:
        plan = plan_flush(log, self._engine.options)
        if plan is not None:
            self._engine.segments.remember(log, plan.segment)
        try:
            if plan is not None and (copied := await self._write(log, plan)) is not None:
                flushed.append((log, plan, copied))
        except OSError as error:  # of this log alone; the others go on, and this one is tried again
            self.failures += 1
            _log.warning("flush_failed", topic_id=log.topic_id, error=str(error))

    async def _open_segments(self, logs: list[Log]) -> None:
        """Every log gets an active segment that its next record fits behind, named and synced."""
        opening: list[Awaitable[None]] = []
        for log in logs:
            first_seq = log.oldest_unflushed()
            active = log.held.manifest.active
            if first_seq is None or (active is not None and self._has_room(log, active, first_seq)):
                continue
            opening.append(self._open_segment(log, active, first_seq))
        await _all(opening)

    async def _open_segment(self, log: Log, active: Segment | None, first_seq: int) -> None:
        ended = [] if active is None else [active.ended()]
        await self._say(log, [*ended, opened(first_seq)])
        if active is not None and not active.count:
            self._engine.housekeeping.forget(log, active)

    async def _say(self, log: Log, values: Sequence[control.Control]) -> None:
        """One segment ends, or the next one begins, or both at once: nobody writes to the files there were."""
        self._drop_writer(log.topic_id)
        encoded = encode_controls(values, log.topic_id, self._engine.now_ms())
        await self._engine.submit_controls(log, encoded, frees=True)
        events = [value.event for value in values if isinstance(value, control.Segment)]
        self.opened += events.count("opened")
        self.sealed += events.count("sealed")

    def _has_room(self, log: Log, active: Segment, first_seq: int) -> bool:
        """Whether the log's next records fit behind what is in the segment (or are not to be had now)."""
        if not active.count:
            return first_seq == active.first_seq  # what it was opened for may be gone: an empty one is not kept
        if first_seq - active.end_seq > MAX_JUMP:
            return False
        if log.tail.oldest_lsn(first_seq) is None:
            return True
        return plan_flush(log, self._engine.options) is not None

    async def _write(self, log: Log, plan: Plan) -> Copied | None:
        """Copy the frames into the segment's files; None when that has to be tried again."""
        engine = self._engine
        dead = log.tail.dead_bits(plan.first_seq, plan.last_seq + 1)
        # From here to the mark the log is kept: what is deleted meanwhile is in these files, alive.
        log.held.written = written = Written(plan.first_seq, dead, engine.shards[log.shard].applied_lsn)
        try:
            copied = await engine.run_io(self._append, log, plan.copy(log, engine.path, dead))
        except SegmentBroken as error:
            self.broken += 1
            _log.error("segment_broken", topic_id=log.topic_id, error=str(error))
            await self.renew(log, plan.segment)
            return None
        except WalFileGone:
            return None  # trimmed: what lay in it is dead by now
        log.held.written = written._replace(data_bytes=copied.data_bytes)
        self.records += plan.last_seq + 1 - plan.first_seq
        self.bytes += copied.written
        return copied

    def _append(self, log: Log, job: Copy) -> Copied:
        """On the I/O pool, in files that stay open."""
        engine = self._engine
        parts = read(engine.wal_files, log.shard, job)
        writer = self._writers.get(log.topic_id)
        if writer is not None and (writer.id != job.id or writer.end_seq != job.end_seq):
            # Of another segment; or an earlier turn was written and its mark failed: the same again, from its end.
            self._drop_writer(log.topic_id)
            writer = None
        if writer is None:
            writer = self._writers[log.topic_id] = open_writer(engine.fs, job)
        return append(writer, parts)

    async def renew(self, log: Log, segment: Segment) -> None:
        """The files' state on disk is unknown after a failed sync: go on in new ones, made of what was marked."""
        engine = self._engine
        self._drop_writer(log.topic_id)
        id = id_of(log.topic_id, segment)
        made = await engine.run_io(rewrite_anew, engine.fs, engine.path, id, segment.end_seq, segment.dead)
        value = segment.frame("rewritten", gen=made.id.gen, data_bytes=made.data_bytes)
        await engine.submit_controls(log, encode_controls([value], log.topic_id, engine.now_ms()), frees=True)
        engine.store.reader.forget(id)
        engine.housekeeping.retire(id)

    def _drop_writer(self, topic_id: int) -> None:
        writer = self._writers.pop(topic_id, None)
        if writer is not None:
            writer.close()

    # -- sealing -----------------------------------------------------------------------------------------------------

    async def _seal_old(self) -> None:
        engine = self._engine
        max_age_ms = engine.options.segment_max_age_ms
        if not max_age_ms:
            return
        oldest = engine.now_ms() - max_age_ms
        if engine.monotonic_ms() - self._sought_old_ms < max_age_ms // _SEEK_OLD:
            return  # it is a long way through all topics
        self._sought_old_ms = engine.monotonic_ms()
        logs = await self._logs(lambda log: _begun_before(log, oldest))
        for begin in range(0, len(logs), _SEALS_AT_ONCE):
            if engine.segment_worker.pausing:
                self._sought_old_ms = 0  # the others with the next round
                return
            await _all(
                self._say(log, [segment.frame("sealed")])
                for log in logs[begin : begin + _SEALS_AT_ONCE]
                if (segment := log.held.manifest.active) is not None and _begun_before(log, oldest)
            )

    async def close(self) -> None:
        """Close the files; nothing is left to be synced."""
        for topic_id in list(self._writers):
            self._drop_writer(topic_id)

    def forget(self, topic_id: int) -> None:
        """The log is gone."""
        self._drop_writer(topic_id)


def _begun_before(log: Log, ts: int) -> bool:
    segment = log.held.manifest.active
    return segment is not None and segment.count > 0 and segment.first_ts < ts


async def _all(works: Iterable[Awaitable[Any]]) -> None:
    """Run them side by side to their ends; raises what the first of them raised, when all are done."""
    several = [*works]
    if len(several) == 1:
        # One topic alone under full load: each turn of the loop that is not waited for is some ms.
        await several[0]
        return
    for outcome in await asyncio.gather(*several, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
