"""What Delta and Iceberg tables have in common: the table's log is the chain of manifests, and its commit the bookmark.

The libraries would retry a lost race by themselves, and add the same rows again. So a commit is made for exactly the
state of the table that was read, and never retried blindly: if another commit came in between, or the answer was lost,
the table shows whose manifest it has. Other tools may rewrite files: their commits have no manifest, and commits of
exports follow them.

Source: docs/guides/spark.md#exporting.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from pipeline.errors import RECREATED, REINSTALLED, RENEWED, BadOption, ManifestDamaged, StoreRefused
from pipeline.export.manifest import Chain, FileEntry, Manifest, files_of
from pipeline.export.marks import table_folder
from pipeline.export.part_settings import PartSettings
from pipeline.export.store import Store

_TRIES = 20
_PAUSE_S = 0.02


class Piece(NamedTuple):
    """A file that counts in a table, whatever has written it."""

    file: str
    rows: int


class Version(NamedTuple):
    """A version of a table (for plain files: a manifest). `seqs`: first and last exported seq, by partition."""

    version: str
    made_ms: int
    kind: str
    rows: int
    seqs: dict[int, tuple[int, int]]


class TableChain(Chain):
    """The manifests in a table's log. `schema` and `parts` are of the run; None: it only reads."""

    visible_first = True
    #: What the format is called in messages.
    called = ""

    def __init__(self, store: Store, topic: str, *, schema: pa.Schema | None, parts: PartSettings) -> None:
        super().__init__(store, topic)
        self.folder = table_folder(store, topic)
        self.uri = f"{store.url}/{self.folder}"
        self.schema = schema
        self.parts = parts
        #: Why the last change of the table failed.
        self.refusal: Exception | None = None

    # -- what the formats differ in ----------------------------------------------------------------------------------

    @abstractmethod
    def table(self) -> Any | None:
        """The table as it is now; None: there is none."""

    @abstractmethod
    def made(self) -> Any | None:
        """The table, created now if no other run was faster. None: it cannot be created yet, see `refusal`."""

    @abstractmethod
    def newest_of(self, table: Any) -> Manifest | None:
        """The last manifest in a table. Raises ManifestDamaged if it contradicts the table."""

    @abstractmethod
    def active(self, table: Any) -> list[Piece]:
        """The files that count."""

    @abstractmethod
    def partitions(self, table: Any) -> list[str]:
        """What the table is partitioned by: date, hour, tag."""

    @abstractmethod
    def columns(self, table: Any) -> pa.Schema:
        """The columns of the records."""

    @abstractmethod
    def fit(self, table: Any, *, change: bool) -> bool:
        """Give the table the columns of the run. True: it has changed. Without `change`, only check.

        Raises BadOption if that is not possible.
        """

    @abstractmethod
    def commit(self, table: Any, manifest: Manifest, last: Manifest | None) -> Exception | None:
        """Commit to exactly that state of the table. Any error is returned: the table shows whether the commit is in
        it."""

    @abstractmethod
    def versions(self) -> Iterator[Version]:
        """The versions that can still be read, the oldest first."""

    def reason(self, refusal: Exception | None) -> str:
        """What an operator should know of a change that failed again and again."""
        return "other writers are always faster, or the store refuses"

    # -- reading -----------------------------------------------------------------------------------------------------

    def newest(self) -> Manifest | None:
        """The last manifest; None: there is none. Raises ManifestDamaged if it contradicts the table."""
        table = self.table()
        return None if table is None else self.newest_of(table)

    def numbers(self) -> list[int]:
        """The numbers of the manifests. Raises ManifestDamaged if one in between is missing."""
        found = [each.number for each in self.all()]
        if found != list(range(1, len(found) + 1)):
            raise ManifestDamaged(f"The table {self.uri} has manifests {found[:5]}…, not 1, 2, 3, …: restore them.")
        return found

    def load(self, number: int) -> Manifest:
        """Raises ManifestDamaged."""
        for each in self.all():
            if each.number == number:
                return each
        raise ManifestDamaged(f"No commit of {self.topic} has manifest {number}. Restore it.")

    def files(self) -> list[FileEntry]:
        """The valid files. Raises BadOption if another tool has written some."""
        mine, foreign = self.divided()
        if foreign:
            raise BadOption(
                f"Another tool, or `compact`, has rewritten files of the {self.called} table {self.uri}: read it as a "
                "table, not by files."
            )
        return mine

    def divided(self) -> tuple[list[FileEntry], list[Piece]]:
        """The valid files that exports have written, and those that something else has written."""
        table = self.table()
        if table is None:
            return [], []
        known = {entry.file: entry for each in self.all() for entry in each.added}
        active = self.active(table)
        mine = [known[piece.file] for piece in active if piece.file in known]
        mine.sort(key=lambda entry: (entry.partition, entry.min_seq, entry.file))
        return mine, [piece for piece in active if piece.file not in known]

    def expected(self) -> list[FileEntry]:
        """The files that the manifests list: their records must be in the table, in whatever files."""
        return files_of(self.all())

    def counts(self) -> tuple[int, int]:
        """The numbers of valid files and records, whatever tool wrote them."""
        table = self.table()
        active: Sequence[Piece] = [] if table is None else self.active(table)
        return len(active), sum(piece.rows for piece in active)

    def referenced(self) -> set[str]:
        """Files that are not strays. `vacuum` removes those that older versions of the table have."""
        return {entry.file for each in self.all() for entry in each.added}

    # -- writing -----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises BadOption if the existing table cannot have the columns and partitions of the run."""
        if (table := self.table()) is not None:
            self._compare(table)
            self.fit(table, change=False)

    def put(self, manifest: Manifest) -> bool:
        """Commit a manifest's files. False: another run was first. Durable on return."""
        for attempt in range(_TRIES):
            time.sleep(_PAUSE_S * attempt)
            table = self.table() or self.made()
            if table is None:
                continue
            self._compare(table)
            last = self.newest_of(table)
            if last is not None and last.number >= manifest.number:
                # This also covers a commit whose answer was lost: the table shows whose it is.
                return self.load(manifest.number).run == manifest.run
            if self.fit(table, change=True):
                continue
            self.refusal = self.commit(table, manifest, last)
            if self.refusal is None:
                return True
        raise StoreRefused(
            f"The {self.called} table {self.uri} accepts no commit ({type(self.refusal).__name__}): "
            f"{self.reason(self.refusal)}."
        ) from self.refusal

    def _compare(self, table: Any) -> None:
        if self.schema is None:
            return
        given, ours = self.partitions(table), partition_columns(self.parts)
        if given != ours:
            raise BadOption(f"{self.uri} is partitioned by {','.join(given)}: export it with the same --partition-by.")
        clash = [name for name in self.schema.names if name in ours]
        if clash:
            raise BadOption(f"The column {clash[0]} has the name of a partition of the table: give it another name.")


def partition_columns(parts: PartSettings) -> list[str]:
    """What tables with these files are partitioned by."""
    return ["date", *(["hour"] if parts.hourly else []), *(["tag"] if parts.tagged else [])]


def seqs_of(manifest: Manifest, before: dict[str, int]) -> dict[int, tuple[int, int]]:
    """First and last seq of a manifest by partition, after one with the bookmark `before`. Pure."""
    found: dict[int, tuple[int, int]] = {}
    for key, end in manifest.end.items():
        mark = manifest.logs.get(key)
        first = mark.first if mark is not None else 1
        is_new = any(
            str(gap.partition) == key and gap.reason in (RECREATED, REINSTALLED, RENEWED) for gap in manifest.gaps
        )
        start = first if is_new else before.get(key, first)
        if end > start:
            found[int(key)] = (start, end - 1)
    return found


__all__ = ["Piece", "TableChain", "Version", "partition_columns", "seqs_of"]
