"""The manifests of a topic's export: which files count, and how far it has come.

    _topics/<topic>/<n, 20 digits>.plan.json    who is at work on manifest n, and for how long at most
    _topics/<topic>/<n>.json                    manifest n: put once, never changed; n rises by 1 from 1

`end` of the newest manifest is the bookmark; there is no second record of progress. A plan decides nothing: whoever
puts the manifest first has won. Files that no manifest names are not there for readers.

Source: docs/guides/spark.md#exporting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pipeline.errors import Gap, ManifestDamaged
from pipeline.export import names
from pipeline.export.store import Store

APPEND, COMPACT = "append", "compact"


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A file of records min_seq to max_seq, both there; times are ms, sha256 is of the file's bytes, in hex."""

    file: str
    partition: int
    rows: int
    bytes: int
    min_seq: int
    max_seq: int
    min_ts: int
    max_ts: int
    sha256: str


class GapEntry(msgspec.Struct, frozen=True, kw_only=True, rename={"first": "from", "last": "to"}):
    """Seqs first to last were lost before they could be exported; `missed_estimate` is an upper bound of records."""

    partition: int
    first: int
    last: int
    reason: str
    missed_estimate: int


class LogMark(msgspec.Struct, frozen=True, kw_only=True):
    """Which log a partition was when it was exported, and the seq that its export began with."""

    topic_id: int
    epoch: int
    first: int


class Bookmark(msgspec.Struct, frozen=True, kw_only=True):
    """How far a partition is exported: `end` is the first seq that is not. `mark` is None where nobody noted it."""

    cluster_id: str
    end: int
    mark: LogMark | None

    def is_other(self, cluster_id: str, topic_id: int, epoch: int) -> bool:
        """Whether this is known to be another log than the one that was exported. `topic_id` 0: nobody can know."""
        known = self.mark is not None and topic_id != 0
        return known and (self.cluster_id, self.mark and self.mark.epoch) != (cluster_id, epoch)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the export. `end`: partition (as text) to the first seq not yet exported; `logs`: the same to which
    log that was. `topic_id` and `epoch` are those of partition 0: what was written before there was `logs` has no
    other partition."""

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
    added: Sequence[FileEntry] = ()
    removed: Sequence[str] = ()
    gaps: Sequence[GapEntry] = ()
    format: str
    version: str
    created_ms: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Who writes the next manifest: until `expires_ms`, or until the process `pid` of `host` (a boot of it) ends."""

    number: int
    topic: str
    run: str
    start: dict[str, int]
    end: dict[str, int]
    expires_ms: int
    host: str
    pid: int


def bookmark_in(manifest: Manifest, partition: int) -> Bookmark | None:
    """How far a manifest says that a partition is exported; None where it does not tell of it."""
    key = str(partition)
    if key not in manifest.end:
        return None
    mark = manifest.logs.get(key)
    if mark is None and partition == 0 and not manifest.logs:
        mark = LogMark(topic_id=manifest.topic_id, epoch=manifest.epoch, first=0)
    return Bookmark(cluster_id=manifest.cluster_id, end=manifest.end[key], mark=mark)


def gap_entry(gap: Gap) -> GapEntry:
    return GapEntry(
        partition=gap.partition,
        first=gap.first,
        last=gap.last,
        reason=gap.reason,
        missed_estimate=gap.missed_estimate,
    )


def encode(value: Manifest | Plan) -> bytes:
    """Readable JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def decode(data: bytes, key: str) -> Manifest:
    """Raises ManifestDamaged."""
    try:
        return msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ManifestDamaged(
            f"{key} is no manifest: {error}. Restore it; without it nobody knows what counts."
        ) from error


def decode_plan(data: bytes) -> Plan | None:
    """None for what is no plan: it binds nobody."""
    try:
        return msgspec.json.decode(data, type=Plan)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class Chain:
    """A topic's manifests in a store, as objects; `pipeline.export.delta` has those of Delta tables."""

    #: Whether files must be there under their names before the manifest is.
    visible_first = False

    def __init__(self, store: Store, topic: str) -> None:
        self.store = store
        self.topic = topic
        #: What the keys of the topic's files begin with.
        self.folder = names.component(topic)

    def numbers(self) -> list[int]:
        """Of the manifests there are, ascending. Raises ManifestDamaged when one is missing in between."""
        keys = (key for key, _ in self.store.list(names.chain_folder(self.topic)))
        found = sorted(number for key in keys if (number := names.number_of_manifest(key)) is not None)
        if found != list(range(1, len(found) + 1)):
            raise ManifestDamaged(
                f"The manifests of {self.topic} are {found[:5]}…, not 1, 2, 3, …: one is missing. Restore it."
            )
        return found

    def newest(self) -> Manifest | None:
        """The last one; None when there is none."""
        numbers = self.numbers()
        return self.load(numbers[-1]) if numbers else None

    def bookmarks(self, last: Manifest | None, count: int) -> dict[int, Bookmark]:
        """How far each partition is exported; of one that never was, nothing. `last` is the newest manifest, `count`
        how many partitions there are.

        A manifest that tells of fewer partitions than one before it was put by an older program.
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
            raise ManifestDamaged(f"{key} is gone. Restore it.")
        found = decode(data, key)
        if (found.number, found.prev, found.topic) != (number, number - 1, self.topic):
            raise ManifestDamaged(f"{key} says that it is manifest {found.number} of {found.topic}.")
        return found

    def all(self) -> Iterator[Manifest]:
        """Every manifest in order. Raises ManifestDamaged."""
        for number in self.numbers():
            yield self.load(number)

    def files(self) -> list[FileEntry]:
        """The files that count now, by partition and seq."""
        return files_of(self.all())

    def counts(self) -> tuple[int, int]:
        """Files and records that count now."""
        files = self.files()
        return len(files), sum(entry.rows for entry in files)

    def referenced(self) -> set[str]:
        """Files that the collection leaves alone however old they are."""
        return {entry.file for entry in self.files()}

    def put(self, manifest: Manifest) -> bool:
        """Put a manifest; False when another run was first. Durable on return."""
        key = names.manifest(self.topic, manifest.number)
        if self.store.create(key, encode(manifest)):
            return True
        data = self.store.read(key)
        return data is not None and decode(data, key).run == manifest.run


def files_of(manifests: Iterable[Manifest]) -> list[FileEntry]:
    """What is added and not removed. Raises ManifestDamaged when a file is removed that is not there."""
    found: dict[str, FileEntry] = {}
    for each in manifests:
        for name in each.removed:
            if found.pop(name, None) is None:
                raise ManifestDamaged(f"Manifest {each.number} of {each.topic} removes {name}, which does not count.")
        for entry in each.added:
            if entry.file in found:
                raise ManifestDamaged(f"Manifest {each.number} of {each.topic} adds {entry.file} again.")
            found[entry.file] = entry
    return sorted(found.values(), key=lambda entry: (entry.partition, entry.min_seq, entry.file))
