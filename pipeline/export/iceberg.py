"""An Iceberg table for each topic (`--format iceberg`). The snapshot that adds the files is the bookmark.

    <to>/<topic>/date=…/part-….parquet     the files
    <to>/<topic>/metadata/                 the table's metadata and snapshots
    _topics/<topic>/<n>-<run>.json         manifest n of that run: it counts if the table names the run
    _topics/<topic>/iceberg.json           marks this export as an Iceberg table, with its catalog
    _topics/iceberg.db                     the embedded catalog

A commit adds the files, and has number, run and `end` of the manifest both as properties of the table, which stay when
snapshots expire, and in the summary of the snapshot, for readers that travel in time. It is made for exactly the
snapshot that was read (`pipeline.export.tables`).

Source: docs/guides/spark.md#exporting.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa

from pipeline.errors import BadOption, ManifestDamaged, StoreRefused, counted
from pipeline.export import catalog_refusals, hive_refusals, names
from pipeline.export.catalogs import Catalogs
from pipeline.export.evolution import changes, plain, without_short_integers
from pipeline.export.manifest import Manifest, decode, encode
from pipeline.export.part_settings import ICEBERG, PartSettings
from pipeline.export.parts import TAG_FIELD
from pipeline.export.store import Store, path_of, why
from pipeline.export.tables import Piece, TableChain, Version, seqs_of

#: Properties of the table, and of a snapshot's summary.
NUMBER, RUN, KIND, END, SEQS, CLUSTER, TOPIC = (
    f"topics.{name}" for name in ("number", "run", "kind", "end", "seqs", "cluster-id", "topic")
)
_RETRIES = "commit.retry.num-retries"
_PROPERTIES = {
    # The library's own retry would add the files of a lost race again.
    _RETRIES: "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
    "write.parquet.compression-codec": "zstd",
}
DAY_S = 86_400.0
#: Other names of schemes.
_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss"}


class IcebergChain(TableChain):
    """The manifests that an Iceberg table names."""

    called = "Iceberg"

    def __init__(
        self,
        store: Store,
        topic: str,
        catalogs: Catalogs,
        *,
        schema: pa.Schema | None = None,
        parts: PartSettings | None = None,
    ) -> None:
        super().__init__(store, topic, schema=schema, parts=parts or PartSettings(kind=ICEBERG))
        self._catalog = catalogs.open(store)
        self._name = (catalogs.namespace, names.table_name(topic))
        #: Iceberg has absolute names of files.
        self._root = store.url if "://" in store.url else f"file://{store.url}"
        self._home = _canonical(f"{self._root}/{self.folder}")

    # -- reading -----------------------------------------------------------------------------------------------------

    def all(self) -> Iterator[Manifest]:
        """All manifests in order."""
        found = self.newest()
        chain: list[Manifest] = []
        while found is not None:
            chain.append(found)
            found = self._manifest(found.prev, found.prev_run) if found.prev else None
        return reversed(chain)

    def table(self) -> Any | None:
        """See `TableChain`."""
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._catalog.load_table(self._name)
        except NoSuchTableError:
            return None
        except Exception as error:
            raise StoreRefused(f"The Iceberg table {self.uri} cannot be opened: {self._said(error)}.") from error

    def newest(self) -> Manifest | None:
        """See `TableChain`. Raises ManifestDamaged if the catalog has lost the table."""
        table = self.table()
        if table is None and (number := self._committed()) > 0:
            table = self.table()  # another run may have made it, and gone on, in between
            if table is None:
                raise ManifestDamaged(
                    f"The catalog has no table {'.'.join(self._name)}, but {counted(number, 'manifest', 'was|were')} "
                    f"committed to it: check --catalog, or restore the catalog. To export {self.topic} anew, from the "
                    f"first record that the broker still has, remove {names.chain_folder(self.topic)}/ first."
                )
        return None if table is None else self.newest_of(table)

    def _committed(self) -> int:
        """How many manifests were committed for certain: each but the first is written after the one before counts."""
        keys = (key for key, _ in self.store.list(names.chain_folder(self.topic)))
        return max((names.number_of_table_manifest(key) or 0 for key in keys), default=0) - 1

    def newest_of(self, table: Any) -> Manifest | None:
        """See `TableChain`."""
        given = table.properties
        if given.get(TOPIC) != self.topic:
            raise BadOption(
                f"The table {'.'.join(self._name)} of the catalog is not an export of {self.topic}: give another "
                "--namespace, or drop that table."
            )
        self._look_back(table)
        if NUMBER not in given:
            return None
        try:
            number, run, end = int(given[NUMBER]), given[RUN], json.loads(given[END])
        except (KeyError, ValueError) as error:
            raise ManifestDamaged(
                f"The properties {NUMBER}, {RUN} and {END} of {self.uri} are damaged: another tool has changed them. "
                "Undo that, or export to another --to."
            ) from error
        found = self._manifest(number, run)
        if end != found.end:
            raise ManifestDamaged(
                f"Manifest {found.number} ends at {found.end}, but the properties of {self.uri} say {given[END]}: the "
                "table was changed."
            )
        return found

    def active(self, table: Any) -> list[Piece]:
        """See `TableChain`. Raises BadOption if another tool has deleted single rows."""
        found: list[Piece] = []
        for task in self._planned(table):
            if task.delete_files:
                raise BadOption(
                    f"Another tool has deleted rows of the Iceberg table {self.uri}: its files alone do not say which "
                    "records are in it. Read it as a table."
                )
            found.append(Piece(self._key(task.file.file_path), task.file.record_count))
        return found

    def partitions(self, table: Any) -> list[str]:
        """See `TableChain`."""
        from pyiceberg.transforms import DayTransform, HourTransform

        found: list[str] = []
        for field in table.spec().fields:
            name = table.schema().find_column_name(field.source_id)
            if isinstance(field.transform, DayTransform):
                found.append("date")
            elif isinstance(field.transform, HourTransform):
                found += ["date", "hour"]
            else:
                found.append(str(name))
        return found

    def columns(self, table: Any) -> pa.Schema:
        """See `TableChain`."""
        given = table.schema().as_arrow()
        return pa.schema([pa.field(each.name, plain(each.type)) for each in given])

    def versions(self) -> Iterator[Version]:
        """See `TableChain`."""
        table = self.table()
        for each in [] if table is None else sorted(table.snapshots(), key=lambda each: each.sequence_number):
            summary = {} if each.summary is None else each.summary.additional_properties
            seqs = {int(at): (first, last) for at, (first, last) in json.loads(summary.get(SEQS, "{}")).items()}
            kind = summary.get(KIND) or (each.summary.operation.value if each.summary is not None else "unknown")
            rows = int(summary.get("added-records", 0)) if seqs else 0
            yield Version(str(each.snapshot_id), each.timestamp_ms, kind, rows, seqs)

    def metadata(self) -> str:
        """The URL of the table's current metadata, which readers without the catalog need."""
        table = self.table()
        return "" if table is None else str(table.metadata_location)

    # -- writing -----------------------------------------------------------------------------------------------------

    def made(self) -> Any | None:
        """See `TableChain`."""
        from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, TableAlreadyExistsError

        try:
            self._catalog.create_namespace_if_not_exists(self._name[0])
        except NamespaceAlreadyExistsError:
            pass
        except Exception as error:
            raise StoreRefused(f"The catalog creates no namespace: {self._said(error)}.") from error
        try:
            with (
                self._catalog.create_table_transaction(
                    self._name,
                    schema=self._columns(),
                    location=f"{self._root}/{self.folder}",
                    properties=_PROPERTIES | {TOPIC: self.topic},
                ) as fresh,
                fresh.update_spec() as spec,
            ):
                self._partition(spec)
        except TableAlreadyExistsError:
            pass  # by another exporter
        except CommitFailedException as error:
            self.refusal = error  # another exporter has created it, or is about to
            return self.table()
        except Exception as error:
            if self.table() is None:
                raise StoreRefused(
                    f"The Iceberg table {self.uri} cannot be created ({type(error).__name__}): {self.reason(error)}."
                ) from error
        table = self.table()
        if table is None:
            raise StoreRefused(f"The Iceberg table {self.uri} cannot be created.")
        return table

    def fit(self, table: Any, *, change: bool) -> bool:
        """See `TableChain`. Also takes care that the library does not retry."""
        ours = self.columns(table) if self.schema is None else self._columns()
        found = changes(self.uri, self.columns(table), ours)
        retries = table.properties.get(_RETRIES) != "0"
        if not (found.added or found.widened or retries) or not change:
            return False
        from pyiceberg.exceptions import CommitFailedException

        try:
            with table.transaction() as step:
                if retries:
                    step.set_properties({_RETRIES: "0"})
                if found.added or found.widened:
                    with step.update_schema() as update:
                        for field in found.widened:
                            update.update_column(field.name, _iceberg_type(field))
                        if found.added:
                            update.union_by_name(pa.schema(found.added))
        except CommitFailedException as error:
            self.refusal = error  # another run has changed the table: it is read again
        except Exception as error:
            raise StoreRefused(
                f"The columns of the Iceberg table {self.uri} cannot be changed: {self._said(error)}."
            ) from error
        return True

    def commit(self, table: Any, manifest: Manifest, last: Manifest | None) -> Exception | None:
        """See `TableChain`."""
        from pyiceberg.io.pyarrow import parquet_files_to_data_files

        whole = msgspec.structs.replace(manifest, prev_run="" if last is None else last.run)
        seqs = seqs_of(whole, {} if last is None else last.end)
        marks = {
            NUMBER: str(whole.number),
            RUN: whole.run,
            KIND: whole.kind,
            END: json.dumps(whole.end),
            CLUSTER: whole.cluster_id,
        }
        summary = marks | {TOPIC: self.topic, SEQS: json.dumps(seqs)}
        added = [f"{self._root}/{entry.file}" for entry in whole.added]
        gone = self._gone(table, whole.removed)
        try:
            self.store.create(names.table_manifest(self.topic, whole.number, whole.run), encode(whole))
            with table.transaction() as step:
                step.set_properties(marks)
                if not gone:
                    # Also without files: the snapshot makes the commit depend on the one that was read.
                    step.add_files(added, snapshot_properties=summary, check_duplicate_files=False)
                else:
                    with step.update_snapshot(snapshot_properties=summary).overwrite() as swap:
                        for file in gone:
                            swap.delete_data_file(file)
                        for file in parquet_files_to_data_files(table.io, table.metadata, iter(added)):
                            swap.append_data_file(file)
        except Exception as error:
            return error
        return None

    def reason(self, refusal: Exception | None) -> str:
        """See `TableChain`."""
        silent = None if refusal is None else catalog_refusals.silence(refusal, self._catalog_uri())
        return hive_refusals.reason(refusal) or silent or super().reason(refusal)

    def _catalog_uri(self) -> str:
        return str(self._catalog.properties.get("uri", self._catalog.name))

    def _said(self, error: Exception) -> str:
        if isinstance(error, FileNotFoundError):
            return why(self.store, error)
        return catalog_refusals.said(error, self._catalog_uri())

    def vacuum(self, retain_s: float) -> int:
        """Expire snapshots, and remove files that no snapshot has: the number of removed files.

        Files younger than a day stay in any case: a run may be about to commit them. Raises BadOption if the table is
        not in its folder of the store: the store then has no file of it, or a copy of some.
        """
        table = self.table()
        if table is None:
            return 0
        if _canonical(table.location()) != self._home:
            raise BadOption(
                f"The Iceberg table of {self.topic} is at {table.location()}, not at {self._root}/{self.folder}: give "
                "--to as its exports do. No file of the table was removed."
            )
        now = time.time()
        before = datetime.fromtimestamp(now - retain_s, UTC).replace(tzinfo=None)
        try:
            table.maintenance.expire_snapshots().older_than(before).commit()
            table.refresh()
            reached = self._reached(table)
        except Exception as error:
            raise StoreRefused(f"The Iceberg table {self.uri} cannot be vacuumed: {self._said(error)}.") from error
        named = {names.table_manifest(self.topic, each.number, each.run) for each in self.all()}
        lost = [
            (key, put_s)
            for key, put_s in self.store.list(names.chain_folder(self.topic))
            if names.run_of_table_manifest(key) is not None and key not in named
        ]
        candidates = [
            (key, put_s)
            for key, put_s in self.store.list(self.folder)
            if _file_name(key) not in reached and (names.is_part(key) or self._is_metadata(key))
        ]
        gone = [key for key, put_s in [*candidates, *lost] if put_s < now - DAY_S]
        for key in gone:
            self.store.delete(key)
        return len(gone)

    # -- steps -------------------------------------------------------------------------------------------------------

    def _columns(self) -> pa.Schema:
        assert self.schema is not None
        fields = [*self.schema, *([TAG_FIELD] if self.parts.tagged else [])]
        return pa.schema([each.with_type(without_short_integers(each.type)) for each in fields])

    def _partition(self, spec: Any) -> None:
        from pyiceberg.transforms import DayTransform, HourTransform

        if self.parts.hourly:
            spec.add_field("timestamp", HourTransform(), "timestamp_hour")
        else:
            spec.add_field("timestamp", DayTransform(), "timestamp_day")
        if self.parts.tagged:
            spec.add_identity("tag")

    def _key(self, location: str) -> str:
        """The key of a file, however its run has spelled the location of the store; of a file elsewhere, its URL."""
        found = location.removeprefix(f"{self._root}/")
        if found != location:
            return found
        canonical = _canonical(location)
        return self.folder + canonical.removeprefix(self._home) if canonical.startswith(f"{self._home}/") else location

    def _is_metadata(self, key: str) -> bool:
        """Whether a commit of the library may have left the file. Other tools have files of other kinds there."""
        return key.startswith(f"{self.folder}/metadata/") and key.endswith((".metadata.json", ".avro"))

    def _planned(self, table: Any) -> list[Any]:
        """The files that a reader would open, with what is deleted in them."""
        try:
            return list(table.scan().plan_files())
        except Exception as error:
            raise StoreRefused(f"The Iceberg table {self.uri} cannot be read: {type(error).__name__}.") from error

    def _gone(self, table: Any, removed: Sequence[str]) -> list[Any]:
        """The files of the table that a compaction replaces. Without one of them, its rows would be there twice."""
        if not removed:
            return []
        wanted = set(removed)
        found = [each for each in self._planned(table) if self._key(each.file.file_path) in wanted]
        if len(found) != len(wanted) or any(each.delete_files for each in found):
            raise StoreRefused(
                f"{self.uri}: another tool has rewritten files, or deleted rows, that this compaction was to replace. "
                "Nothing has changed. Run compact again."
            )
        return [each.file for each in found]

    def _manifest(self, number: int, run: str) -> Manifest:
        key = names.table_manifest(self.topic, number, run)
        data = self.store.read(key)
        if data is None:
            raise ManifestDamaged(f"{key} is missing. Restore it: without it, the exported seqs are unknown.")
        found = decode(data, key)
        if (found.number, found.run, found.topic) != (number, run, self.topic):
            raise ManifestDamaged(f"{key} contains manifest {found.number} of {found.topic}.")
        return found

    def _look_back(self, table: Any) -> None:
        """Check that the current snapshot, or one before it, is that of the properties: nobody has rolled it back."""
        at = table.current_snapshot()
        while at is not None:
            summary = {} if at.summary is None else at.summary.additional_properties
            if NUMBER in summary:
                if (summary[NUMBER], summary[RUN]) == (table.properties.get(NUMBER), table.properties.get(RUN)):
                    return
                raise ManifestDamaged(
                    f"The current snapshot of {self.uri} is of manifest {summary[NUMBER]}, but its properties say "
                    f"{table.properties.get(NUMBER)}: the table was rolled back, or its properties were changed. Undo "
                    "that, or export to another --to."
                )
            at = None if at.parent_snapshot_id is None else table.snapshot_by_id(at.parent_snapshot_id)

    def _reached(self, table: Any) -> set[str]:
        """The names, without folders, of all files that a snapshot or the metadata needs.

        Each has an id of its own, so that its name identifies it even if the same folder has several locations.
        """
        found = {str(table.metadata_location), *(entry.metadata_file for entry in table.metadata.metadata_log)}
        found |= {each.statistics_path for each in table.metadata.statistics}
        for snapshot in table.snapshots():
            found.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                found.add(manifest.manifest_path)
                found |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
        return {_file_name(location) for location in found}


def _file_name(location: str) -> str:
    return location.rsplit("/", 1)[-1]


def _canonical(location: str) -> str:
    """One spelling for all locations of a place: without links and `..`, or with the usual scheme."""
    path = path_of(location)
    scheme, found, rest = path.partition("://")
    if not found:
        return os.path.realpath(path)
    return "/".join([f"{_SCHEMES.get(scheme, scheme)}:/", *(each for each in rest.split("/") if each)])


def _iceberg_type(field: pa.Field) -> Any:
    from pyiceberg.types import DecimalType, DoubleType, LongType

    if pa.types.is_decimal(field.type):
        return DecimalType(field.type.precision, field.type.scale)
    return LongType() if pa.types.is_int64(field.type) else DoubleType()
