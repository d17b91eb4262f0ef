"""What the engine counts about segments. See `storage.metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.manifest import COLD
from storage.metrics import Family, Sample

if TYPE_CHECKING:
    from storage.engine import Engine


def collect_segments(engine: Engine) -> list[Family]:
    """Families about segments and the workers that look after them; none before the engine is ready."""
    if not engine.ready:
        return []
    counters = [*_absorbing(engine), *_keeping(engine)]
    return [
        *(Family(name, "counter", help, [Sample((), value)]) for name, help, value in counters),
        *(Family(name, "gauge", help, [Sample((), value)]) for name, help, value in _gauges(engine)),
    ]


def _absorbing(engine: Engine) -> list[tuple[str, str, float]]:
    absorber, copying = engine.absorber, engine.absorber.copying
    return [
        ("topics_segments_opened", "Segments begun.", absorber.opened),
        ("topics_segments_sealed", "Segments finished.", absorber.sealed),
        ("topics_segments_broken", "Segments whose files a failed write or sync made unusable.", absorber.broken),
        ("topics_absorbed_records", "Records moved from the log to segments.", absorber.records),
        ("topics_absorbed_bytes", "Bytes moved from the log to segments.", absorber.bytes),
        ("topics_checkpoints", "Rounds in which records were moved as far as was due.", engine.upkeep.rounds),
        ("topics_absorb_failures", "Turns in which the records of a topic could not be moved.", absorber.failures),
        ("topics_absorb_process_turns", "Turns that a process of its own made the copies of.", copying.copies),
        ("topics_absorb_process_starts", "Starts of that process.", copying.started),
        ("topics_absorb_process_deaths", "How often it died, or could not be started.", copying.died),
    ]


def _keeping(engine: Engine) -> list[tuple[str, str, float]]:
    housekeeping, relocator, reclaim = engine.housekeeping, engine.relocator, engine.reclaim
    cold, backups = engine.store.cold, engine.backups
    return [
        ("topics_segments_dropped", "Segments dropped because nothing in them was alive.", housekeeping.dropped),
        ("topics_segments_rewritten", "Segments written anew because half of them was dead.", housekeeping.rewritten),
        ("topics_flagged_records", "Deleted records flagged in segments.", housekeeping.flagged),
        ("topics_segments_relocated", "Segments moved to the cold tier.", relocator.relocated),
        ("topics_segments_relocated_bytes", "Bytes of these.", relocator.relocated_bytes),
        ("topics_consumed_records", "Records that went because all consumers had passed them.", reclaim.records),
        ("topics_consumed_failures", "Times that consumed records could not be given back yet.", reclaim.failures),
        ("topics_cold_segments_removed", "Segments removed from the cold store.", relocator.removed),
        ("topics_cold_reads", "Reads of records that the cold store was asked for.", cold.reads if cold else 0),
        ("topics_cold_errors", "Requests to the cold store that failed.", cold.errors if cold else 0),
        ("topics_backups", "Backups taken.", backups.taken),
        ("topics_backups_failed", "Backups that could not be finished.", backups.failed),
    ]


def _gauges(engine: Engine) -> list[tuple[str, str, float]]:
    logs = [topic.log for topic in engine.catalog.topics.values()]
    cold = sum(segment.tier == COLD for log in logs for segment in log.held.manifest.segments)
    unabsorbed = sum(log.head - max(log.held.absorbed, log.marks.live_floor - 1) for log in logs)
    copies = engine.absorber.copying.pid is not None
    return [
        ("topics_checkpoint_seconds", "Time the last round of moving records took.", engine.upkeep.last_seconds),
        ("topics_segments", "Segments there are.", sum(len(log.held.manifest) for log in logs)),
        ("topics_segments_cold", "Those in the cold tier.", cold),
        ("topics_segments_open", "Segments whose files are open for reading.", engine.store.reader.open_segments),
        ("topics_unabsorbed_records", "Seqs that are in the log and in no segment.", unabsorbed),
        ("topics_absorb_process_running", "1 while there is a process that copies.", int(copies)),
        ("topics_backup_newest_ms", "Instant of the newest backup since the start; 0: none.", engine.backups.newest_ms),
        ("topics_pending_deletes", "Deleted topics whose files are still there.", len(engine.catalog.pending_deletes)),
    ]
