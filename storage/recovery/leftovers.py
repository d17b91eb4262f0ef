"""Removes what a change of the shard count leaves of the layout before. Blocking. Source: storage.md §1, §6.

Nothing here is needed by the two newest snapshots: log files below where both begin their replay, folders of shards
that there are no more, and snapshots older than those two, which say something of files that are going.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable

from storage.platform import layout
from storage.platform.filesystem import FileSystem


def stray_folders(fs: FileSystem, root: str, shards: int) -> list[str]:
    """Folders that could hold a log of another number of shards, and hold some of its files or are no others' use."""
    wal = layout.join(root, "wal")
    names = fs.listdir(wal) if fs.exists(wal) else []
    due = {layout.shard_dir(root, shard, shards) for shard in range(shards)}
    found = [layout.join(wal, name) for name in layout.shard_folders(names)]
    if _log_files(names):
        found.insert(0, wal)
    return [folder for folder in found if folder not in due]


def stray_logs(fs: FileSystem, root: str, shards: int) -> list[str]:
    """Those of them that hold a log file."""
    return [folder for folder in stray_folders(fs, root, shards) if layout.wal_numbers(fs.listdir(folder))]


def highest_number(fs: FileSystem, root: str) -> int:
    """The highest number of a log file in any folder, 0 when there is none."""
    wal = layout.join(root, "wal")
    names = fs.listdir(wal) if fs.exists(wal) else []
    folders = [names, *(fs.listdir(layout.join(wal, name)) for name in layout.shard_folders(names))]
    return max((number for each in folders for number in layout.wal_numbers(each)), default=0)


def remove(fs: FileSystem, root: str, kept: Iterable[int], first_files: list[int]) -> None:
    """Remove all but the snapshots `kept`, and the log files of each shard from its number in `first_files` on.

    Both snapshots must be durable. May be cut short by a crash and be done again. Raises OSError.
    """
    _remove_snapshots(fs, layout.meta_dir(root), min(kept))
    shards = len(first_files)
    for folder in stray_folders(fs, root, shards):
        _remove_logs(fs, folder, None)
        if folder != layout.join(root, "wal"):
            _remove_folder(fs, folder)
    for shard, first in enumerate(first_files):
        folder = layout.shard_dir(root, shard, shards)
        if fs.exists(folder):
            _remove_logs(fs, folder, first)


def _remove_snapshots(fs: FileSystem, folder: str, oldest: int) -> None:
    doomed = [number for number in layout.snapshot_numbers(fs.listdir(folder)) if number < oldest]
    for number in doomed:
        fs.unlink(layout.join(folder, layout.snapshot_name(number)))
    if doomed:
        fs.sync_dir(folder)


def _remove_logs(fs: FileSystem, folder: str, first: int | None) -> None:
    """Log files below `first` (None: and all else that a log keeps beside them), oldest first."""
    names = fs.listdir(folder)
    for number in layout.wal_numbers(names):
        if first is None or number < first:
            fs.unlink(layout.join(folder, layout.wal_name(number)))
            # One by one: a power loss must not bring an earlier name back without the ones behind it.
            fs.sync_dir(folder)
    others = [name for name in _log_files(names) if first is None and not layout.wal_numbers([name])]
    for name in others:
        fs.unlink(layout.join(folder, name))
    if others:
        fs.sync_dir(folder)


def _remove_folder(fs: FileSystem, folder: str) -> None:
    try:
        fs.rmdir(folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return  # somebody has put other things there
    fs.sync_dir(folder.rpartition("/")[0])


def _log_files(names: list[str]) -> list[str]:
    """Names of what a shard keeps in its folder."""
    own = {layout.CURRENT, layout.CURRENT + layout.TMP_SUFFIX, layout.RESERVE}
    return [name for name in names if name in own or layout.wal_numbers([name])]
