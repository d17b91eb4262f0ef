"""Counts and hashes an export again, file by file, and compares it with what the origin still has.

Both sides come in seq order and are walked through side by side: memory does not grow with the topic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa

from pipeline import planning
from pipeline.batches import Shape
from pipeline.errors import Gap
from pipeline.export import names
from pipeline.export.chains import chain_of
from pipeline.export.manifest import FileEntry, Manifest
from pipeline.export.store import Store
from pipeline.export.upkeep import read_file
from pipeline.origins import Place
from pipeline.reading import SplitReader
from pipeline.splits import splits_of

Digest = tuple[int, int]
"""Seq, and a hash of all else that a record has."""

#: Sentences about single records, before only their number is told.
_NAMED = 20


class Verified(NamedTuple):
    """What was seen: `problems` are sentences, and so are `notes` (of records deleted since, say)."""

    files: int
    rows: int
    bytes: int
    compared: int
    problems: list[str]
    notes: list[str]


class Verification:
    """Of one topic's export. `progress` is told of rows."""

    def __init__(self, store: Store, topic: str, progress: Callable[[int], None] = lambda _: None) -> None:
        self._store = store
        self._topic = topic
        self._progress = progress
        self._rows = self._compared = self._unnamed = 0
        self._problems: list[str] = []
        self._notes: list[str] = []

    def run(self, origin: Place | None) -> Verified:
        """Raises ManifestDamaged, SourceUnreadable. Without an origin only the files are looked at."""
        chain = chain_of(self._store, self._topic)
        manifests, files = list(chain.all()), chain.files()
        good = [entry for entry in files if self._is_whole(entry)]
        parquet = [entry for entry in good if entry.file.endswith(".parquet")]
        for epoch in sorted({names.epoch_of(entry.file) for entry in parquet}):
            records = self._exported([entry for entry in parquet if names.epoch_of(entry.file) == epoch])
            if origin is not None and epoch == manifests[-1].epoch:
                self._compare(records, manifests[-1], origin)
            for _ in records:
                pass
        self._rows += sum(entry.rows for entry in good if entry not in parquet)
        if self._unnamed:
            self._problems.append(f"{self._unnamed} more records are missing, or not what the broker has.")
        size = sum(entry.bytes for entry in files)
        return Verified(len(files), self._rows, size, self._compared, self._problems, self._notes)

    def _is_whole(self, entry: FileEntry) -> bool:
        size = self._store.size(entry.file)
        if size is None:
            self._problems.append(f"{entry.file} is gone.")
            return False
        sha = hashlib.sha256()
        with self._store.local(entry.file) as path, open(path, "rb") as file:
            while piece := file.read(1 << 20):
                sha.update(piece)
        if size == entry.bytes and sha.hexdigest() == entry.sha256:
            return True
        self._problems.append(f"{entry.file} is not what was written: {size} bytes, sha256 {sha.hexdigest()[:16]}….")
        return False

    def _exported(self, files: list[FileEntry]) -> Iterator[Digest]:
        last = 0
        for entry in sorted(files, key=lambda entry: entry.min_seq):
            rows = 0
            for batch in read_file(self._store, entry):
                for seq, digest in digests_of(batch):
                    if seq <= last:
                        self._say(f"Seq {seq} is exported twice, or out of order, in {entry.file}.")
                    last = seq
                    yield seq, digest
                rows += len(batch)
                self._progress(len(batch))
            self._rows += rows
            if rows != entry.rows:
                self._problems.append(f"{entry.file} holds {rows} records, and its manifest says {entry.rows}.")

    def _compare(self, records: Iterator[Digest], last: Manifest, origin: Place) -> None:
        view = origin.view(self._topic)
        if (view.cluster_id, view.epoch) != (last.cluster_id, last.epoch):
            self._notes.append("The topic at the broker is another one by now: nothing is compared.")
            return
        ours = next(records, None)
        start = max(planning.earliest(view), ours[0]) if ours else 0
        end = min(last.end["0"], view.end)
        since = 0
        for theirs in self._there(origin, start, end) if ours else ():
            while ours is not None and ours[0] < theirs[0]:
                since += ours[0] >= start
                ours = next(records, None)
            self._compared += 1
            if ours is None or ours[0] != theirs[0]:
                self._say(f"Seq {theirs[0]} is at the broker, and not in the export.")
                continue
            if ours[1] != theirs[1]:
                self._say(f"Seq {theirs[0]} is not what the broker has.")
            ours = next(records, None)
        if since:
            self._notes.append(f"{since} exported records are not at the broker any more.")

    def _there(self, origin: Place, start: int, end: int) -> Iterator[Digest]:
        ignored: list[Gap] = []
        view = origin.view(self._topic)
        for split in splits_of(self._topic, view, start, end):
            for batch in SplitReader(origin, split, Shape(), ignored.append).batches():
                yield from digests_of(batch)

    def _say(self, text: str) -> None:
        if len(self._problems) < _NAMED:
            self._problems.append(text)
        else:
            self._unnamed += 1


def digests_of(batch: pa.RecordBatch) -> Iterator[Digest]:
    """Of each record: time, key, value, node and meta."""
    columns = [batch.column(name).to_pylist() for name in ("key", "value", "node", "meta")]
    stamps = batch.column("timestamp").cast(pa.int64()).to_pylist()
    for seq, *rest in zip(batch.column("seq").to_pylist(), stamps, *columns, strict=True):
        yield seq, hash(tuple(rest))
