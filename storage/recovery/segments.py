"""Segments at a start: compares the manifests with the files.

After the replay, the manifest of every log is as its last frame left it. Then the log's files are made to match: bytes
after the last mark are truncated, missing indexes are rebuilt, unnamed files are removed. Then deletions are compared.

Source: docs/reference/format.md#segments, docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Generator

import structlog

from storage.errors import StorageError, WalCorrupt
from storage.platform import FileSystem, layout
from storage.recovery.cold import reconcile_cold, restore_idx
from storage.segments import SegmentCorrupt, SegmentError, SegmentStore, check, id_of, names
from storage.segments.tiering import ColdTier
from storage.state import COLD, UNKNOWN, Catalog, Log, Segment, plan

_log = structlog.get_logger("storage")


def reconcile_segments(store: SegmentStore, catalog: Catalog, redo: list[int], *, clean: bool) -> None:
    """Make the files of all live logs match their manifests, and count live records. Raises WalCorrupt, OSError.

    `clean`: the last stop was clean, so files and counts are known to be right.
    """
    folders = _folders(store.fs, store.root)
    for topic in catalog.topics.values():
        for log in topic.logs:
            log.held.replaying = False
            if log.topic_id in folders or len(log.held.manifest):
                with refusing_damage():
                    reconcile_log(store, log, redo[log.shard], clean=clean)
    # A log whose address a later log has, or that no topic counts, is deleted before the engine is ready; after that
    # its folder goes.
    known = catalog.by_id.keys() | catalog.superseded.keys() | catalog.pending_deletes
    for topic_id in folders:
        if topic_id not in known:
            _set_aside(store.fs, store.root, topic_id)
    if not isinstance(store.cold, ColdTier):  # otherwise the relocator looks for their objects too
        catalog.pending_deletes &= folders.keys()


@contextlib.contextmanager
def refusing_damage() -> Generator[None]:
    """Refuse the start: WalCorrupt for damaged segments, OSError for failed writes."""
    try:
        yield
    except SegmentCorrupt as error:
        raise WalCorrupt(
            f"{error.file}, offset {error.offset}: {error.what}. This had been synced, so it is damage.",
            file=error.file,
            offset=error.offset,
        ) from error
    except SegmentError as error:
        raise OSError(str(error)) from error


def reconcile_log(store: SegmentStore, log: Log, redo: int, *, clean: bool) -> None:
    """`reconcile_segments` for one log. Raises SegmentError, OSError."""
    fs, root, manifest = store.fs, store.root, log.held.manifest
    if not clean:
        check.sweep(fs, root, log.topic_id, {id_of(log.topic_id, each) for each in manifest.segments})
    for segment in manifest.segments:
        id = id_of(log.topic_id, segment)
        if segment.tier == COLD:
            reconcile_cold(store, log.topic_id, segment)
        elif not clean:
            if segment.sealed:
                check.reconcile_sealed(fs, root, id, segment.end_seq, segment.data_bytes, segment.packed_bytes)
            else:
                segment.data_bytes = check.reconcile_active(fs, root, id, segment.end_seq)
    floor = log.marks.live_floor
    doubtful = [
        (segment, _flagged(store, log, segment))
        for segment in manifest.segments
        if segment.count and not (clean and segment.live == segment.alive(floor, segment.end_seq))
    ]
    for segment, _ in doubtful:
        if not segment.live and segment.end_seq > floor:
            segment.live = UNKNOWN  # all its records were deleted; its files may not show that yet
    touched = _delete_deferred(store, log)
    unmeasured = {segment for segment in manifest.segments if segment.assumed}
    for segment, flagged in doubtful:
        if _compare(log, segment, flagged, redo, believed=clean or segment not in touched):
            unmeasured.add(segment)
    for segment in manifest.segments:
        if segment in unmeasured:
            _measure(log, segment)
    if len(manifest) or not clean:  # segments dropped during the replay still count in the log's totals
        log.recount()


def _delete_deferred(store: SegmentStore, log: Log) -> set[Segment]:
    """Apply replayed Deletes to the segments that exist; returns the segments in which a Delete was looked up."""
    floor = log.marks.live_floor
    touched: set[Segment] = set()
    for request, lsn in log.held.deferred:
        last = log.delete_end(request)
        for wanted in plan(log.held, request, floor, last):
            touched.add(wanted.segment)
            seqs = wanted.seqs if wanted.match is None else store.tagged(log.topic_id, wanted.segment, wanted.match)
            for seq in seqs:
                if floor <= seq <= last and wanted.segment.delete(seq, seq, lsn):
                    wanted.segment.live = UNKNOWN
    log.held.deferred.clear()
    return touched


def _flagged(store: SegmentStore, log: Log, segment: Segment) -> int:
    """Bits of the records that are deleted in the files, or missing."""
    id = id_of(log.topic_id, segment)
    try:
        return store.reader_of(segment).dead_bits(id, segment.end_seq)
    except SegmentCorrupt:
        # The process ended while it was setting a flag. If the damage is more than that, .data shows it.
        store.forget(id)
        if segment.tier == COLD:
            restore_idx(store, id, segment.count)
        else:
            check.rebuild_idx(store.fs, store.root, id, segment.end_seq, segment.data_bytes)
        return store.reader_of(segment).dead_bits(id, segment.end_seq)


def _compare(log: Log, segment: Segment, flagged: int, redo: int, *, believed: bool) -> bool:
    """Note deletions that are not durable in the files for flagging, and count live records. Returns whether the
    count has changed."""
    segment.flips, segment.pin = 0, None
    # Their Delete frames were replayed, so they are after `redo`. Flags that exist already may come from a process
    # killed before it synced them: unless `believed`, the frames stay until all flags have been written again.
    segment.to_flip(segment.dead & ~flagged if believed else segment.dead | flagged, redo)
    segment.dead |= flagged
    before, segment.live = segment.live, segment.alive(log.marks.live_floor, segment.end_seq)
    return segment.live != before


def _measure(log: Log, segment: Segment) -> None:
    """Count the live bytes. If the records cannot be read, the bytes are assumed, as for caps: the engine starts, and
    readers of these records get an error. The next start tries again, and is not refused either."""
    try:
        log.held.details(segment)
        segment.assumed = False
    except (SegmentError, StorageError, OSError) as error:
        lasting = isinstance(error, SegmentCorrupt) or (isinstance(error, OSError) and error.errno == errno.EIO)
        if not lasting and not segment.assumed:
            raise
        segment.assume()
        _log.error("segment_sizes_assumed", topic_id=log.topic_id, error=str(error))
    segment.live_bytes = segment.bytes_between(log.marks.live_floor, segment.end_seq)
    segment.details = None


def _folders(fs: FileSystem, root: str) -> dict[int, str]:
    folder = names.topics_folder(root)
    if not fs.exists(folder):
        return {}
    return {topic_id: names.folder(root, topic_id) for topic_id in names.topic_ids(fs.listdir(folder))}


def _set_aside(fs: FileSystem, root: str, topic_id: int) -> None:
    """Move the folder of an unknown log to quarantine/: it is neither read nor removed."""
    source = names.folder(root, topic_id)
    target = layout.join(layout.quarantine_dir(root), f"topic-{topic_id:016x}")
    if not fs.exists(layout.quarantine_dir(root)):
        fs.mkdir(layout.quarantine_dir(root))
        fs.sync_dir(root)
    if fs.exists(target):
        return  # quarantine/ has a folder of that name already: this one stays where it is, unread
    _log.warning("unknown_file_set_aside", folder=source, moved_to=target)
    fs.rename(source, target)
    fs.sync_dir(layout.quarantine_dir(root))
    fs.sync_dir(names.topics_folder(root))
