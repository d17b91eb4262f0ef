"""Maintenance of an export: compaction, collection of strays, status.

Source: docs/guides/spark.md#exporting.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import planning
from pipeline.errors import RECREATED, REINSTALLED, RENEWED, AnotherExporter, BadOption, ManifestDamaged
from pipeline.export import names, publication
from pipeline.export.chains import chain_of
from pipeline.export.delta import DeltaChain
from pipeline.export.evolution import common_columns, with_columns
from pipeline.export.iceberg import IcebergChain
from pipeline.export.manifest import COMPACT, FileEntry, Manifest, decode_plan
from pipeline.export.part_settings import JSON, PARQUET, PartSettings
from pipeline.export.parts import TAG_FIELD, PartWriter
from pipeline.export.store import TMP, Store
from pipeline.export.tables import TableChain
from pipeline.origins import FullOrigin
from pipeline.values import ValueShape
from pipeline.view import LogView

#: Compaction rewrites files smaller than the first, and makes none larger than the second.
SMALL_BYTES = 128 << 20
LARGE_BYTES = 512 << 20
DAY_S = 86_400.0
MOST_RETAINED_S = 36_500 * DAY_S
_READ_ROWS = 1 << 16


def folder_of(entry: FileEntry) -> str:
    """The folder of a file: topic, date, and maybe hour."""
    return entry.file.rsplit("/", 1)[0]


def groups_to_compact(files: Sequence[FileEntry]) -> Iterator[list[FileEntry]]:
    """Groups of files to merge: small ones of one folder, tag and log, adjacent in seq order. Pure."""

    def log_of(entry: FileEntry) -> tuple[str, str, int, int]:
        return folder_of(entry), entry.tag or "", entry.partition, names.epoch_of(entry.file)

    ordered = sorted(files, key=lambda entry: (*log_of(entry), entry.min_seq))
    for _, inside in groupby(ordered, key=log_of):
        group: list[FileEntry] = []
        size = 0
        for entry in inside:
            fits = entry.bytes < SMALL_BYTES and size + entry.bytes <= LARGE_BYTES
            if not fits:
                if len(group) > 1:
                    yield group
                group, size = [], 0
            if entry.bytes < SMALL_BYTES:
                group.append(entry)
                size += entry.bytes
        if len(group) > 1:
            yield group


class Compacted(NamedTuple):
    """The result of a compaction."""

    before: int
    after: int
    rows: int
    manifest: int | None


def compact(store: Store, topic: str, *, version: str, folder: str = "") -> Compacted:
    """Rewrite small files of each date into large ones, as one manifest with an unchanged bookmark.

    `folder` ("date=2026-01-31"): only this one. It can be killed at any point, like an export. A Delta table is
    compacted by its own OPTIMIZE. Raises AnotherExporter if an export has put the next manifest meanwhile: the
    compaction is then not valid; run it again.
    """
    chain = chain_of(store, topic)
    if isinstance(chain, DeltaChain):
        files, rows = chain.counts()
        removed, added = chain.optimize(folder, LARGE_BYTES)
        return Compacted(files, files - removed + added, rows if removed else 0, None)
    publication.finish(chain)
    last = chain.newest()
    if last is None:
        raise BadOption(f"{topic} is not exported there.")
    if last.format == JSON:
        raise BadOption(f"{topic}: it is exported as {JSON}, but only {PARQUET} and tables can be compacted.")
    settings = chain.settings(last)
    every = chain.divided()[0] if isinstance(chain, TableChain) else chain.files()
    files = [entry for entry in every if not folder or f"/{folder}/" in entry.file]
    groups = list(groups_to_compact(files))
    if not groups:
        return Compacted(len(files), len(files), 0, None)
    added = [entry for group in groups for entry in _rewrite(store, topic, group, settings)]
    removed = [entry.file for group in groups for entry in group]
    if sum(entry.rows for entry in added) != sum(entry.rows for group in groups for entry in group):
        raise ManifestDamaged(f"{topic}: the numbers of rows in files and manifests differ: run verify.")
    manifest = Manifest(
        number=last.number + 1,
        prev=last.number,
        kind=COMPACT,
        topic=topic,
        cluster_id=last.cluster_id,
        topic_id=last.topic_id,
        epoch=last.epoch,
        run=uuid.uuid4().hex,
        end=last.end,
        logs=last.logs,
        added=added,
        removed=removed,
        durable=last.durable,
        values=last.values,
        format=last.format,
        version=version,
        created_ms=time.time_ns() // 1_000_000,
    )
    if not publication.commit(chain, manifest):
        raise AnotherExporter(f"{topic}: an export put manifest {manifest.number} meanwhile. Run compact again.")
    return Compacted(
        len(files), len(files) - len(removed) + len(added), sum(each.rows for each in added), last.number + 1
    )


class Widened(NamedTuple):
    """What `widen` has written again."""

    files: int
    rows: int


def widen(store: Store, topic: str, values: ValueShape, progress: Callable[[int, int], None]) -> Widened:
    """Give columns of a Delta table the wider types of typed columns, by writing every file again in one commit.

    The bookmark is unchanged. `progress` hears how many files of how many are written. Raises BadOption if the export
    needs no `widen`, or if a type cannot change; StoreRefused.
    """
    chain = chain_of(store, topic)
    if not isinstance(chain, DeltaChain):
        how = "the next export with the wider type widens" if isinstance(chain, IcebergChain) else "nothing can widen"
        raise BadOption(f"{topic} is no Delta table: {how} its columns.")
    return Widened(*chain.widen(values.fields(), progress))


def _rewrite(store: Store, topic: str, group: list[FileEntry], settings: PartSettings) -> list[FileEntry]:
    epoch = names.epoch_of(group[0].file)
    start, end = group[0].min_seq, max(entry.max_seq for entry in group) + 1
    writer = PartWriter(store, settings, topic, group[0].partition, start, end, epoch)
    columns = common_columns([_columns_of(store, topic, entry) for entry in group])
    batches = (batch for entry in group for batch in read_file(store, topic, entry))
    return list(writer.write(with_columns(batch, columns) for batch in batches))


def _columns_of(store: Store, topic: str, entry: FileEntry) -> pa.Schema:
    with store.local(publication.whereabouts(store, topic, entry.file)) as path:
        return pa.schema([each for each in pq.read_schema(path) if each.name != TAG_FIELD.name])


def read_file(store: Store, topic: str, entry: FileEntry) -> Iterator[pa.RecordBatch]:
    """The records of an exported Parquet file, without the column that repeats the tag."""
    with store.local(publication.whereabouts(store, topic, entry.file)) as path, pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_READ_ROWS):
            yield batch.drop_columns([TAG_FIELD.name]) if TAG_FIELD.name in batch.schema.names else batch


def collect(store: Store, topic: str, now_s: float) -> list[str]:
    """Remove files that no manifest and no live plan needs, if they are older than a day. Returns their names.

    Files that a compaction has replaced are removed at once: a plain reader would read their records twice.
    """
    chain = chain_of(store, topic)
    publication.finish(chain)
    keys = store.list(chain.folder)
    meta = store.list(names.chain_folder(topic))
    # Older versions of a table have the replaced files: they stay until `vacuum`.
    replaced = set[str]() if chain.visible_first else {name for each in chain.all() for name in each.removed}
    counting = chain.referenced()
    strays = [(key, put_s) for key, put_s in keys if names.is_part(key) and key not in counting]
    gone = [key for key, _ in strays if key in replaced]
    if not _live_plan(store, [key for key, _ in meta], now_s):  # nothing names its files yet
        staged = {names.staged(topic, key) for key in counting}
        waiting = [(key, put_s) for key, put_s in store.list(names.staging_folder(topic)) if key not in staged]
        gone += [key for key, put_s in [*strays, *waiting] if key not in replaced and put_s < now_s - DAY_S]
    gone += [key for key, put_s in store.list(TMP) if put_s < now_s - DAY_S]
    for key in gone:
        store.delete(key)
    return gone


def check_retention(retain_s: float) -> None:
    """Raises BadOption if `vacuum` would refuse it: commands ask before they begin."""
    if retain_s < DAY_S:
        raise BadOption("--retain must be at least 1d: younger files may belong to a reader, or to a run at work.")
    if retain_s > MOST_RETAINED_S:
        raise BadOption("--retain must be at most 36500d, a hundred years.")


def vacuum(store: Store, topic: str, *, retain_s: float, now_s: float) -> int:
    """Remove files that only older versions of a table have, and strays: the number of removed files.

    `retain_s`: how long older versions can be read, at least a day. Nothing is removed while a run is at work. Raises
    BadOption, StoreRefused.
    """
    check_retention(retain_s)
    chain = chain_of(store, topic)
    if _live_plan(store, [key for key, _ in store.list(names.chain_folder(topic))], now_s):
        return 0
    gone = len(collect(store, topic, now_s))
    if isinstance(chain, DeltaChain | IcebergChain):
        gone += chain.vacuum(retain_s)
    return gone


def _live_plan(store: Store, keys: Sequence[str], now_s: float) -> bool:
    from pipeline.export.exporter import is_over

    plans = (decode_plan(store.read(key) or b"") for key in keys if names.number_of_plan(key) is not None)
    return any(plan is not None and not is_over(plan, int(now_s * 1000)) for plan in plans)


class Status(NamedTuple):
    """The progress of an export. `exported`: seqs of all partitions; `lag`: durable seqs that are not exported."""

    topic: str
    partitions: int
    exported: int
    lag: int
    files: int
    rows: int
    state: str


#: States of a partition, the worst first. A topic has the worst state of its partitions.
_STATES = (REINSTALLED, RECREATED, RENEWED, "gap", "behind", "up to date")


def status(store: Store, topic: str, origin: FullOrigin) -> Status:
    """The status of a topic's export. Raises SourceUnreadable, ManifestDamaged."""
    chain = chain_of(store, topic)
    last = chain.newest()
    count = origin.partitions(topic)
    known = chain.bookmarks(last, count)
    exported = lag = 0
    states = [RECREATED for at in known if at >= count]
    for partition in range(count):
        view = origin.view(topic, partition)
        mark = known.get(partition)
        reason, end = "", planning.earliest(view) if last is None else 1
        if mark is not None:
            reason, end, _ = mark.resumption(view)
            exported += 0 if reason in (RECREATED, REINSTALLED) else end - 1
        lag += max(0, view.durable_seq + 1 - end)
        states.append(reason or _state_of(end, view))
    files, rows = chain.counts()
    state = "never exported" if last is None else min(states, key=_STATES.index)
    return Status(topic, count, exported, lag, files, rows, state)


def _state_of(end: int, view: LogView) -> str:
    if end < planning.earliest(view):
        return "gap"
    return "up to date" if end > view.durable_seq else "behind"


__all__ = [
    "Compacted",
    "Status",
    "Widened",
    "check_retention",
    "collect",
    "compact",
    "read_file",
    "status",
    "vacuum",
    "widen",
]
