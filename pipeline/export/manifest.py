"""The manifests of a topic's export: the valid files, and the progress.

    _topics/<topic>/<n, 20 digits>.plan.json    the run that works on manifest n, and until when at most
    _topics/<topic>/<n>.json                    manifest n: put once, never changed; n counts from 1

`end` of the newest manifest is the bookmark, the only record of progress. A plan decides nothing: the run that puts the
manifest first wins. Readers must ignore files that no manifest names.

Source: docs/guides/spark.md#exporting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from pipeline import planning
from pipeline.errors import RECREATED, REINSTALLED, RENEWED, Gap, ManifestDamaged
from pipeline.export import names
from pipeline.export.part_settings import PartSettings
from pipeline.export.store import Store
from pipeline.view import LogView

APPEND, COMPACT = "append", "compact"


class FileEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file with records min_seq to max_seq, both inclusive. Times are ms; sha256 is of the file's bytes, in hex.

    `tag`: the tag of all its records, "" if they have none; None: the export is not partitioned by tag. `stats`: the
    statistics of a Delta table's file, which its commit has beside the manifest.
    """

    file: str
    partition: int
    rows: int
    bytes: int
    min_seq: int
    max_seq: int
    min_ts: int
    max_ts: int
    sha256: str
    tag: str | None = None
    stats: str = ""


class GapEntry(msgspec.Struct, frozen=True, kw_only=True, rename={"first": "from", "last": "to"}):
    """Seqs first to last were lost before their export. `missed_estimate`: the most records in them."""

    partition: int
    first: int
    last: int
    reason: str
    missed_estimate: int


class LogMark(msgspec.Struct, frozen=True, kw_only=True):
    """The log that was exported as a partition, and the first exported seq. `cluster_id`: of its cell, because each
    cell of a set has an id of its own; "": that of the manifest."""

    topic_id: int
    epoch: int
    first: int
    cluster_id: str = ""


class Resumption(NamedTuple):
    """Why the exported log has ended ("": it has not), the first seq of the present one to export, and the first seq of
    the exported one that nobody can have any more."""

    reason: str
    start: int
    lost: int


