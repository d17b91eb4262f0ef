"""Works records off from the write-ahead log into segments, so that the log can be trimmed. Source: storage.md §4.

For each log that is due: frames are copied into the active segment and synced, .data before .idx; then one
CheckpointMark a shard says up to where. Nothing written here counts before that mark is synced; a crash before it
leaves bytes that the next start cuts off. A segment is named by a synced Segment{opened} before a mark covers it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from storage.encode import EncodedUnit, encode_controls
from storage.format import control, segment_frame
from storage.log import Log
from storage.manifest import HOT, Segment
from storage.retained import Written
from storage.segment.errors import SegmentBroken
from storage.segment.rewrite import rewrite
from storage.segment.writer import MAX_JUMP, ActiveSegment
from storage.segment_store import id_of
from storage.tail import Span
from storage.wal.fetch import WalFileGone
from storage.wal.position import split
from storage.wal.submission import Unit

if TYPE_CHECKING:
    from storage.core import EngineCore

_log = structlog.get_logger("storage")

#: Most bytes of one log moved in one go: what a turn holds in memory.
_TURN_BYTES = 8 << 20
#: Logs whose files are written side by side: under load a turn is mostly waiting for its turn on the loop.
_SIDE_BY_SIDE = 8
#: Most logs absorbed in one round, oldest records first: the rest comes with the next one.
_ROUND_LOGS = 512
#: Records that a log must have in the WAL alone to be absorbed at a clean stop.
_WORTH_FINISHING = 1000


class Plan(NamedTuple):
    """What goes into a log's active segment: seqs from `first_seq`, and the spans of those that live."""

    segment: Segment
    spans: list[Span]
    last_seq: int


