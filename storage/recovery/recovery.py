"""From the bytes in a data directory to the engine's state.

newest valid snapshot -> its sections -> replay of each shard from redo_from -> truncate -> sync -> heads.

Runs in a thread, before anything else touches the state. Running it twice gives the same state. `log_end.py` decides
where a shard's log ends; `salvage.py` handles damage where salvage continues instead of refusing the start.

Source: docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import structlog

from storage.errors import MetadataLost, UnsupportedFormat, WalCorrupt
from storage.format import SnapshotDamaged, SnapshotUnsupported
from storage.log import position, split
from storage.options import Options, Recovery
from storage.platform import FileSystem, ShardTrust, layout, read_laid_out
from storage.records import CELL_SHIFT, Durability, LossCause, cell_of
from storage.recovery.log_end import LogEnd, find_end
from storage.recovery.reconcile import reconcile_consumers, reconcile_jobs, reconcile_routers
from storage.recovery.repair import repair
from storage.recovery.replay import Replay
from storage.recovery.salvage import Salvage
from storage.recovery.segments import reconcile_segments
from storage.segments import SegmentStore
from storage.segments.tiering import Tier
from storage.snapshot import contents as snapshot
from storage.state import HOT, Catalog, Log, LossRange, reconcile_partitions
from storage.telemetry import METRICS, Family

_log = structlog.get_logger("storage")


class Recovered(NamedTuple):
    """The result of recovery, for the engine."""

    catalog: Catalog
    next_files: list[int]
    snapshots: list[tuple[int, list[int]]]
    next_snapshot: int
    sections: dict[int, bytes]
    losses: dict[int, list[LossRange]]
    """Loss ranges found, by topic_id: applied already, to be written before ready."""
    renewed: list[int]
    """topic_ids that salvage gave a new epoch: to be written before ready."""
    wounds: list[LogEnd]
    """Shards with damage that salvage has skipped: to be healed when all of that is durable."""
    volatile: list[int]
    """topic_ids of queues whose leases the snapshot of a clean stop holds, though a crash voids them."""
    last_ts: int
    report: Report
    store: SegmentStore


class Report:
    """The findings and actions of recovery."""

    def __init__(self) -> None:
        self.frames = 0
        self.bytes = 0
        self.discarded_bytes = 0
        self.discarded_frames = 0
        self.salvaged_bytes = 0
        self.seconds = 0.0

    def families(self, progress: float) -> list[Family]:
        """Metric families of recovery. `progress`: the share of it that is done, 0 to 1."""
        return [
            METRICS.whole("topics_recovery_progress", progress),
            METRICS.whole("topics_recovery_frames", self.frames),
            METRICS.whole("topics_recovery_bytes", self.bytes),
            METRICS.whole("topics_recovery_seconds", self.seconds),
            METRICS.whole("topics_recovery_discarded_bytes", self.discarded_bytes),
            METRICS.whole("topics_recovery_discarded_frames", self.discarded_frames),
            METRICS.whole("topics_recovery_salvaged_bytes", self.salvaged_bytes),
        ]


class Loaded(NamedTuple):
    """A snapshot and its contents, or no snapshot."""

    body: snapshot.Body | None
    snapshots: list[tuple[int, list[int]]]
    next_number: int
    sections: list[snapshot.Section]
    raw: dict[int, bytes]


def recover(
    fs: FileSystem,
    root: str,
    options: Options,
    shards: int,
    *,
    loaded: Loaded | None = None,
    came_up: bool = True,
    trust: ShardTrust,
    before_truncating: Callable[[ShardTrust], None] = lambda _: None,
    now_ms: Callable[[int], int],
    progress: Callable[[float], None],
    cold: Tier | None = None,
    unpacked: bool = False,
) -> Recovered:
    """Rebuild the state.

    `shards`: the shard count of the log's layout. `came_up`: the previous start succeeded, so its clean stop's
    statements about the files still hold. `trust`: the shards where only the process died, so that the page cache is
    as it left it; `before_truncating` gets the rest of that trust while the evidence is still there. `now_ms` gets the
    greatest ts in the log and returns the time from which idempotency keys live on. `unpacked`: all segments are plain
    here, whatever the log says about packing (as in a backup).

    Raises MetadataLost, WalCorrupt, UnsupportedFormat (all before anything but quarantine/ was changed), OSError.
    """
    loaded = loaded or load_snapshots(fs, root)
    catalog = Catalog(shards, options.cell)
    catalog.usage.access = store = SegmentStore(fs, root, options.max_open_segments, cold)
    catalog.usage.replaying = True
    created_ms = _restore(catalog, loaded)
    redo = [position(*lsn) for lsn in loaded.body.redo_from] if loaded.body else [position(1, 0)] * shards
    report = Report()
    salvage = Salvage(fs, report) if options.recovery is Recovery.SALVAGE else None
    without_segments = read_laid_out(fs, root)
    ends = [
        _replay_shard(fs, root, shards, shard, redo[shard], catalog, report, salvage, without_segments, progress)
        for shard in range(shards)
    ]
    _check_beginning(ends, loaded)
    reconcile_partitions(catalog, salvaging=salvage is not None)
    last_ts = max([created_ms, *(end.last_ts for end in ends)])
    for end in ends:
        catalog.see_id(end.max_topic_id)
    trust = trust.after([end.torn_file for end in ends], [end.next_file for end in ends])
    before_truncating(trust)
    for end in ends:
        repair(fs, root, end, options, report)
    clean = came_up and _was_clean(loaded, ends)
    if unpacked:
        _unpack(catalog)
    if options.make_hot:
        _make_hot(catalog)
    reconcile_segments(store, catalog, redo, clean=clean)
    catalog.usage.replaying = False
    recovered_ms = now_ms(last_ts)
    if options.new_epochs:
        # None that others have used since: as long as they used fewer than a thousand a second.
        catalog.see_id(cell_of(catalog.next_topic_id) << CELL_SHIFT | recovered_ms)
    losses, renewed = _reconcile_heads(catalog, salvage, trust, all_epochs=options.new_epochs)
    volatile = _reconcile_projections(catalog, clean=clean)
    _renew_remembered(catalog, options, last_ts, recovered_ms)
    progress(1.0)
    return Recovered(
        catalog,
        [end.next_file for end in ends],
        loaded.snapshots,
        loaded.next_number,
        loaded.raw,
        losses,
        renewed,
        [end for end in ends if end.holes or end.missing],
        volatile if loaded.body is not None and loaded.body.clean else [],
        last_ts,
        report,
        store,
    )


def _make_hot(catalog: Catalog) -> None:
    for topic in catalog.by_id.values():
        for log in topic.logs:
            log.section = None
            for segment in log.held.manifest.segments:
                segment.tier = HOT


def _unpack(catalog: Catalog) -> None:
    for topic in catalog.by_id.values():
        for log in topic.logs:
            log.section = None
            for segment in log.held.manifest.segments:
                segment.packed_bytes = 0


def _was_clean(loaded: Loaded, ends: list[LogEnd]) -> bool:
    """Whether the snapshot is that of a clean stop, and no frame follows it."""
    return loaded.body is not None and loaded.body.clean and not any(end.beyond for end in ends)


def load_snapshots(fs: FileSystem, root: str) -> Loaded:
    """The newest valid snapshot, or the one before. None is fine when the WAL begins at its first file."""
    directory = layout.meta_dir(root)
    numbers = layout.snapshot_numbers(fs.listdir(directory)) if fs.exists(directory) else []
    valid: list[tuple[int, snapshot.Body]] = []
    for number in numbers:
        path = layout.join(directory, layout.snapshot_name(number))
        file = fs.open(path, write=False)
        try:
            data = file.pread(file.size(), 0)
        finally:
            file.close()
        try:
            body = snapshot.decode(data)
            [snapshot.decode_section(raw) for raw in body.sections]
            if body.states:
                snapshot.decode_states(body.states)
        except SnapshotUnsupported as error:
            raise UnsupportedFormat(f"{path}: {error}") from error
        except SnapshotDamaged as error:
            _log.error("snapshot_damaged", file=path, error=str(error))
            continue
        valid.append((number, body))
    next_number = (numbers[-1] if numbers else 0) + 1
    if not valid:
        return Loaded(None, [], next_number, [], {})
    body = valid[-1][1]
    snapshots = [(number, [position(*lsn) for lsn in each.redo_from]) for number, each in valid[-2:]]
    sections = [snapshot.decode_section(raw) for raw in body.sections]
    raw = {section.topic_id: encoded for section, encoded in zip(sections, body.sections, strict=True)}
    return Loaded(body, snapshots, next_number, sections, {**raw, 0: body.states} if body.states else raw)


def _restore(catalog: Catalog, loaded: Loaded) -> int:
    """Apply the snapshot; returns when it was taken, in ms (0: there is none)."""
    if loaded.body is None:
        return 0
    for section in loaded.sections:
        snapshot.restore(catalog, section, loaded.body.created_ms)
    snapshot.restore_states(catalog.states, loaded.body.states)
    catalog.next_topic_id = max(catalog.next_topic_id, loaded.body.next_topic_id)
    catalog.pending_deletes.update(loaded.body.pending_deletes)
    return loaded.body.created_ms


def _as_of(catalog: Catalog, shard: int) -> dict[int, int]:
    """By topic_id, the position below which the catalog holds everything of a log."""
    lsns = {
        log.topic_id: log.applied_lsn for topic in catalog.by_id.values() for log in topic.logs if log.shard == shard
    }
    return lsns if shard else {**lsns, 0: catalog.states.applied_lsn}


def _replay_shard(
    fs: FileSystem,
    root: str,
    shards: int,
    shard: int,
    redo: int,
    catalog: Catalog,
    report: Report,
    salvage: Salvage | None,
    without_segments: Sequence[range],
    progress: Callable[[float], None],
) -> LogEnd:
    directory = layout.shard_dir(root, shard, shards)
    as_of = _as_of(catalog, shard)
    replay = Replay(catalog, as_of, directory, salvage, without_segments)
    if salvage is not None:
        salvage.shard = shard

    def step(fraction: float) -> None:
        progress((shard + fraction) / shards)

    end = find_end(fs, directory, shard, redo, replay, step, salvage)
    end.beyond = replay.beyond
    report.frames += end.frames
    report.bytes += end.bytes
    latest = max(as_of.values(), default=0)
    if latest > end.lsn and split(latest)[1] > 0:
        _ends_too_early(end, split(latest), salvage)
    return end


def _ends_too_early(end: LogEnd, expected: tuple[int, int], salvage: Salvage | None) -> None:
    number, offset = split(end.lsn)
    path = layout.join(end.directory, layout.wal_name(number))
    what = f"the log ends here, but the snapshot was taken at file {expected[0]}, offset {expected[1]}"
    if salvage is None:
        raise WalCorrupt(f"{path}, offset {offset}: {what}: synced frames are missing.", file=path, offset=offset)
    salvage.damage(path, offset, what)
    # New frames belong after the frames that the snapshot knows, and file numbers in between must not count as missing
    # later.
    end.missing += range(end.next_file, expected[0] + 1)
    end.next_file = max(end.next_file, expected[0] + 1)


def _check_beginning(ends: list[LogEnd], loaded: Loaded) -> None:
    """Without a snapshot, the log itself must contain everything from its first frame on."""
    if loaded.body is not None:
        return
    lost = [end for end in ends if end.first_file not in (None, 1)]
    bare = [end for end in ends if end.first_file is None]
    # A shard without room for its first file has no files. A shard whose files are gone was refused before.
    if lost or (bare and loaded.next_number > 1):
        raise MetadataLost(
            "No snapshot in meta/ can be read and the log does not begin at its first file, so topics cannot be told "
            "apart any more. Nothing was changed; restore meta/ or the whole directory from a backup."
        )


def _reconcile_heads(
    catalog: Catalog, salvage: Salvage | None, trust: ShardTrust, *, all_epochs: bool
) -> tuple[dict[int, list[LossRange]], list[int]]:
    """Announce as lost the seqs that may have been assigned and do not exist. `all_epochs`: every topic gets a new
    epoch."""
    losses: dict[int, list[LossRange]] = {}
    renewed: list[int] = []
    for topic in catalog.topics.values():
        log = topic.log
        found: list[LossRange] = salvage.losses(log) if salvage else []
        certain = topic.config.durability is Durability.FSYNC or (trust[log.shard] and not log.ephemeral)
        if not certain and log.reserved > log.head:
            found = [*found, (log.head + 1, log.reserved, str(LossCause.CRASH))]
        if log.half_written is not None:
            # Records written from memory for a change of class that was not finished: they are lost like all others in
            # memory, and deleted records among them stay deleted.
            found = [*found, (log.half_written, max(log.head, log.half_written), str(LossCause.CRASH))]
        if found:
            log.evict(loss=found)
            losses[log.topic_id] = found
        if log.ephemeral:
            log.written_out(log.head)
        if all_epochs or (salvage is not None and log.shard in salvage.shards):
            _renew_epoch(catalog, log)
            renewed.append(log.topic_id)
    if salvage is not None:
        salvage.report_ownerless()
    return losses, renewed


def _reconcile_projections(catalog: Catalog, *, clean: bool) -> list[int]:
    reconcile_routers(catalog, clean=clean)
    reconcile_consumers(catalog)
    return reconcile_jobs(catalog, clean=clean)


def _renew_epoch(catalog: Catalog, log: Log) -> None:
    log.renew(catalog.next_topic_id, log.head)
    catalog.next_topic_id += 1


def _renew_remembered(catalog: Catalog, options: Options, last_ts: int, now_ms: int) -> None:
    """Downtime does not count: what was remembered when it began is still remembered."""
    _renew_keys(catalog, last_ts, now_ms)
    _renew_producers(catalog, options, last_ts, now_ms)


def _renew_keys(catalog: Catalog, last_ts: int, now_ms: int) -> None:
    """Keys that were live at the last frame live for a whole window from now on: downtime does not count."""
    for topic in catalog.topics.values():
        ring = topic.log.keys
        if ring is None:
            continue
        catalog.usage.keys -= ring.renew(last_ts, topic.config.idempotency_window_ms, now_ms)
        if not ring.key_count:
            topic.log.keys = None


def _renew_producers(catalog: Catalog, options: Options, last_ts: int, now_ms: int) -> None:
    """Producers that were known at the last frame are idle from now on."""
    for topic in catalog.by_id.values():
        if (table := topic.log.producers) is not None:
            catalog.usage.producers -= table.renew(last_ts, options.producer_id_expiration_ms, now_ms)
            topic.log.section = None
