"""Changes the number of log shards: at a start, after the replay, before a writer is open.

1. The old layout is replayed, cut and synced as at any start.
2. Every log's records go from the log into segments, its deletions are flagged (`draining`).
3. Two snapshots are taken, one after the other, with the whole state and the new count. In both, each shard's replay
   begins at byte 0 of a file that does not exist yet, numbered above every existing log file.
4. The rest of the old layout is removed: older snapshots, log files, folders (`leftovers`).

The newest valid snapshot says which layout counts. A crash (c) or an error leaves:

    c in 1, 2     a directory of the old count. The next start truncates or sweeps the bytes written into segments
    c in 3        if the newest snapshot has the old count: as above. If it has the new count, it needs nothing of the
                  old log. But the log files and the snapshot before it belong to the old layout, and if the new
                  snapshot gets damaged, they are all there is. So nobody may write before there is a second one: the
                  next start does all this again, to the same or another count, although the log of its layout is
                  empty
    c in 4        two snapshots of the new count; the next start removes the rest

In folders that both layouts use, no old log file is ever taken for a new one: numbers never restart.

Source: docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import structlog

from storage.errors import MetadataLost
from storage.log import WalReader, position, split
from storage.options import Options
from storage.platform import FileSystem, layout
from storage.recovery import leftovers
from storage.recovery.draining import drain
from storage.recovery.recovery import Loaded, Recovered
from storage.recovery.repair import heal
from storage.recovery.segments import refusing_damage
from storage.snapshot import contents as snapshot
from storage.snapshot import file as snapshot_file
from storage.state import Catalog, shard_of

_log = structlog.get_logger("storage")


def recorded_shards(fs: FileSystem, root: str, made_with: int, loaded: Loaded) -> int:
    """The shard count of the directory's log: the newest snapshot's, else the one it was created with.

    Raises MetadataLost when no snapshot explains the log files in other folders.
    """
    if loaded.body is not None:
        return loaded.body.shards
    strays = leftovers.stray_logs(fs, root, made_with)
    if strays:
        raise MetadataLost(
            f"{strays[0]} holds log files, and no snapshot in meta/ can be read that says so: the directory was made "
            f"with {made_with} shards. Nothing was changed; restore meta/ or the whole directory from a backup."
        )
    return made_with


def is_due(fs: FileSystem, root: str, made_with: int, loaded: Loaded, wanted: int) -> bool:
    """Whether a new layout is needed: the count differs, or an earlier change was interrupted."""
    recorded = loaded.body.shards if loaded.body else made_with
    if wanted != recorded or any(len(redo) != recorded for _, redo in loaded.snapshots):
        return True
    alone = len(loaded.snapshots) == 1
    return alone and (recorded != made_with or bool(leftovers.stray_logs(fs, root, recorded)))


def clean_up(fs: FileSystem, root: str, loaded: Loaded) -> None:
    """Remove the leftovers of an interrupted change or trim, if any. Raises OSError."""
    if len(loaded.snapshots) == 2:
        _remove_all_but(fs, root, loaded.snapshots)


def reshard(
    fs: FileSystem,
    root: str,
    options: Options,
    recovered: Recovered,
    shards: int,
    *,
    now_ms: int,
    progress: Callable[[float], None],
) -> Recovered:
    """The state of `recovered` in a directory laid out for `shards`, and in two snapshots; the log is empty.

    Raises WalCorrupt, OSError; then a start finds the old layout or the new one, with all of the state.
    """
    before = recovered.catalog.shards
    moved, recovered = lay_out_anew(fs, root, options, recovered, shards, now_ms=now_ms, progress=progress)
    _log.info("shards_changed", before=before, after=shards, records_moved=moved)
    return recovered


def lay_out_anew(
    fs: FileSystem,
    root: str,
    options: Options,
    recovered: Recovered,
    shards: int,
    *,
    now_ms: int,
    progress: Callable[[float], None],
) -> tuple[int, Recovered]:
    """Lay the log out again; the count may be the same as before. Returns the number of records moved, and the result
    of `reshard`."""
    catalog = recovered.catalog
    moved = _drain(fs, root, options, recovered, progress)
    first = max(2, *recovered.next_files, leftovers.highest_number(fs, root) + 1)
    _lay_out(catalog, shards, position(first, 0))
    redo = [position(first, 0)] * shards
    into = catalog.routes.into
    sections = {
        topic.topic_id: snapshot.capture(topic, now_ms, into.get(topic.topic_id, ()))
        for topic in catalog.topics.values()
    }
    states = snapshot.capture_states(catalog.states)
    body = snapshot.encode(
        snapshot.Body(
            created_ms=now_ms,
            shards=shards,
            next_topic_id=catalog.next_topic_id,
            pending_deletes=sorted(catalog.pending_deletes | catalog.superseded.keys()),
            clean=False,
            redo_from=[split(lsn) for lsn in redo],
            sections=list(sections.values()),
            states=states,
        )
    )
    number = recovered.next_snapshot
    snapshots = [(number, redo), (number + 1, redo)]
    for each, _ in snapshots:
        progress(1.0)
        snapshot_file.write(fs, root, each, body)
    for end in recovered.wounds:
        heal(fs, root, end, options)  # quarantines the damage; both snapshots announce its loss
    _remove_all_but(fs, root, snapshots)
    return moved, recovered._replace(
        next_files=[first] * shards,
        snapshots=snapshots,
        next_snapshot=number + 2,
        sections={**sections, 0: states},
        wounds=[],
    )


def _drain(fs: FileSystem, root: str, options: Options, recovered: Recovered, progress: Callable[[float], None]) -> int:
    shards = recovered.catalog.shards
    wal = WalReader(fs, [layout.shard_dir(root, shard, shards) for shard in range(shards)])
    moved = 0
    with contextlib.closing(wal), refusing_damage():
        for topic in recovered.catalog.topics.values():
            for log in topic.logs:
                progress(1.0)
                moved += drain(recovered.store, wal, log, options)
    return moved


def _lay_out(catalog: Catalog, shards: int, begin: int) -> None:
    """Assign each log to its new shard, which has no frame of the log yet."""
    catalog.shards = shards
    for topic in catalog.topics.values():
        for log in topic.logs:
            assert log.wal_needed_from() is None, f"log {log.topic_id} still needs the log of the old layout"
            log.shard = shard_of(log.topic_id, shards)
            log.applied_lsn = begin
            log.section = None
    if catalog.states.applied_lsn:
        catalog.states.applied_lsn = begin
        catalog.states.section = None


def _remove_all_but(fs: FileSystem, root: str, snapshots: list[tuple[int, list[int]]]) -> None:
    first_files = [min(split(lsn)[0] for lsn in lsns) for lsns in zip(*(redo for _, redo in snapshots), strict=True)]
    leftovers.remove(fs, root, [number for number, _ in snapshots], first_files)
