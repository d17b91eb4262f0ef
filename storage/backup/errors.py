"""What goes wrong with backups.

StorageError
  BackupRefused      the directory is none to write a backup to, or none to restore; nothing in it was changed
  BackupDamaged      bytes of the backup are not what was written: `file` names it
  BackupFailed       it could not be finished; what was there before is as good as it was
"""

from __future__ import annotations

from storage.errors import DataError, InvalidRequest, Unavailable


class BackupRefused(InvalidRequest):
    """This directory cannot be used for that."""


class BackupDamaged(DataError):
    """A file of the backup is not what was written."""

    def __init__(self, file: str, what: str) -> None:
        super().__init__(f"{file}: {what}. Nothing was restored.", file=file)
        self.file = file


class BackupFailed(Unavailable):
    """The backup could not be finished; earlier ones are as they were."""

    code = "storage_failed"
