"""Metrics of backups."""

from __future__ import annotations

from storage.backup.backups import Backups
from storage.telemetry import METRICS, Family


def collect_backups(backups: Backups) -> list[Family]:
    """Metric families; none before the engine is ready."""
    if not backups.ready:
        return []
    return [
        METRICS.whole("topics_backups", backups.taken),
        METRICS.whole("topics_backups_failed", backups.failed),
        METRICS.whole("topics_backup_newest_ms", backups.newest_ms),
    ]
