"""Detects an interrupted change of the shard count from the files.

    newest snapshots          what the next start does           told by
    both of the old count     it never was: as any start         segments that reach behind their marks, as ever
    old, new (or new alone)   all of it again                    `Change`, again
    new, new                  removes the rest, opens the log    `Change`, not again

The snapshots of a change are like no other: each shard's replay begins at byte 0 of one file, everywhere the same, and
so does what is still to be said of each log. Only the log behind them counts, and it holds no frame yet: nobody writes
before everything of the layout before is gone. (`storage/recovery/resharding.py`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from storage.inspect.directory import DataDirectory, SnapshotView, WalPath
from storage.log import FrameStream
from storage.platform import layout

_PEEK_BYTES = 1 << 16


class Change(NamedTuple):
    """A change to `shards`. The files in `before` are of the layout before; those of this one begin with `first`."""

    shards: int
    first: int
    again: bool
    before: list[WalPath]

    @property
    def folders(self) -> list[str]:
        """The folders of the layout that counts."""
        return [layout.shard_dir("", shard, self.shards).lstrip("/") for shard in range(self.shards)]

    def describe(self) -> str:
        """One line."""
        does = "does all of it again" if self.again else "finishes it"
        left = f" Of the layout before {len(self.before)} log files are left; they were not checked."
        return (
            f"A change of the shard count to {self.shards} was under way, or is right now: the next start {does}."
            f"{left if self.before else ''}"
        )


def change_under_way(directory: DataDirectory, valid: Sequence[SnapshotView]) -> Change | None:
    """By the valid snapshots, oldest first, and the log files. None: no change was, or it is complete."""
    if not valid or (first := _begin_of_all(valid[-1])) is None:
        return None
    newest, shards = valid[-1].body, valid[-1].body.shards
    again = len(valid) == 1 or valid[-2].body.shards != shards
    if not again and valid[-2].body != newest:
        return None  # the layout is older than that
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
    """The number of the file with whose byte 0 every replay begins and every section ends; None when there is none."""
    first = max((number for number, _ in view.body.redo_from), default=0)
    lsns = {*view.body.redo_from, *(lsn for _, lsn in view.lsns)}
    return first if first > 1 and not view.body.clean and lsns == {(first, 0)} else None


def _holds_frames(directory: DataDirectory, file: WalPath) -> bool:
    try:
        with directory.open(file.path) as content:
            return any(True for _ in FrameStream(content, 0, _PEEK_BYTES).chunks())
    except FileNotFoundError:
        return False
