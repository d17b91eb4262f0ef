"""Removes the old layout after a change of the shard count. Blocking.

That is everything that the two newest snapshots do not need: log files below the start of both replays, folders of
shards that no longer exist, and older snapshots, which refer to such files.

Source: docs/reference/format.md#directory, docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable

from storage.platform import FileSystem, layout


def stray_folders(fs: FileSystem, root: str, shards: int) -> list[str]:
    """Folders that may hold the log of another shard count: folders with log files, or that nothing else uses."""
    wal = layout.join(root, "wal")
    names = fs.listdir(wal) if fs.exists(wal) else []
    due = {layout.shard_dir(root, shard, shards) for shard in range(shards)}
    found = [layout.join(wal, name) for name in layout.shard_folders(names)]
    if _log_files(names):
        found.insert(0, wal)
    return [folder for folder in found if folder not in due]


def stray_logs(fs: FileSystem, root: str, shards: int) -> list[str]:
    """The stray folders that contain a log file."""
    return [folder for folder in stray_folders(fs, root, shards) if layout.wal_numbers(fs.listdir(folder))]


def highest_number(fs: FileSystem, root: str) -> int:
    """The highest number of a log file in any folder; 0 when there is none."""
    wal = layout.join(root, "wal")
    names = fs.listdir(wal) if fs.exists(wal) else []
    folders = [names, *(fs.listdir(layout.join(wal, name)) for name in layout.shard_folders(names))]
    return max((number for each in folders for number in layout.wal_numbers(each)), default=0)


def remove(fs: FileSystem, root: str, retained: Iterable[int], first_files: list[int]) -> None:
    """Remove all snapshots except `retained`, and each shard's log files below its number in `first_files`.

    Both snapshots must be durable. It can be repeated after a crash. Raises OSError.
    """
    _remove_snapshots(fs, layout.meta_dir(root), min(retained))
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
    """Remove log files below `first`, oldest first; None: all of them, and the other files of the log."""
    names = fs.listdir(folder)
    for number in layout.wal_numbers(names):
        if first is None or number < first:
            fs.unlink(layout.join(folder, layout.wal_name(number)))
            # Sync after each file: after a power loss, an earlier name must not come back without the later ones.
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
        return  # the folder has files of somebody else
    fs.sync_dir(folder.rpartition("/")[0])


def _log_files(names: list[str]) -> list[str]:
    """Names of the files of a shard's log in its folder."""
    own = {layout.CURRENT, layout.CURRENT + layout.TMP_SUFFIX, layout.RESERVE}
    return [name for name in names if name in own or layout.wal_numbers([name])]
