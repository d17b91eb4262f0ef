"""Backups of a whole set: one directory with a backup of each cell, each as of its own instant.

    BACKUP_DIR/
      cell-00/ cell-01/ ...   backup directories, as of one engine (`storage.backup.manifest`)

Source: docs/cells.md#backup-and-restore.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable

import msgspec

from storage.backup import BackupRefused, Summary
from storage.backup.restoring import Restored, cell_in, check_target, empty_directory, restore
from storage.cells.making import write_entries
from storage.engine import Engine
from storage.options import Options
from storage.platform import (
    CellSet,
    FileSystem,
    cell_folder,
    cell_folders,
    ensure_dir,
    layout,
    open_set,
    replace_file,
    take_lock,
    write_set,
)
from storage.records import MAX_CELLS
from storage.segments.tiering import ColdStore

Progress = Callable[[str, int, int], None]


async def back_up_set(
    fs: FileSystem, root: str, backup: str, found: CellSet, options: Options, *, include_cold: bool = False
) -> list[Summary]:
    """Back up a set while no broker runs on it. Raises the errors of `Engine.backup` and of a start."""
    lock = take_lock(fs, root)
    try:
        done: list[Summary] = []
        open_set(fs, root, found.cells)
        for cell in range(found.cells):
            its_options = msgspec.structs.replace(options, cell=cell, cells=found.cells)
            async with Engine.open(cell_folder(root, cell), its_options, fs=fs) as engine:
                done.append(await engine.backup(cell_folder(backup, cell), include_cold=include_cold))
        return done
    finally:
        lock.release()


def is_backup_of_set(fs: FileSystem, backup: str) -> bool:
    """Whether this directory has the backups of a set."""
    return fs.is_dir(cell_folder(backup, 0))


async def restore_set(
    fs: FileSystem,
    backup: str,
    root: str,
    *,
    cells: int = 0,
    number: int = 0,
    cold: ColdStore | None = None,
    options: Options | None = None,
    progress: Progress = lambda what, done, total: None,
) -> list[Restored]:
    """Restore the backups of a set into `root`. On return, `root` is a set of as many cells, or of more if `cells` says
    so.

    Each cell keeps its number and its topics. The home cells of names learn which cells have the topics, and the cells
    with topics learn their names' home cells.

    Raises the errors of `restore`; then the directory is empty again. After a crash, no broker starts in the directory.
    """
    count = _cells_of(fs, backup, number)
    cells = cells or count
    if not count <= cells <= MAX_CELLS:
        raise BackupRefused(f"{backup} is the backup of {count} cells: it can be restored to {count} cells or more.")
    check_target(fs, backup, root)
    ensure_dir(fs, root)
    lock = take_lock(fs, root)
    try:
        replace_file(fs, root, layout.RESTORING, f"{backup}\n{number}\n".encode())
        try:
            done = [
                restore(
                    fs,
                    cell_folder(backup, cell),
                    cell_folder(root, cell),
                    number=number,
                    cold=cold,
                    options=options,
                    progress=progress,
                )
                for cell in range(count)
            ]
            # There may be more cells; and an entry may be in the backup of one cell that the other got later.
            await write_entries(root, cells, options or Options(), {"fs": fs})
            write_set(fs, root, CellSet(set_id=uuid.uuid4().hex, cells=cells))
            fs.unlink(layout.join(root, layout.RESTORING))
            fs.sync_dir(root)
        except BaseException:
            with contextlib.suppress(OSError):
                empty_directory(fs, root)
            raise
    finally:
        lock.release()
    return done


def _cells_of(fs: FileSystem, backup: str, number: int) -> int:
    """How many cells the set had. Raises BackupRefused if the backup of one is missing."""
    found = cell_folders(fs.listdir(backup))
    for cell in found:
        its_cell, cells = cell_in(fs, cell_folder(backup, cell), number)
        if (its_cell, cells) != (cell, len(found)):
            raise BackupRefused(
                f"{cell_folder(backup, cell)} is the backup of cell {its_cell} of a set of {cells}, and {backup} has "
                f"the backups of {len(found)} cells: all of them must be there."
            )
    return len(found)
