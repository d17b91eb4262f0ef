"""Bulk reads of stopped directories, backups and clusters, and the commands that need an engine."""

from storage.offline.copies import BackupCopies, ClusterCopies, find_cluster, is_backup
from storage.offline.stopped import Stopped, StoppedLog, open_records, open_stopped

__all__ = [
    "BackupCopies",
    "ClusterCopies",
    "Stopped",
    "StoppedLog",
    "find_cluster",
    "is_backup",
    "open_records",
    "open_stopped",
]
