"""Metrics of segments and of the workers that look after them."""

from __future__ import annotations

from storage.segments.flusher import Flusher
from storage.segments.housekeeping import Housekeeping
from storage.segments.segment_worker import SegmentWorker
from storage.segments.segments import Segments
from storage.segments.tiering.relocator import Relocator
from storage.state import COLD
from storage.telemetry import METRICS, Family


def collect_segments(
    segments: Segments, worker: SegmentWorker, flusher: Flusher, housekeeping: Housekeeping, relocator: Relocator
) -> list[Family]:
    """Metric families; none before the engine is ready."""
    if not segments.logs.ready:
        return []
    values = [*_flushing(flusher, worker), *_keeping(segments, housekeeping, relocator), *_states(segments)]
    return [METRICS.whole(name, value) for name, value in values]


def _flushing(flusher: Flusher, worker: SegmentWorker) -> list[tuple[str, float]]:
    return [
        ("topics_segments_opened", flusher.opened),
        ("topics_segments_sealed", flusher.sealed),
        ("topics_segments_broken", flusher.broken),
        ("topics_flushed_records", flusher.records),
        ("topics_flushed_bytes", flusher.bytes),
        ("topics_checkpoints", worker.rounds),
        ("topics_checkpoint_seconds", worker.last_seconds),
        ("topics_flush_failures", flusher.failures),
    ]


def _keeping(segments: Segments, housekeeping: Housekeeping, relocator: Relocator) -> list[tuple[str, float]]:
    cold = segments.store.cold
    return [
        ("topics_segments_dropped", housekeeping.dropped),
        ("topics_segments_rewritten", housekeeping.rewritten),
        ("topics_packed_segments", housekeeping.packed),
        ("topics_packed_source_bytes", housekeeping.packed_from_bytes),
        ("topics_packed_bytes", housekeeping.packed_to_bytes),
        ("topics_damaged_records_copied", housekeeping.damaged),
        ("topics_flagged_records", housekeeping.flagged),
        ("topics_segments_relocated", relocator.relocated),
        ("topics_segments_relocated_bytes", relocator.relocated_bytes),
        ("topics_cold_segments_removed", relocator.removed),
        ("topics_cold_reads", cold.reads if cold else 0),
        ("topics_cold_errors", cold.errors if cold else 0),
    ]


def _states(segments: Segments) -> list[tuple[str, float]]:
    catalog = segments.logs.catalog
    logs = [topic.log for topic in catalog.topics.values()]
    cold = packed = data_bytes = stored_bytes = 0
    for log in logs:
        for segment in log.held.manifest.segments:
            if segment.tier == COLD:
                cold += 1
                continue
            packed += segment.packed_bytes > 0
            data_bytes += segment.data_bytes
            stored_bytes += segment.stored_bytes
    unflushed = sum(log.head - max(log.held.flushed, log.marks.live_floor - 1) for log in logs)
    return [
        ("topics_segments", sum(len(log.held.manifest) for log in logs)),
        ("topics_segments_cold", cold),
        ("topics_segments_packed", packed),
        ("topics_segments_bytes", data_bytes),
        ("topics_segments_stored_bytes", stored_bytes),
        ("topics_segments_open", segments.store.reader.open_segments),
        ("topics_unflushed_records", unflushed),
        ("topics_pending_deletes", len(catalog.pending_deletes)),
    ]
