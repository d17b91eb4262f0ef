"""Detects an interrupted change of the shard count from the files.

    the two newest snapshots        the next start                        result here
    both have the old count         starts as if there was no change      None
    old and new, or only new        repeats the whole change              `Change` with `again`
    both have the new count         removes the old files, opens the log  `Change` without `again`

The snapshots of a change differ from all others: the replay of every shard, and the section of every log, begins at
byte 0 of the same file number. Only log files from that number on count, and they have no frame yet: a change writes
the first frame after all files of the old layout are gone. (See `storage/recovery/resharding.py`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from storage.inspect.directory import DataDirectory, SnapshotView, WalPath
from storage.log import FrameStream
from storage.platform import layout

_PEEK_BYTES = 1 << 16


class Change(NamedTuple):
    """A change to `shards` shards. `before`: log files of the old layout. Files of the new layout begin at `first`."""

    shards: int
    first: int
    again: bool
    before: list[WalPath]

    @property
    def folders(self) -> list[str]:
        """The folders of the new layout."""
        return [layout.shard_dir("", shard, self.shards).lstrip("/") for shard in range(self.shards)]

    def describe(self) -> str:
        """The change in a sentence, for the report."""
        does = "repeats it" if self.again else "finishes it"
        left = f" {len(self.before)} log files of the old layout exist; they were not checked."
        return (
            f"A change of the shard count to {self.shards} was interrupted or is in progress. The next start {does}."
            f"{left if self.before else ''}"
        )


def change_under_way(directory: DataDirectory, valid: Sequence[SnapshotView]) -> Change | None:
    """The interrupted change, from the valid snapshots (oldest first) and the log files. None: there is none."""
    if not valid or (first := _begin_of_all(valid[-1])) is None:
        return None
    newest, shards = valid[-1].body, valid[-1].body.shards
    again = len(valid) == 1 or valid[-2].body.shards != shards
    if not again and valid[-2].body != newest:
        return None  # the change was completed before the newest snapshot
    change = Change(shards, first, again, [])
    folders = change.folders
    begun: set[str] = set()
    for file in directory.all_wal_files():
        folder = file.path.rpartition("/")[0]
        if folder not in folders or file.number < first:
            change.before.append(file)
        elif _holds_frames(directory, file):
            return None
        else:
            begun.add(folder)
    return change if change.before or len(begun) < shards or (again and len(valid) > 1) else None


def _begin_of_all(view: SnapshotView) -> int | None:
    """The number of the file at whose byte 0 all replays and sections begin. None: they differ."""
    first = max((number for number, _ in view.body.redo_from), default=0)
    lsns = {*view.body.redo_from, *(lsn for _, lsn in view.lsns)}
    return first if first > 1 and not view.body.clean and lsns == {(first, 0)} else None


def _holds_frames(directory: DataDirectory, file: WalPath) -> bool:
    try:
        with directory.open(file.path) as content:
            return any(True for _ in FrameStream(content, 0, _PEEK_BYTES).chunks())
    except FileNotFoundError:
        return False
