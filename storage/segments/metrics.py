"""What the engine counts about segments. See `storage.metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.metric_table import METRICS, Family
from storage.state.manifest import COLD

if TYPE_CHECKING:
    from storage.engine import Engine


def collect_segments(engine: Engine) -> list[Family]:
    """Families about segments and the workers that look after them; none before the engine is ready."""
    if not engine.ready:
        return []
    values = [*_flushing(engine), *_keeping(engine), *_states(engine)]
    return [METRICS.whole(name, value) for name, value in values]


def _flushing(engine: Engine) -> list[tuple[str, float]]:
    flusher = engine.flusher
    return [
        ("topics_segments_opened", flusher.opened),
        ("topics_segments_sealed", flusher.sealed),
        ("topics_segments_broken", flusher.broken),
        ("topics_flushed_records", flusher.records),
        ("topics_flushed_bytes", flusher.bytes),
        ("topics_checkpoints", engine.segment_worker.rounds),
        ("topics_checkpoint_seconds", engine.segment_worker.last_seconds),
        ("topics_flush_failures", flusher.failures),
    ]


def _keeping(engine: Engine) -> list[tuple[str, float]]:
    housekeeping, relocator, reclaim = engine.housekeeping, engine.relocator, engine.reclaim
    cold, backups = engine.store.cold, engine.backups
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
        ("topics_consumed_records", reclaim.records),
        ("topics_consumed_failures", reclaim.failures),
        ("topics_cold_segments_removed", relocator.removed),
        ("topics_cold_reads", cold.reads if cold else 0),
        ("topics_cold_errors", cold.errors if cold else 0),
        ("topics_backups", backups.taken),
        ("topics_backups_failed", backups.failed),
        ("topics_backup_newest_ms", backups.newest_ms),
    ]


def _states(engine: Engine) -> list[tuple[str, float]]:
    logs = [topic.log for topic in engine.catalog.topics.values()]
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
        ("topics_segments_open", engine.store.reader.open_segments),
        ("topics_unflushed_records", unflushed),
        ("topics_pending_deletes", len(engine.catalog.pending_deletes)),
    ]
