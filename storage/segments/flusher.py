"""Copies records from the write-ahead log into segments, so that the log can be trimmed.

For each log that is due, frames are copied into the active segment and synced, .data before .idx. Then one
CheckpointMark for each shard says how far. Nothing written here counts before that mark is synced; a crash before it
leaves bytes that the next start cuts off. A Segment{opened} names a segment before a mark covers it.

A log with records for several segments has them copied side by side, in one run. One atomic batch then marks and seals
each and opens the next. Until it is durable no frame names the new files, and a start removes them.

Source: docs/reference/format.md#segments.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import closing, suppress
from typing import Any

import structlog

from storage.format import control
from storage.log import WalFileGone, encode_controls, split
from storage.platform import in_slices
from storage.records import Retention
from storage.segments import names
from storage.segments.copying import Copied, Copy, append, copy_anew, open_writer, read
from storage.segments.details import DetailsCache
from storage.segments.errors import SegmentBroken, SegmentError
from storage.segments.flush_plan import Plan, frames_of_run, plan_flush, plan_run
from storage.segments.names import SegmentId
from storage.segments.rewrite import remove, rewrite_anew
from storage.segments.segments import Segments
from storage.segments.store import id_of
from storage.segments.writer import MAX_JUMP, ActiveSegment
from storage.state import Log, Segment, Topic, Written, opened

_log = structlog.get_logger("storage")

#: Logs whose files are written at the same time: under load a copy mostly waits for the event loop.
_SIDE_BY_SIDE = 8
#: The most segments that one round fills; the logs that are due share them.
_RUN_SEGMENTS = 64
#: New segments of a run that are copied at the same time: their syncs share what the disk does for each.
_COPIERS = 16
#: Most logs flushed in one round, those with the oldest records first.
_ROUND_LOGS = 512
#: Most segments kept open for writing between two rounds, the last used ones: two descriptors each.
_HELD_WRITERS = 256
#: Old segments sealed at a time: their frames share a sync, and the loop runs other work in between.
_SEALS_AT_ONCE = 32
#: Old segments are looked for this many times within their maximum age.
_SEEK_OLD = 100
#: At a clean stop, logs with at least this many unflushed records are flushed, for at most this long in all.
_WORTH_FINISHING = 1000
FINISH_WITHIN_MS = 5000
#: A log with retention "consumed" is flushed from this many records or bytes on, because whole segments are reclaimed.
CONSUMED_RECORDS = 5000
CONSUMED_BYTES = 4 << 20


class Flusher:
    """Runs one flush at a time. See the module."""

    def __init__(self, segments: Segments, details: DetailsCache) -> None:
        self._segments = segments
        self._logs = segments.logs
        self._runtime = segments.logs.runtime
        self._details = details
        self._writers: dict[int, ActiveSegment] = {}
        #: Of the threads that copy: one copies frames while the others sync. More would take the interpreter from the
        #: loop in turns, and copy no faster.
        self._copy_lock = threading.Lock()
        self._sought_old_ms = 0
        #: Counters for the metrics: records and bytes flushed, segments opened and sealed, files given up.
        self.records = 0
        self.bytes = 0
        self.opened = 0
        self.sealed = 0
        self.broken = 0
        self.failures = 0

    async def work(self) -> None:
        """Flush what is due. Raises StorageError, OSError, SegmentError; the next round tries again."""
        before = -1
        while before != self.records and not self._segments.pausing:  # if no records moved, no log file can be deleted
            before = self.records
            due = await self._found(self._due)
            due.sort(key=lambda log: log.tail.oldest_ts(log.held.flushed + 1) or 0)
            await self._flush(due[:_ROUND_LOGS])
        await self._seal_old()

    async def finish(self) -> None:
        """Before a clean stop: flush, so that the next start has little to replay. Raises as `work`.

        A stop waits at most FINISH_WITHIN_MS for it. The next start reads the rest from the log.
        """
        until = self._logs.monotonic_ms() + FINISH_WITHIN_MS
        before = -1
        while before != self.records:
            before = self.records
            logs = await self._found(lambda log: log.head - log.held.flushed >= _WORTH_FINISHING)
            for begin in range(0, len(logs), _SIDE_BY_SIDE):
                if self._logs.monotonic_ms() >= until:
                    return
                await self._flush(logs[begin : begin + _SIDE_BY_SIDE])

    async def flush_all(self) -> None:
        """Flush everything of every log that is published when this begins, as far as it can be flushed. Raises as
        `work`."""
        # Not what is appended meanwhile: against a writer that is as fast as a round, there would be no end.
        ends = {log.topic_id: log.head for log in await self._found(lambda log: log.oldest_unflushed() is not None)}

        def is_left(log: Log) -> bool:
            first = log.oldest_unflushed()
            return first is not None and first <= ends.get(log.topic_id, 0)

        before = -1
        while before != self.records:  # otherwise trying again changes nothing
            before = self.records
            await self._flush(await self._found(is_left))

    async def _found(self, wanted: Callable[[Log], bool]) -> list[Log]:
        """The logs for which `wanted` is true and that can be flushed now."""
        topics = in_slices(list(self._logs.catalog.topics.values()), self._logs.clock)
        found = [topic async for topic in topics if wanted(topic.log)]
        return [topic.log for topic in found if self._usable(topic)]  # checked again after all slices

    def _usable(self, topic: Topic) -> bool:
        logs, log = self._logs, self._logs.shards[topic.log.shard].log
        there = logs.catalog.by_id.get(topic.topic_id) is topic and not topic.provisional
        return there and topic.topic_id not in logs.changing and log.failed is None and not log.full

    def _due(self, log: Log) -> bool:
        if log.head <= log.held.flushed or (first := log.oldest_unflushed()) is None:
            return False
        logs, options = self._logs, self._logs.options
        oldest, lsn = log.tail.oldest_ts(first), log.tail.oldest_lsn(first)
        if oldest is None or lsn is None:
            return False
        most_records, most_bytes = options.checkpoint_records, options.checkpoint_bytes
        topic = logs.catalog.by_id.get(log.topic_id)  # None: it went between two slices
        if topic is not None and topic.config.retention is Retention.CONSUMED:
            most_records, most_bytes = min(most_records, CONSUMED_RECORDS), min(most_bytes, CONSUMED_BYTES)
        active_file = split(logs.shards[log.shard].log.end_lsn)[0]
        return (
            log.head + 1 - first >= most_records
            or log.tail.entries_from(first) >= options.checkpoint_batches
            or log.unflushed_bytes() >= most_bytes
            or logs.now_ms() - oldest >= options.checkpoint_age_ms
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
        """Close all but the last used files. Nobody is using them now."""
        for topic_id in last_used:
            if topic_id in self._writers:
                self._writers[topic_id] = self._writers.pop(topic_id)
        for topic_id in list(self._writers)[:-_HELD_WRITERS]:
            self._drop_writer(topic_id)

    async def _flush_shard(self, index: int, logs: list[Log]) -> None:
        await self._open_segments(logs)
        flushed: list[tuple[Log, list[Plan], list[int]]] = []
        share = max(1, _RUN_SEGMENTS // len(logs))
        try:
            for begin in range(0, len(logs), _SIDE_BY_SIDE):
                await _all(self._flush_log(log, share, flushed) for log in logs[begin : begin + _SIDE_BY_SIDE])
            # A sync of these frames covers the frames before them, so records left out as deleted or evicted stay so.
            saying: list[Awaitable[Any]] = []
            flushed_seqs: dict[int, int] = {}
            for log, run, lengths in flushed:
                if frames := frames_of_run(log, run, lengths, self._logs.options):
                    saying.append(self._write_run(log, run, frames))
                else:
                    flushed_seqs[log.topic_id] = run[0].last_seq
            if flushed_seqs:
                mark = encode_controls([control.CheckpointMark(absorbed=flushed_seqs)], 0, self._logs.now_ms())
                saying.append(self._logs.submit_unit(self._logs.shards[index], 0, mark, frees=True))
            await _all(saying)
        finally:
            for log in logs:
                log.held.written = []

    async def _flush_log(self, log: Log, segments: int, flushed: list[tuple[Log, list[Plan], list[int]]]) -> None:
        run = plan_run(log, self._logs.options, segments)
        if not run:
            return
        self._details.remember(log, run[0].segment)
        try:
            if lengths := await self._write(log, run):
                flushed.append((log, run[: len(lengths)], lengths))
        except (SegmentError, OSError, ValueError) as error:  # of this log alone; the next round tries it again
            self.failures += 1
            _log.warning("flush_failed", topic_id=log.topic_id, error=str(error))

    async def _open_segments(self, logs: list[Log]) -> None:
        """Give every log an active segment that its next record fits into, named by a synced frame."""
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
        await self._write_frames(log, [*ended, opened(first_seq)])
        if active is not None and not active.count:
            self._segments.removed(id_of(log.topic_id, active), active.tier)

    async def _write_frames(self, log: Log, values: Sequence[control.Control]) -> None:
        """Write frames that seal a segment, open the next one, or both. The old files are closed."""
        self._drop_writer(log.topic_id)
        encoded = encode_controls(values, log.topic_id, self._logs.now_ms())
        await self._logs.submit_controls(log, encoded, frees=True)
        events = [value.event for value in values if isinstance(value, control.Segment)]
        self.opened += events.count("opened")
        self.sealed += events.count("sealed")

    async def _write_run(self, log: Log, run: list[Plan], values: Sequence[control.Control]) -> None:
        await self._write_frames(log, values)
        for plan in run[1:]:
            if (segment := log.held.manifest.named(plan.first_seq)) is not None:
                self._details.keep(log, segment)

    def _has_room(self, log: Log, active: Segment, first_seq: int) -> bool:
        """Whether the log's next records fit into the segment (or cannot be read now)."""
        if not active.count:
            return first_seq == active.first_seq  # the record that it was opened for may be gone
        if first_seq - active.end_seq > MAX_JUMP:
            return False
        if log.tail.oldest_lsn(first_seq) is None:
            return True
        return plan_flush(log, self._logs.options) is not None

    async def _write(self, log: Log, run: list[Plan]) -> list[int]:
        """Copy the frames into the segments' files. Returns the .data lengths of those before the first that failed.
        The others must be tried again. Raises the OSError of the first."""
        first, root = run[0], self._runtime.path
        lsn, measured = self._logs.shards[log.shard].applied_lsn, len(run) > 1 and self._details.wants(log)
        # The log is kept from here to the mark: records deleted meanwhile are live in these files.
        written = [
            Written(plan.first_seq, log.tail.dead_bits(plan.first_seq, plan.last_seq + 1), lsn, measured=measured)
            for plan in run
        ]
        log.held.written = [*written]
        jobs = [plan.copy(log, root, each.dead) for plan, each in zip(run, written, strict=True)]
        lanes = [jobs[1 + lane :: _COPIERS] for lane in range(min(_COPIERS, len(jobs) - 1))]
        copying = [self._runtime.run_io(self._append, log, jobs[0])]
        copying += [self._runtime.run_copy(self._copy_lane, log.shard, lane) for lane in lanes]
        # All end before anything else is done with these files.
        outcome, *others = await asyncio.gather(*copying, return_exceptions=True)
        copied = [] if isinstance(outcome, BaseException) else [outcome, *_in_order(others, len(jobs) - 1)]
        if len(copied) > 1 and not await self._runtime.run_io(self._named, log.topic_id):
            del copied[1:]
        if len(copied) < len(run):
            # Their files do not count, and a later plan may begin with another record.
            await self._runtime.run_io(self._remove_all, [job.id for job in jobs[max(1, len(copied)) :]])
        if isinstance(outcome, SegmentBroken):
            self.broken += 1
            _log.error("segment_broken", topic_id=log.topic_id, error=str(outcome))
            await self.renew(log, first.segment)
        elif isinstance(outcome, BaseException) and not isinstance(outcome, WalFileGone):
            raise outcome  # WalFileGone: trimmed, its records are dead by now
        elif len(copied) < len(run):
            self.failures += 1
        log.held.written = [
            each._replace(data_bytes=done.data_bytes) for each, done in zip(written, copied, strict=False)
        ]
        for plan, done in zip(run, copied, strict=False):
            self.records += plan.last_seq + 1 - plan.first_seq
            self.bytes += done.written
        return [done.data_bytes for done in copied]

    def _copy_lane(self, shard: int, jobs: Sequence[Copy]) -> list[Copied]:
        """Copy one after the other until one fails. Runs on the pool for copies."""
        done: list[Copied] = []
        with closing(self._logs.wal_files.apart()) as wal:
            for job in jobs:
                try:
                    done.append(copy_anew(self._runtime.fs, wal, shard, job, self._copy_lock))
                except (SegmentError, WalFileGone, ValueError, OSError) as error:
                    _log.warning("flush_failed", topic_id=job.id.topic_id, error=str(error))
                    break
        return done

    def _named(self, topic_id: int) -> bool:
        """Runs on the I/O pool: make the names of new files durable. False if that failed."""
        try:
            self._runtime.fs.sync_dir(names.folder(self._runtime.path, topic_id))
        except OSError as error:
            _log.warning("flush_failed", topic_id=topic_id, error=str(error))
            return False
        return True

    def _remove_all(self, ids: Sequence[SegmentId]) -> None:
        """Runs on the I/O pool: files that no frame names."""
        for id in ids:
            with suppress(OSError):  # then the next copy, or the next start, does it
                remove(self._runtime.fs, self._runtime.path, id)

    def _append(self, log: Log, job: Copy) -> Copied:
        """Runs on the I/O pool, with files that stay open."""
        parts = read(self._logs.wal_files, log.shard, job)
        writer = self._writers.get(log.topic_id)
        if writer is not None and (writer.id != job.id or writer.end_seq != job.end_seq):
            # It is another segment's; or a copy was written and its mark failed: write the same again.
            self._drop_writer(log.topic_id)
            writer = None
        if writer is None:
            writer = self._writers[log.topic_id] = open_writer(self._runtime.fs, job)
        return append(writer, parts, self._copy_lock)

    async def renew(self, log: Log, segment: Segment) -> None:
        """Continue in new files, made from what was marked: a failed sync leaves the old ones in an unknown state."""
        logs, runtime = self._logs, self._runtime
        self._drop_writer(log.topic_id)
        id = id_of(log.topic_id, segment)
        made = await runtime.run_io(rewrite_anew, runtime.fs, runtime.path, id, segment.end_seq, segment.dead)
        value = segment.frame("rewritten", gen=made.id.gen, data_bytes=made.data_bytes)
        await logs.submit_controls(log, encode_controls([value], log.topic_id, logs.now_ms()), frees=True)
        self._segments.store.reader.forget(id)
        self._segments.retired.append(id)

    def _drop_writer(self, topic_id: int) -> None:
        writer = self._writers.pop(topic_id, None)
        if writer is not None:
            writer.close()

    # -- sealing -----------------------------------------------------------------------------------------------------

    async def _seal_old(self) -> None:
        max_age_ms = self._logs.options.segment_max_age_ms
        if not max_age_ms:
            return
        oldest = self._logs.now_ms() - max_age_ms
        if self._logs.monotonic_ms() - self._sought_old_ms < max_age_ms // _SEEK_OLD:
            return  # going through all topics takes long
        self._sought_old_ms = self._logs.monotonic_ms()
        logs = await self._found(lambda log: _begun_before(log, oldest))
        for begin in range(0, len(logs), _SEALS_AT_ONCE):
            if self._segments.pausing:
                self._sought_old_ms = 0  # the next round continues
                return
            await _all(
                self._write_frames(log, [segment.frame("sealed")])
                for log in logs[begin : begin + _SEALS_AT_ONCE]
                if (segment := log.held.manifest.active) is not None and _begun_before(log, oldest)
            )

    async def close(self) -> None:
        """Close the files. Everything in them is synced."""
        for topic_id in list(self._writers):
            self._drop_writer(topic_id)

    def forget(self, topic_id: int) -> None:
        """The log is gone: close its files."""
        self._drop_writer(topic_id)


def _begun_before(log: Log, ts: int) -> bool:
    segment = log.held.manifest.active
    return segment is not None and segment.count > 0 and segment.first_ts < ts


def _in_order(lanes: Sequence[list[Copied] | BaseException], count: int) -> list[Copied]:
    """The copied segments in the order of the jobs, up to the first failed one. Raises unexpected exceptions."""
    copied: list[Copied] = []
    done: list[list[Copied]] = []
    for lane in lanes:
        if isinstance(lane, BaseException):
            raise lane
        done.append(lane)
    for number in range(count):
        lane, at = done[number % len(done)], number // len(done)
        if at >= len(lane):
            break
        copied.append(lane[at])
    return copied


async def _all(works: Iterable[Awaitable[Any]]) -> None:
    """Run them at the same time, all to their ends; then raises the first error."""
    several = [*works]
    if len(several) == 1:
        # For one topic under full load, each iteration of the loop that is saved is some ms.
        await several[0]
        return
    for outcome in await asyncio.gather(*several, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
