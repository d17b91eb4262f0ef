"""Counts and hashes the files of an export again, and compares them with the records that the origin still has.

Both sides are read in seq order, partition by partition, at the same time, so that memory does not grow with the topic.
The expected number of records comes from the origin's counts, which are independent of the reader.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from operator import itemgetter
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import planning
from pipeline.batches import Shape
from pipeline.errors import Gap, counted, log_name
from pipeline.export import names, publication
from pipeline.export.chains import chain_of
from pipeline.export.maintenance import read_file
from pipeline.export.manifest import Bookmark, FileEntry
from pipeline.export.store import Store
from pipeline.export.tables import Piece, TableChain
from pipeline.origins import FullOrigin
from pipeline.split_reader import SplitReader
from pipeline.splits import splits_of
from pipeline.view import LogView, PartitionCounts

Digest = tuple[int, int]
"""Seq, and a hash of everything else in a record."""

#: How long the broker's counts may differ from the records that were read, while it removes expired ones.
GRACE_S = 5.0
#: The most messages about individual records; further ones are only counted.
_NAMED = 20
_READ_ROWS = 1 << 16


class Verified(NamedTuple):
    """The result. `problems` and `notes` are messages; notes are, for example, about records deleted since."""

    files: int
    rows: int
    bytes: int
    compared: int
    problems: list[str]
    notes: list[str]


class Rewritten(NamedTuple):
    """Records of a partition in rewritten files, in seq order, and the epochs of the files that they replace."""

    epochs: set[int]
    digests: list[Digest]


class Verification:
    """The verification of one topic's export. `progress` is called with numbers of rows."""

    def __init__(self, store: Store, topic: str, progress: Callable[[int], None] = lambda _: None) -> None:
        self._store = store
        self._topic = topic
        self._progress = progress
        self._rows = self._compared = self._unnamed = 0
        self._problems: list[str] = []
        self._notes: list[str] = []

    def run(self, origin: FullOrigin | None) -> Verified:
        """Verify. Without an origin, only files are checked. Raises ManifestDamaged, SourceUnreadable."""
        chain = chain_of(self._store, self._topic)
        seen = [] if chain.visible_first else self._store.list(chain.folder)
        last = chain.newest()
        files, foreign = chain.divided() if isinstance(chain, TableChain) else (chain.files(), [])
        rewritten = self._rewritten(chain, files, foreign) if isinstance(chain, TableChain) else {}
        self._look_for_strays([key for key, _ in seen if names.is_part(key)], files)
        good = [entry for entry in files if self._is_whole(entry)]
        parquet = [entry for entry in good if entry.file.endswith(".parquet")]
        held = {} if origin is None else {each.partition: each for each in origin.held(self._topic)}
        known = chain.bookmarks(last, len(held))
        for partition in sorted({*held, *known, *rewritten, *(entry.partition for entry in parquet)}):
            mine = [entry for entry in parquet if entry.partition == partition]
            mark = known.get(partition)
            if mark is None and partition in held and held[partition].live:
                self._problems.append(
                    f"Partition {partition} is missing: the broker has {counted(held[partition].live, 'record')} in "
                    "it, but it was never exported. Run export."
                )
            others = rewritten.get(partition)
            epochs = {names.epoch_of(entry.file) for entry in mine} | (others.epochs if others else set[int]())
            if others is not None and len(epochs) > 1:
                self._notes.append(
                    f"{log_name(self._topic, partition)} was created again, and files of both logs were rewritten "
                    "together: their records are counted, but not compared."
                )
                self._rows += sum(entry.rows for entry in mine)
                continue
            current = mark.mark.epoch if mark is not None and mark.mark is not None else None
            for epoch in sorted(epochs | ({current} if current is not None else set())):
                records = self._exported([entry for entry in mine if names.epoch_of(entry.file) == epoch], others)
                if origin is not None and mark is not None and epoch == current and len(parquet) == len(good):
                    self._compare(records, partition, mark, held.get(partition), origin)
                for _ in records:
                    pass
        self._rows += sum(entry.rows for entry in good if entry not in parquet)
        if self._unnamed:
            self._problems.append(
                f"{counted(self._unnamed, 'more record', 'is|are')} missing, or "
                f"{'differs' if self._unnamed == 1 else 'differ'} from the broker's."
            )
        size = sum(entry.bytes for entry in files)
        count = len(files) + len(foreign)
        return Verified(count, self._rows, size, self._compared, self._problems, self._notes)

    def _rewritten(self, chain: TableChain, files: list[FileEntry], foreign: list[Piece]) -> dict[int, Rewritten]:
        """The records of files that `compact` of Delta, or another tool, has written, by partition.

        These files name neither logs nor seqs, so the records are in memory here.
        """
        found: dict[int, list[Digest]] = {}
        for piece in foreign:
            rows = 0
            with self._store.local(piece.file) as path:
                for batch in _batches(path):
                    at = batch.column("partition").to_pylist()
                    for partition, digest in zip(at, digests_of(batch), strict=True):
                        found.setdefault(partition, []).append(digest)
                    rows += len(batch)
                    self._progress(len(batch))
            self._rows += rows
            if rows != piece.rows:
                self._problems.append(f"{piece.file} has {counted(rows, 'record')}, but the table says {piece.rows}.")
        counting = {entry.file for entry in files}
        replaced: dict[int, list[FileEntry]] = {}
        for entry in chain.expected():
            if entry.file not in counting:
                replaced.setdefault(entry.partition, []).append(entry)
        for partition in sorted({*found, *replaced}):
            expected = sum(entry.rows for entry in replaced.get(partition, []))
            there = len(found.get(partition, []))
            if expected != there:
                self._problems.append(
                    f"Rewritten files have {counted(there, 'record')}{_of(partition)}, but the files that they replace "
                    f"had {expected}."
                )
        return {
            partition: Rewritten({names.epoch_of(entry.file) for entry in replaced.get(partition, [])}, sorted(digests))
            for partition, digests in found.items()
        }

    def _look_for_strays(self, seen: Sequence[str], files: Sequence[FileEntry]) -> None:
        """Find files that a plain reader of the folder would read, but that are not valid."""
        counting = {entry.file for entry in files}
        strays = [key for key in seen if key not in counting and self._store.size(key) is not None]
        if strays:
            self._problems.append(
                f"{counted(len(strays), 'file', 'is|are')} not valid, for example {strays[0]}, but a plain reader of "
                f"the folder reads {'it' if len(strays) == 1 else 'them'}. The next export or compact removes replaced "
                "files at once, and files of killed runs after a day."
            )

    def _is_whole(self, entry: FileEntry) -> bool:
        key = publication.whereabouts(self._store, self._topic, entry.file)
        size = self._store.size(key)
        if size is None:
            self._problems.append(f"{entry.file} is missing.")
            return False
        sha = hashlib.sha256()
        with self._store.local(key) as path, open(path, "rb") as file:
            while piece := file.read(1 << 20):
                sha.update(piece)
        if size == entry.bytes and sha.hexdigest() == entry.sha256:
            return True
        self._problems.append(f"{entry.file} has changed: {size} bytes, sha256 {sha.hexdigest()[:16]}….")
        return False

    def _exported(self, files: list[FileEntry], others: Rewritten | None) -> Iterator[Digest]:
        """The records of a log in seq order. Files with a tag each have seqs of the same range."""
        last = 0
        streams = [self._merged(inside) for inside in overlapping(files)]
        records: Iterator[Digest] = itertools.chain.from_iterable(streams)
        if others is not None:
            records = merge(records, others.digests, key=itemgetter(0))
        for seq, digest in records:
            if seq <= last:
                self._say(f"Seq {seq} is exported twice, or out of order.")
            last = seq
            yield seq, digest

    def _merged(self, files: list[FileEntry]) -> Iterator[Digest]:
        return merge(*(self._records(entry) for entry in files), key=itemgetter(0))

    def _records(self, entry: FileEntry) -> Iterator[Digest]:
        rows = 0
        for batch in read_file(self._store, self._topic, entry):
            yield from digests_of(batch)
            rows += len(batch)
            self._progress(len(batch))
        self._rows += rows
        if rows != entry.rows:
            self._problems.append(f"{entry.file} has {counted(rows, 'record')}, but its manifest says {entry.rows}.")

    def _compare(
        self,
        records: Iterator[Digest],
        partition: int,
        known: Bookmark,
        held: PartitionCounts | None,
        origin: FullOrigin,
    ) -> None:
        """Compare all records, and their number with the broker's count."""
        mark = known.mark
        assert mark is not None
        view = origin.view(self._topic, partition) if held is not None else None
        if view is None or held is None or (view.cluster_id, view.epoch) != (known.cluster_id, mark.epoch):
            self._notes.append(
                f"{log_name(self._topic, partition)} at the broker is another log now: nothing is compared."
            )
            return
        ours = next(records, None)
        # Records before the start of the export are not in it. Manifests of older programs do not say where it began.
        first = mark.first or (ours[0] if ours else known.end)
        start = max(planning.earliest(view), first)
        end = min(known.end, view.end)
        since = seen = 0
        for theirs in self._there(origin, view, max(view.end, held.head_seq + 1)):
            seen += theirs[0] <= held.head_seq
            if not start <= theirs[0] < end:
                continue
            while ours is not None and ours[0] < theirs[0]:
                since += ours[0] >= start
                ours = next(records, None)
            self._compared += 1
            if ours is None or ours[0] != theirs[0]:
                self._say(f"Seq {theirs[0]}{_of(partition)} is at the broker, but not in the export.")
                continue
            if ours[1] != theirs[1]:
                self._say(f"Seq {theirs[0]}{_of(partition)} differs from the broker's record.")
            ours = next(records, None)
        if since:
            self._notes.append(
                f"{counted(since, 'exported record')}{_of(partition)} {'is' if since == 1 else 'are'} no longer at the "
                "broker."
            )
        self._count(seen, held, origin)

    def _count(self, seen: int, before: PartitionCounts, origin: FullOrigin) -> None:
        """Compare the number of records that were read with the broker's count, which may change meanwhile."""
        patience = time.monotonic() + GRACE_S
        while True:
            after = next((each for each in origin.held(self._topic) if each.partition == before.partition), None)
            if after is None or after.epoch != before.epoch:
                self._notes.append(f"{log_name(self._topic, before.partition)} was created again meanwhile.")
                return
            gone = (after.head_seq - before.head_seq) - (after.live - before.live)
            if before.live - gone <= seen <= before.live:
                return
            if time.monotonic() > patience:
                self._problems.append(
                    f"The broker counts {counted(before.live, 'record')}{_of(before.partition)} up to seq "
                    f"{before.head_seq}, but {seen:,} {'was' if seen == 1 else 'were'} read. Check the data directory "
                    "with `python -m storage verify DIR`."
                )
                return
            time.sleep(0.1)  # counts reflect expired records a little later than reads

    def _there(self, origin: FullOrigin, view: LogView, end: int) -> Iterator[Digest]:
        ignored: list[Gap] = []
        for split in splits_of(self._topic, view, planning.earliest(view), end):
            for batch in SplitReader(origin, split, Shape(), ignored.append).batches():
                yield from digests_of(batch)

    def _say(self, text: str) -> None:
        if len(self._problems) < _NAMED:
            self._problems.append(text)
        else:
            self._unnamed += 1


def overlapping(files: Iterable[FileEntry]) -> Iterator[list[FileEntry]]:
    """Groups of files whose ranges of seqs overlap, in seq order. Pure."""
    group: list[FileEntry] = []
    end = 0
    for entry in sorted(files, key=lambda entry: (entry.min_seq, entry.max_seq)):
        if group and entry.min_seq > end:
            yield group
            group = []
        group.append(entry)
        end = max(end, entry.max_seq)
    if group:
        yield group


def _batches(path: str) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(_READ_ROWS)


def _of(partition: int) -> str:
    return f" of partition {partition}" if partition else ""


def digests_of(batch: pa.RecordBatch) -> Iterator[Digest]:
    """The digests of the records: of time, key, value, node and meta."""
    columns = [batch.column(name).to_pylist() for name in ("key", "value", "node", "meta")]
    stamps = batch.column("timestamp").cast(pa.int64()).to_pylist()
    for seq, *rest in zip(batch.column("seq").to_pylist(), stamps, *columns, strict=True):
        yield seq, hash(tuple(rest))