class Absorber:
    """One round at a time; see `tick`."""

    def __init__(self, engine: EngineCore) -> None:
        self._engine = engine
        self._writers: dict[int, ActiveSegment] = {}
        #: Counters for the metrics: records and bytes absorbed, segments opened and sealed, files given up.
        self.records = 0
        self.bytes = 0
        self.opened = 0
        self.sealed = 0
        self.broken = 0
        self.failures = 0

    async def work(self) -> None:
        """Absorb what is due. Raises StorageError, OSError, SegmentError; all of it is tried again."""
        before = -1
        while before != self.records:  # a log takes several turns when much has come; nothing moved = nothing can be
            before = self.records
            due = [log for log in self._logs() if self._due(log)]
            due.sort(key=lambda log: log.tail.oldest_ts(log.held.absorbed + 1) or 0)
            await self._absorb(due[:_ROUND_LOGS])
        await self._seal_old()

    async def finish(self) -> None:
        """Before a clean stop: what is left to be replayed at the next start is little. Raises as `work`."""
        before = -1
        while before != self.records:
            before = self.records
            await self._absorb([log for log in self._logs() if log.head - log.held.absorbed >= _WORTH_FINISHING])

    async def absorb_all(self) -> None:
        """Everything published, of every log that can be, is in segments on return. Raises as `work`."""
        before = -1
        while before != self.records:  # else nothing comes of trying again now
            before = self.records
            await self._absorb([log for log in self._logs() if log.oldest_unabsorbed() is not None])

    def _logs(self) -> list[Log]:
        engine = self._engine
        usable = {shard.index for shard in engine.shards if shard.log.failed is None and not shard.log.full}
        return [
            topic.log
            for topic in engine.catalog.topics.values()
            if not topic.provisional and topic.log.shard in usable and topic.topic_id not in engine.changing
        ]

    def _due(self, log: Log) -> bool:
        if log.head <= log.held.absorbed or (first := log.oldest_unabsorbed()) is None:
            return False
        engine, options = self._engine, self._engine.options
        oldest, place = log.tail.oldest_ts(first), log.tail.oldest_place(first)
        if oldest is None or place is None:
            return False
        count = log.head + 1 - first
        active_file = split(engine.shards[log.shard].log.end_place)[0]
        return (
            count >= options.checkpoint_records
            or log.unabsorbed_bytes() >= options.checkpoint_bytes
            or engine.now_ms() - oldest >= options.checkpoint_age_ms
            or split(place)[0] < active_file - 1
        )

    async def _absorb(self, logs: Sequence[Log]) -> None:
        by_shard: defaultdict[int, list[Log]] = defaultdict(list)
        for log in logs:
            by_shard[log.shard].append(log)
        for index, of_shard in by_shard.items():
            await self._absorb_shard(index, of_shard)

    async def _absorb_shard(self, index: int, logs: list[Log]) -> None:
        engine = self._engine
        shard = engine.shards[index]
        # Whatever is applied by now becomes durable: what is left out below as deleted or evicted stays so.
        await engine.submit_unit(shard, 0, EncodedUnit(Unit(None, []), b"", 0), frees=True)
        await self._open_segments(logs)
        absorbed: dict[int, int] = {}
        for begin in range(0, len(logs), _SIDE_BY_SIDE):
            await asyncio.gather(*(self._turn(log, absorbed) for log in logs[begin : begin + _SIDE_BY_SIDE]))
        if not absorbed:
            return
        mark = encode_controls([control.CheckpointMark(absorbed=absorbed)], 0, engine.now_ms())
        await engine.submit_unit(shard, 0, mark, frees=True)
        for log in logs:
            if log.topic_id in absorbed:
                await self._seal_if_full(log)

    async def _turn(self, log: Log, absorbed: dict[int, int]) -> None:
        plan = self._plan(log)
        try:
            if plan is not None and await self._write(log, plan):
                absorbed[log.topic_id] = plan.last_seq
        except OSError as error:  # of this log alone; the others go on, and this one is tried again
            self.failures += 1
            _log.warning("not_absorbed", topic_id=log.topic_id, error=str(error))

    async def _open_segments(self, logs: list[Log]) -> None:
        """Every log gets an active segment that its next record fits behind, named and synced."""
        engine = self._engine
        opening: list[asyncio.Future[Any]] = []
        for log in logs:
            first_seq = log.oldest_unabsorbed()
            active = log.held.manifest.active
            if first_seq is None:
                continue
            if active is not None and first_seq - active.end_seq <= MAX_JUMP:
                continue
            if active is not None:
                await self._seal(log, active)
            self._drop_writer(log.topic_id)
            value = control.Segment(
                first_seq=first_seq, end_seq=first_seq, event="opened", gen=0, live=0, data_bytes=0, tier=HOT
            )
            opening.append(
                engine.submit_controls(log, encode_controls([value], log.topic_id, engine.now_ms()), frees=True)
            )
            self.opened += 1
        await asyncio.gather(*opening)

    def _plan(self, log: Log) -> Plan | None:
        segment = log.held.manifest.active
        begin = log.oldest_unabsorbed()
        if segment is None or begin is None:
            return None
        options = self._engine.options
        spans: list[Span] = []
        size, count, last_seq = 0, segment.count, 0
        for span in log.tail.spans(begin, log.head + 1):
            if not span.place or (spans and span.first_seq - last_seq > MAX_JUMP):
                break
            more = sum(span.sizes)
            full = count + len(span.sizes) > options.segment_max_events
            if (spans or segment.count) and (
                size + more > _TURN_BYTES or full or segment.data_bytes + size + more > options.segment_max_bytes
            ):
                break
            spans.append(span)
            size += more
            last_seq = span.first_seq + len(span.sizes) - 1
            count = last_seq + 1 - segment.first_seq
        if not spans or spans[0].first_seq - segment.end_seq > MAX_JUMP:
            return None
        return Plan(segment, spans, last_seq)

    async def _write(self, log: Log, plan: Plan) -> bool:
        """Copy the frames into the segment's files; False when that has to be tried again."""
        engine = self._engine
        cached = {span.batch_seq: log.cached[span.batch_seq] for span in plan.spans if span.batch_seq in log.cached}
        place = engine.shards[log.shard].applied_place
        dead = log.tail.dead_bits(plan.spans[0].first_seq, plan.last_seq + 1)
        missing = [span for span in plan.spans if span.batch_seq not in cached]
        try:
            read = await engine.wal_files.fetch(log.shard, missing) if missing else {}
            sources = [_Source(*_place(span, cached, read), span) for span in plan.spans]
            written = await engine.run_io(self._append, log, plan, sources, dead)
        except SegmentBroken as error:
            self.broken += 1
            _log.error("segment_broken", topic_id=log.topic_id, error=str(error))
            await self.renew(log, plan.segment)
            return False
        except WalFileGone:
            return False  # trimmed: what lay in it is dead by now
        plan.segment.data_bytes += written
        log.held.written = Written(plan.spans[0].first_seq, dead, place)
        self.records += plan.last_seq + 1 - plan.spans[0].first_seq
        self.bytes += written
        return True

    def _append(self, log: Log, plan: Plan, sources: list[_Source], dead: int) -> int:
        """On the I/O pool. Bytes of frames written."""
        engine = self._engine
        writer = self._writers.get(log.topic_id)
        id = id_of(log.topic_id, plan.segment)
        if writer is None or writer.id != id:
            if writer is not None:
                writer.close()
            if plan.segment.count or plan.segment.gen:
                writer = ActiveSegment.open(engine.fs, engine.path, id, plan.segment.end_seq)
            else:
                writer = _create(engine, id)
            self._writers[log.topic_id] = writer
        if writer.end_seq != plan.segment.end_seq:
            # An earlier turn was written and its mark failed: the same again, from the marked end.
            writer.close()
            del self._writers[log.topic_id]
            writer = self._writers[log.topic_id] = ActiveSegment.open(engine.fs, engine.path, id, plan.segment.end_seq)
        before = writer.data_bytes
        frames, lens, stamps, flags = _columns(sources, plan.spans[0].first_seq, dead)
        writer.append(plan.spans[0].first_seq, frames, lens, stamps, flags)
        return writer.data_bytes - before

    async def renew(self, log: Log, segment: Segment) -> None:
        """The files' state on disk is unknown after a failed sync: go on in new ones, made of what was marked."""
        engine = self._engine
        self._drop_writer(log.topic_id)
        id = id_of(log.topic_id, segment)
        made = await engine.run_io(rewrite, engine.fs, engine.path, id, segment.end_seq, segment.dead)
        value = _event(segment, "rewritten", gen=made.id.gen, data_bytes=made.data_bytes)
        await engine.submit_controls(log, encode_controls([value], log.topic_id, engine.now_ms()), frees=True)
        engine.store.reader.forget(id)
        engine.housekeeping.retire(id)

    def _drop_writer(self, topic_id: int) -> None:
        writer = self._writers.pop(topic_id, None)
        if writer is not None:
            writer.close()

    # -- sealing -----------------------------------------------------------------------------------------------------

    async def _seal_if_full(self, log: Log) -> None:
        segment, options = log.held.manifest.active, self._engine.options
        if segment is not None and (
            segment.count >= options.segment_max_events or segment.data_bytes >= options.segment_max_bytes
        ):
            await self._seal(log, segment)

    async def _seal_old(self) -> None:
        engine = self._engine
        max_age_ms = engine.options.segment_max_age_ms
        if not max_age_ms:
            return
        oldest = engine.now_ms() - max_age_ms
        for log in self._logs():
            segment = log.held.manifest.active
            if segment is not None and segment.count and segment.first_ts < oldest:
                await self._seal(log, segment)

    async def _seal(self, log: Log, segment: Segment) -> None:
        engine = self._engine
        self._drop_writer(log.topic_id)
        value = _event(segment, "sealed", gen=segment.gen, data_bytes=segment.data_bytes)
        await engine.submit_controls(log, encode_controls([value], log.topic_id, engine.now_ms()), frees=True)
        self.sealed += 1

    async def close(self) -> None:
        """Close the files; nothing is left to be synced."""
        for topic_id in list(self._writers):
            self._drop_writer(topic_id)

    def forget(self, topic_id: int) -> None:
        """The log is gone."""
        self._drop_writer(topic_id)


