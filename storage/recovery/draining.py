"""Moves all records of the log into segments, before any writer is open. Blocking; only at a start.

No log exists yet that could take Segment and CheckpointMark frames. The code that replays such frames changes the
manifests in memory, and the caller makes them durable in snapshots. A crash before that leaves files that hold more
than any manifest says: the next start truncates or sweeps them. They also hold flags of deletions, whose frames are
durable.
Source: docs/reference/guarantees.md#recovery, docs/reference/format.md#segments.
"""

from __future__ import annotations

from storage.errors import WalCorrupt
from storage.format import set_bits
from storage.log import WalFileGone, WalReader
from storage.options import Options
from storage.platform import layout
from storage.segments import MAX_JUMP, ActiveSegment, Copy, Plan, SegmentStore, append, open_writer, plan_flush, read
from storage.state import Log, Segment, Written, opened


def drain(store: SegmentStore, wal: WalReader, log: Log, options: Options) -> int:
    """Move a log's records into segments and flag its deletions, all synced: then it needs nothing from the WAL.

    Returns the number of seqs moved. Raises SegmentError, WalCorrupt, OSError; after an error the files written do not
    count.
    """
    for segment in log.held.manifest.segments:
        _flag(store, log, segment)
    writer: ActiveSegment | None = None
    moved = 0
    try:
        while log.oldest_unflushed() is not None:
            plan = _next(log, options)
            job = plan.copy(log, store.root, log.tail.dead_bits(plan.first_seq, plan.last_seq + 1))
            writer = _writer(store, job, writer)
            moved += _move(wal, log, plan, job, writer)
    finally:
        if writer is not None:
            writer.close()
    log.tail.drop_below(log.head + 1)  # entries of dead records, which no segment needs
    return moved


def _flag(store: SegmentStore, log: Log, segment: Segment) -> None:
    bits = segment.begin_flips()
    done = False
    try:
        store.flag(log.topic_id, segment, list(set_bits(bits)))
        done = True
    finally:
        segment.end_flips(done=done)


def _next(log: Log, options: Options) -> Plan:
    """The next records to move, into an active segment with room for them."""
    active, first_seq = log.held.manifest.active, log.oldest_unflushed()
    assert first_seq is not None
    full = active is not None and (
        active.count >= options.segment_max_events
        or active.data_bytes >= options.segment_max_bytes
        or first_seq - active.end_seq > MAX_JUMP
    )
    plan = None if full else plan_flush(log, options)
    if plan is None:
        if active is not None:
            log.take_segment(active.ended())
        log.take_segment(opened(first_seq))
        plan = plan_flush(log, options)
    assert plan is not None, "an empty segment has room for any batch"
    return plan


def _writer(store: SegmentStore, job: Copy, writer: ActiveSegment | None) -> ActiveSegment:
    if writer is not None:
        if writer.id == job.id:
            return writer
        writer.close()
    return open_writer(store.fs, job)


def _move(wal: WalReader, log: Log, plan: Plan, job: Copy, writer: ActiveSegment) -> int:
    try:
        copied = append(writer, read(wal, log.shard, job))
    except WalFileGone as error:
        raise WalCorrupt(
            f"{error}, from which records were replayed.", file=layout.wal_name(error.file), offset=error.offset
        ) from error
    log.held.written = [Written(plan.first_seq, job.dead, log.applied_lsn, copied.data_bytes)]
    log.mark_flushed(plan.last_seq)
    return plan.last_seq + 1 - plan.first_seq
