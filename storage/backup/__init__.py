"""Takes backups of a running engine, and restores them into new data directories (docs/adr/0027)."""

from storage.backup.backups import Backups
from storage.backup.damage import Damage
from storage.backup.errors import BackupFailed, BackupRefused, DirectoryDamaged
from storage.backup.metrics import collect_backups
from storage.backup.taking import BackupSource, Summary, barrier

__all__ = [
    "BackupFailed",
    "BackupRefused",
    "BackupSource",
    "Backups",
    "Damage",
    "DirectoryDamaged",
    "Summary",
    "barrier",
    "collect_backups",
]