_IDX_FLAGS = bytes(segment_frame.idx_flags(flags) for flags in range(256))


class _Source(NamedTuple):
    data: bytes
    start: int
    span: Span


def _place(span: Span, cached: dict[int, tuple[bytes, int]], read: dict[int, tuple[bytes, int]]) -> tuple[bytes, int]:
    if span.batch_seq in cached:
        payload, offset = cached[span.batch_seq]
        return payload, offset + span.offset
    return read[span.first_seq]


def _event(segment: Segment, event: str, *, gen: int, data_bytes: int) -> control.Segment:
    return control.Segment(
        first_seq=segment.first_seq,
        end_seq=segment.end_seq,
        event=event,
        gen=gen,
        live=segment.live,
        live_bytes=segment.live_bytes,
        data_bytes=data_bytes,
        tier=segment.tier,
    )


def _create(engine: EngineCore, id: Any) -> ActiveSegment:
    try:
        return ActiveSegment.create(engine.fs, engine.path, id)
    except FileExistsError:
        # Left by a turn that failed: nothing of it is marked, so opening it at its beginning cuts it.
        return ActiveSegment.open(engine.fs, engine.path, id, id.first_seq)


def _columns(sources: list[_Source], first_seq: int, dead: int) -> tuple[memoryview, list[int], list[int], list[int]]:
    """Frames of the records that live, and length, time and flags of every seq from `first_seq` on."""
    pieces: list[tuple[bytes, int, Sequence[int]]] = []
    lens: list[int] = []
    stamps: list[int] = []
    flags: list[int] = []
    for data, start, span in sources:
        gap = span.first_seq - first_seq - len(lens)
        if gap:
            for column in (lens, stamps, flags):
                column.extend([0] * gap)
        sizes = list(span.sizes)
        offsets = list(accumulate(sizes, initial=start))
        gone = dead >> (span.first_seq - first_seq) & ((1 << len(sizes)) - 1)
        if len(sizes) > 1 and len({*sizes}) == 1:
            flags.extend(data[start + 5 : offsets[-1] : sizes[0]].translate(_IDX_FLAGS))
        else:
            flags.extend([segment_frame.idx_flags(data[offset + 5]) for offset in offsets[:-1]])
        stamps.extend([span.ts] * len(sizes))
        if not gone:
            pieces.append((data, start, sizes))
            lens.extend(sizes)
            continue
        for number, size in enumerate(sizes):
            alive = not gone >> number & 1
            lens.append(size if alive else 0)
            if alive:
                pieces.append((data, offsets[number], [size]))
    return segment_frame.convert(pieces), lens, stamps, flags
