"""Takes backups of a running engine, and restores them into new data directories (docs/adr/0027)."""

from storage.backup.backups import Backups
from storage.backup.errors import BackupRefused
from storage.backup.metrics import collect_backups
from storage.backup.taking import BackupSource, Summary

__all__ = [
    "BackupRefused",
    "BackupSource",
    "Backups",
    "Summary",
    "collect_backups",
]