class Bookmark(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a partition. `end`: the first seq that is not exported. `mark` None: not recorded."""

    cluster_id: str
    end: int
    mark: LogMark | None

    def is_other(self, cluster_id: str, topic_id: int, epoch: int) -> bool:
        """Whether this is certainly another log than the exported one. `topic_id` 0: unknown."""
        known = self.mark is not None and topic_id != 0
        return known and (self.cluster_id, self.mark and self.mark.epoch) != (cluster_id, epoch)

    def resumption(self, view: LogView) -> Resumption:
        """Where the export of the partition continues."""
        if self.mark is None or not self.is_other(view.cluster_id, view.topic_id, view.epoch):
            return Resumption("", self.end, self.end)
        if (self.cluster_id, self.mark.topic_id) == (view.cluster_id, view.topic_id):
            shared = view.shared_with(self.mark.epoch)
            if shared is not None:
                # The same log, but recovery has lost its end. What it kept is exported already, up to `end`.
                return Resumption(RENEWED, min(self.end, shared + 1), max(self.end, shared + 1))
        reason = RECREATED if self.cluster_id == view.cluster_id else REINSTALLED
        return Resumption(reason, planning.earliest(view), self.end)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the export. `end`: the first seq that is not exported, by partition (as text); `logs`: the exported
    log, by partition. `durable`: the last durable seq that the run saw, by partition. `prev_run`: the run of the
    manifest before, where manifests are found by it. `cluster_id`, `topic_id` and `epoch` are of partition 0; manifests
    that were written before `logs` existed have no other partition.
    `values`: the typed columns as a DDL, of plain files the same in all manifests of a topic; `malformed`: the number
    of records whose value does not fit them."""

    number: int
    prev: int
    kind: str
    topic: str
    cluster_id: str
    topic_id: int
    epoch: int
    run: str
    end: dict[str, int]
    logs: dict[str, LogMark] = {}
    durable: dict[str, int] = {}
    prev_run: str = ""
    added: Sequence[FileEntry] = ()
    removed: Sequence[str] = ()
    gaps: Sequence[GapEntry] = ()
    values: str = ""
    malformed: int = 0
    format: str
    version: str
    created_ms: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The run that writes the next manifest: until `expires_ms`, or until the process `pid` of `host` (a boot) ends."""

    number: int
    topic: str
    run: str
    start: dict[str, int]
    end: dict[str, int]
    expires_ms: int
    host: str
    pid: int


def bookmark_in(manifest: Manifest, partition: int) -> Bookmark | None:
    """The progress of a partition in a manifest; None: not in it."""
    key = str(partition)
    if key not in manifest.end:
        return None
    mark = manifest.logs.get(key)
    if mark is None and partition == 0 and not manifest.logs and manifest.end[key] > 1:
        mark = LogMark(topic_id=manifest.topic_id, epoch=manifest.epoch, first=0)
    cluster_id = mark.cluster_id if mark is not None and mark.cluster_id else manifest.cluster_id
    return Bookmark(cluster_id=cluster_id, end=manifest.end[key], mark=mark)


def gap_entry(gap: Gap) -> GapEntry:
    return GapEntry(
        partition=gap.partition,
        first=gap.first,
        last=gap.last,
        reason=gap.reason,
        missed_estimate=gap.missed_estimate,
    )


def encode(value: Manifest | Plan) -> bytes:
    """Encode as readable JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def decode(data: bytes, key: str) -> Manifest:
    """Decode a manifest. Raises ManifestDamaged."""
    try:
        return msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ManifestDamaged(
            f"{key} is not a manifest: {error}. Restore it: without it, the valid files are unknown."
        ) from error


def decode_plan(data: bytes) -> Plan | None:
    """Decode a plan. None: it is not a plan, and has no effect."""
    try:
        return msgspec.json.decode(data, type=Plan)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class Chain:
    """The manifests of a topic as objects in a store. For tables, see `pipeline.export.tables`."""

    #: Whether files must have their names before the manifest is put.
    visible_first = False

    def __init__(self, store: Store, topic: str) -> None:
        self.store = store
        self.topic = topic
        #: The beginning of the keys of the topic's files.
        self.folder = names.component(topic)

    def numbers(self) -> list[int]:
        """The numbers of the manifests, ascending. Raises ManifestDamaged if one in between is missing."""
        keys = (key for key, _ in self.store.list(names.chain_folder(self.topic)))
        found = sorted(number for key in keys if (number := names.number_of_manifest(key)) is not None)
        if found != list(range(1, len(found) + 1)):
            raise ManifestDamaged(
                f"The manifests of {self.topic} are {found[:5]}…, not 1, 2, 3, …: one is missing. Restore it."
            )
        return found

    def newest(self) -> Manifest | None:
        """The last manifest; None: there is none."""
        numbers = self.numbers()
        return self.load(numbers[-1]) if numbers else None

    def bookmarks(self, last: Manifest | None, count: int) -> dict[int, Bookmark]:
        """The progress of each partition that was ever exported. `last`: the newest manifest; `count`: the number of
        partitions.

        An older program may have put a manifest with fewer partitions than the one before.
        """
        if last is None:
            return {}
        numbers = sorted({*range(count), *map(int, last.end)})
        manifests = [last] if len(numbers) == len(last.end) else self.all()
        return {at: found for each in manifests for at in numbers if (found := bookmark_in(each, at)) is not None}

    def load(self, number: int) -> Manifest:
        """Raises ManifestDamaged."""
        key = names.manifest(self.topic, number)
        data = self.store.read(key)
        if data is None:
            raise ManifestDamaged(f"{key} is missing. Restore it.")
        found = decode(data, key)
        if (found.number, found.prev, found.topic) != (number, number - 1, self.topic):
            raise ManifestDamaged(f"{key} contains manifest {found.number} of {found.topic}.")
        return found

    def all(self) -> Iterator[Manifest]:
        """All manifests in order. Raises ManifestDamaged."""
        for number in self.numbers():
            yield self.load(number)

    def files(self) -> list[FileEntry]:
        """The valid files, ordered by partition and seq."""
        return files_of(self.all())

    def counts(self) -> tuple[int, int]:
        """The numbers of valid files and records."""
        files = self.files()
        return len(files), sum(entry.rows for entry in files)

    def referenced(self) -> set[str]:
        """Files that the collection never removes."""
        return {entry.file for entry in self.files()}

    def settings(self, last: Manifest) -> PartSettings:
        """The settings of the files of an existing export."""
        files = list(last.added) or self.files()
        return PartSettings(
            kind=last.format,
            hourly=any("/hour=" in entry.file for entry in files[:1]),
            tagged=any(entry.tag is not None for entry in files[:1]),
        )

    def check(self) -> None:
        """Raises BadOption if the existing export has other columns than those of this run."""

    def put(self, manifest: Manifest) -> bool:
        """Put a manifest. False: another run was first. Durable on return."""
        key = names.manifest(self.topic, manifest.number)
        if self.store.create(key, encode(manifest)):
            return True
        data = self.store.read(key)
        return data is not None and decode(data, key).run == manifest.run


def files_of(manifests: Iterable[Manifest]) -> list[FileEntry]:
    """The files that are added and not removed. Raises ManifestDamaged if a file is removed that was not added."""
    found: dict[str, FileEntry] = {}
    for each in manifests:
        for name in each.removed:
            if found.pop(name, None) is None:
                raise ManifestDamaged(f"Manifest {each.number} of {each.topic} removes {name}, which is not valid.")
        for entry in each.added:
            if entry.file in found:
                raise ManifestDamaged(f"Manifest {each.number} of {each.topic} adds {entry.file} again.")
            found[entry.file] = entry
    return sorted(found.values(), key=lambda entry: (entry.partition, entry.min_seq, entry.file))
