"""Errors of backups.

StorageError
  BackupRefused      a backup cannot be written to, or restored from, this directory; nothing in it was changed
  BackupDamaged      a file of the backup is damaged: `file` names it
  BackupFailed       the backup could not be finished; earlier ones are unchanged
    DirectoryDamaged   the disk gives back other bytes than the owner of a cell has written: none of them are stored
"""

from __future__ import annotations

from storage.errors import DataError, InvalidRequest, Unavailable


class BackupRefused(InvalidRequest):
    """The directory cannot be used for a backup or a restore."""


class BackupDamaged(DataError):
    """A file of the backup is damaged."""

    def __init__(self, file: str, what: str) -> None:
        super().__init__(f"{file}: {what}. Nothing was restored.", file=file)
        self.file = file


class BackupFailed(Unavailable):
    """The backup could not be finished; earlier ones are unchanged."""

    code = "storage_failed"


class IndexDamaged(BackupFailed):
    """The .idx of a segment is not as it was written."""


class DirectoryDamaged(BackupFailed):
    """The directory of a cell is damaged, and the bucket is not."""
