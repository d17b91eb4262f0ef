"""Compares the folders below topics/ with the log: which segments exist, and which files belong to no segment.

Files outside of all manifests are never read. The next start removes such files or moves them to quarantine/.

Source: docs/reference/format.md#segments, docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from storage.format import SnapshotDamaged, SnapshotUnsupported
from storage.inspect.directory import DataDirectory, SnapshotView
from storage.inspect.frames import Counts
from storage.inspect.manifest import LogSegments, NamedSegments
from storage.inspect.wal import ShardWalk
from storage.platform import layout
from storage.segments import names


def named_segments(directory: DataDirectory) -> NamedSegments:
    """The segments that exist now, from the newest valid snapshot and the log after it. Raises OSError."""
    newest: SnapshotView | None = None
    for path in directory.snapshots().values():
        with contextlib.suppress(FileNotFoundError, SnapshotDamaged, SnapshotUnsupported):
            newest = directory.snapshot(path)
    named = NamedSegments(newest)
    for shard, folder in directory.shard_folders():
        ShardWalk(directory, Counts(), {}, lambda _: None, lambda _: None, named).run(
            directory.wal_files(folder, shard)
        )
    return named


def unnamed(
    directory: DataDirectory, logs: dict[int, LogSegments], deleted: set[int], say: Callable[[str, str], None]
) -> None:
    """Report every file below topics/ that belongs to no log."""
    folders = {folder: topic_id for topic_id, folder in directory.segment_folders()}
    for name in directory.names(names.TOPICS):
        folder = layout.join(names.TOPICS, name)
        topic_id = folders.get(folder)
        log = logs.get(topic_id) if topic_id is not None else None
        if topic_id is None:
            say(folder, "This does not belong to a data directory. It is not used.")
        elif log is not None:
            _unnamed_files(directory, topic_id, folder, log, say)
        elif topic_id in deleted:
            say(folder, "The topic is deleted. The broker or the next start removes its folder.")
        else:
            say(folder, "No topic has this id. The next start moves the folder to quarantine/.")


def _unnamed_files(
    directory: DataDirectory, topic_id: int, folder: str, log: LogSegments, say: Callable[[str, str], None]
) -> None:
    named = {(each.first_seq, each.gen) for each in log.segments.values()}
    # A segment has either .data or .packed; the other file belongs to no segment.
    others = {
        names.file_name(each.first_seq, each.gen, names.DATA if each.packed_bytes else names.PACKED)
        for each in log.segments.values()
    }
    for name in directory.names(folder):
        parsed = names.parse_name(name)
        path = layout.join(folder, name)
        if name.endswith(layout.TMP_SUFFIX):
            say(path, "The writing of this file was interrupted or is in progress. The file is not used.")
        elif parsed is None:
            say(path, "This file does not belong to a data directory. It is not used.")
        elif parsed[:2] not in named or name in others:
            say(
                path,
                f"The log of topic {topic_id} has no such segment. The file is not read; the next start removes it.",
            )
