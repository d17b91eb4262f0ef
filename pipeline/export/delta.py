"""A Delta table for each topic (`--format delta`). Its log is the chain; there are no other manifests.

    <to>/<topic>/_delta_log/<version>.json    a commit: the added files; the manifest, in commitInfo; and a transaction
                                              of the application `<cluster id>/<topic>` (partitions above 0:
                                              `/<partition>` appended) with `end` as its version
    _topics/<topic>/delta.json                marks this export as a Delta table

Delta accepts a repeated version of an application, so a commit is made for exactly the version of the table that was
read (`pipeline.export.tables`). `compact` is Delta's own OPTIMIZE, and `vacuum` its VACUUM: their commits, those of
`widen`, and those of other tools, have no manifest.

Source: docs/guides/spark.md#exporting.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import BadOption, ManifestDamaged, StoreRefused
from pipeline.export.column_bounds import ColumnBounds
from pipeline.export.evolution import changes, widened, with_columns
from pipeline.export.manifest import FileEntry, Manifest
from pipeline.export.names import table_tag_folder
from pipeline.export.part_settings import DELTA, PartSettings
from pipeline.export.parts import ParquetSink
from pipeline.export.store import Store, why
from pipeline.export.tables import Piece, TableChain, Version, partition_columns, seqs_of
from pipeline.values import type_named

MANIFEST = "topicsManifest"
#: What marks a commit of `widen`.
WIDENED = "topicsWidened"
#: Features of a table that do not change how its files are read: a column of a type that Delta has only since.
_HARMLESS = {"timestampNtz"}
#: Commits must stay: the newest one of an export is searched among them.
_CONFIGURATION = {"delta.enableExpiredLogCleanup": "false"}
_KINDS = {"date": pa.date32(), "hour": pa.int32(), "tag": pa.string()}


class _Action(msgspec.Struct):
    """A line of a commit. Only commitInfo matters here."""

    info: dict[str, Any] | None = msgspec.field(name="commitInfo", default=None)


_commit = msgspec.json.Decoder(_Action)


class DeltaChain(TableChain):
    """The manifests in the log of a Delta table."""

    called = "Delta"

    def __init__(
        self, store: Store, topic: str, *, schema: pa.Schema | None = None, parts: PartSettings | None = None
    ) -> None:
        super().__init__(store, topic, schema=schema, parts=parts or PartSettings(kind=DELTA))
        try:
            import deltalake
            from deltalake.exceptions import DeltaError, TableNotFoundError
        except ImportError as error:
            raise StoreRefused(
                "Delta tables need the package deltalake: pip install 'topics-broker[delta]', or export with "
                "--format parquet."
            ) from error
        self._api: Any = deltalake
        self._error: type[Exception] = DeltaError
        self._absent: type[Exception] = TableNotFoundError
        self._storage = storage_options(store.url)

    # -- reading -----------------------------------------------------------------------------------------------------

    def all(self) -> Iterator[Manifest]:
        """All manifests in order."""
        for version in range(self._length()):
            found = self._manifest_at(version)
            if found is not None:
                yield found

    def table(self) -> Any | None:
        """See `TableChain`."""
        try:
            return self._api.DeltaTable(self.uri, storage_options=self._storage)
        except self._absent:
            return None
        except self._error as error:
            raise StoreRefused(f"The Delta table {self.uri} cannot be opened: {why(self.store, error)}.") from error

    def newest_of(self, table: Any) -> Manifest | None:
        """See `TableChain`."""
        for version in range(table.version(), -1, -1):
            found = self._manifest_at(version)
            if found is not None:
                for partition, end in found.end.items():
                    at = self._asking(table.transaction_version, _application(found, partition))
                    if at != end:
                        raise ManifestDamaged(
                            f"Manifest {found.number} in {self.uri} ends before seq {end} of partition {partition}, "
                            f"but the table's transaction says {at}: the log was changed, or restored from an "
                            "older table."
                        )
                return found
        return None

    def active(self, table: Any) -> list[Piece]:
        """See `TableChain`."""
        found = pa.table(self._asking(table.get_add_actions))
        paths, rows = found.column("path").to_pylist(), found.column("num_records").to_pylist()
        return [Piece(f"{self.folder}/{unquote(path)}", count) for path, count in zip(paths, rows, strict=True)]

    def partitions(self, table: Any) -> list[str]:
        """See `TableChain`."""
        return list(table.metadata().partition_columns)

    def columns(self, table: Any) -> pa.Schema:
        """See `TableChain`."""
        given = pa.schema(table.schema().to_arrow())
        there = set(self.partitions(table))
        return pa.schema([field for field in given if field.name not in there])

    def versions(self) -> Iterator[Version]:
        """See `TableChain`."""
        before: dict[str, int] = {}
        for version in range(self._length()):
            info = self._info_at(version)
            found = _manifest_in(info)
            made_ms = info.get("timestamp", 0)
            if found is None:
                kind = "widen" if WIDENED in info else str(info.get("operation", "unknown")).lower()
                yield Version(str(version), made_ms, kind, 0, {})
                continue
            rows = sum(entry.rows for entry in found.added)
            yield Version(str(version), made_ms, found.kind, rows, seqs_of(found, before))
            before |= found.end

    # -- writing -----------------------------------------------------------------------------------------------------

    def made(self) -> Any:
        """See `TableChain`."""
        assert self.schema is not None
        kinds = [pa.field(name, _KINDS[name]) for name in partition_columns(self.parts)]
        with contextlib.suppress(self._error):  # another exporter may have created it
            self._api.DeltaTable.create(
                self.uri,
                schema=self._api.Schema.from_arrow(pa.schema([*self.schema, *kinds])),
                partition_by=partition_columns(self.parts),
                name=self.topic,
                configuration=_CONFIGURATION,
                storage_options=self._storage,
                commit_properties=self._api.CommitProperties(max_commit_retries=0),
            )
        table = self.table()
        if table is None:
            raise StoreRefused(f"The Delta table {self.uri} cannot be created.")
        self.store.sync(self._key(0))
        return table

    def fit(self, table: Any, *, change: bool) -> bool:
        """See `TableChain`. A type is widened by `widen` alone, because that writes every file again."""
        if self.schema is None:
            return False
        found = changes(self.uri, self.columns(table), self.schema)
        if found.widened:
            raise BadOption(
                f"The column {found.widened[0].name} of the Delta table {self.uri} would become "
                f"{type_named(found.widened[0].type)}: first run `widen` with the same --value-schema. It writes all "
                "files of the table again. Or give the column its earlier type."
            )
        if not found.added or not change:
            return False
        fields = self._api.Schema.from_arrow(pa.schema(found.added)).fields
        try:
            table.alter.add_columns(fields, commit_properties=self._api.CommitProperties(max_commit_retries=0))
        except self._error as error:
            self.refusal = error  # another exporter may have added them: the table is read again
        self.store.sync(self._key(table.version()))
        return True

    def commit(self, table: Any, manifest: Manifest, last: Manifest | None) -> Exception | None:
        """See `TableChain`."""
        from deltalake.transaction import AddAction, CommitProperties, PostCommitHookProperties, Transaction

        adds = [
            AddAction(
                path=entry.file.removeprefix(self.folder + "/"),
                size=entry.bytes,
                partition_values=partition_values(entry),
                modification_time=manifest.created_ms,
                data_change=True,
                stats=entry.stats,
            )
            for entry in manifest.added
        ]
        # The statistics are in the table once.
        added = [msgspec.structs.replace(entry, stats="") for entry in manifest.added]
        properties = CommitProperties(
            custom_metadata={MANIFEST: msgspec.to_builtins(msgspec.structs.replace(manifest, added=added))},
            max_commit_retries=0,
            app_transactions=[Transaction(_application(manifest, at), end) for at, end in manifest.end.items()],
        )
        version = table.version() + 1
        try:
            table.create_write_transaction(
                adds,
                mode="append",
                schema=table.schema(),
                partition_by=self.partitions(table),
                commit_properties=properties,
                post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=False),
            )
            self.store.sync(self._key(version))
        except Exception as error:
            return error
        return None

    def optimize(self, folder: str, target_bytes: int) -> tuple[int, int]:
        """Delta's OPTIMIZE, of one `date=…` or all: the numbers of files that were removed and added.

        Raises StoreRefused if another commit rewrites the same files.
        """
        from deltalake.transaction import CommitProperties, PostCommitHookProperties
        from deltalake.writer import WriterProperties

        table = self.table()
        if table is None:
            raise BadOption(f"{self.topic} is not exported there.")
        try:
            found = table.optimize.compact(
                partition_filters=[("date", "=", folder.removeprefix("date="))] if folder else None,
                target_size=target_bytes,
                writer_properties=WriterProperties(compression="ZSTD"),
                post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=False),
                commit_properties=CommitProperties(max_commit_retries=_OPTIMIZE_TRIES),
            )
        except self._error as error:
            raise StoreRefused(
                f"The Delta table {self.uri} cannot be compacted ({type(error).__name__}): nothing has changed. Run "
                "compact again."
            ) from error
        self.store.sync(self._key(table.version()))
        return found["numFilesRemoved"], found["numFilesAdded"]

    def vacuum(self, retain_s: float) -> int:
        """Delta's VACUUM, with files that no commit names: the number of removed files."""
        table = self.table()
        if table is None:
            return 0
        hours = int(retain_s // 3600)
        return len(
            self._asking(
                lambda: table.vacuum(retention_hours=hours, dry_run=False, enforce_retention_duration=False, full=True)
            )
        )

    def widen(self, values: Sequence[pa.Field], progress: Callable[[int, int], None]) -> tuple[int, int]:
        """Give columns the wider types of `values`: the numbers of files and records that were written again.

        Every file is written again, with one row group in memory, and one commit replaces all. Killed before it, the
        table is as it was, and `vacuum` removes the new files. Files that another run commits meanwhile are written
        again, too. Columns that the table lacks are left to the next export. `progress` hears how many files of how
        many are written. Raises BadOption if a type cannot change, and StoreRefused if another tool has given the
        table features that are not known here, or other commits are always faster.
        """
        done: dict[str, _Rewritten] = {}
        failed: Exception | None = None
        for attempt in range(_TRIES):
            table = self.table()
            if table is None:
                raise BadOption(f"{self.topic} is not exported there.")
            self._refuse_features(table)
            wider = {field.name: field.type for field in widened(self.uri, self.columns(table), values)}
            if not wider:  # a commit whose answer was lost is found here, too
                return len(done), sum(each.rows for each in done.values())
            given = pa.schema(table.schema().to_arrow())
            whole = pa.schema([field.with_type(wider.get(field.name, field.type)) for field in given])
            keys = set(self.partitions(table))
            columns = pa.schema([field for field in whole if field.name not in keys])
            files = self._partition_values(table)
            done = {path: found for path, found in done.items() if path in files}
            for path, parts in files.items():
                if path not in done:
                    done[path] = self._write_again(path, parts, columns)
                    progress(len(done), len(files))
            # A `vacuum` with a short --retain takes files for those of a killed run if this one is at work for so long.
            gone = [path for path, each in done.items() if self.store.size(each.key) != each.size]
            if gone:
                done = {path: each for path, each in done.items() if path not in gone}
                continue
            failed = self._replace(table, [each.action for each in done.values()], whole, wider)
            if failed is None:
                return len(done), sum(each.rows for each in done.values())
            time.sleep(_PAUSE_S * attempt)
        raise StoreRefused(
            f"The Delta table {self.uri} accepts no commit ({type(failed).__name__}): other writers are always faster, "
            "or the store refuses. The table is as it was. Run widen again when fewer exports run."
        ) from failed

    # -- steps -------------------------------------------------------------------------------------------------------

    def _refuse_features(self, table: Any) -> None:
        """Refuse tables whose files do not contain their rows as they are: columns with other names, deleted rows."""
        protocol = self._asking(table.protocol)
        unknown = set(protocol.reader_features or ()) - _HARMLESS
        if unknown or protocol.min_reader_version == _WITH_MAPPED_NAMES:
            raise StoreRefused(
                f"The Delta table {self.uri} has features that another tool has switched on "
                f"({', '.join(sorted(unknown)) or 'columnMapping'}): widen its columns with that tool."
            )

    def _partition_values(self, table: Any) -> dict[str, dict[str, str | None]]:
        """The partition values of each file that counts, as commits name them."""
        found = pa.table(self._asking(table.get_add_actions, True))
        keys = self.partitions(table)
        columns = [found.column(f"partition.{key}").to_pylist() for key in keys]
        texts = ([value.isoformat() if isinstance(value, date) else value for value in each] for each in columns)
        values = [[None if value is None else str(value) for value in each] for each in texts]
        paths = map(unquote, found.column("path").to_pylist())
        return {path: {key: each[at] for key, each in zip(keys, values, strict=True)} for at, path in enumerate(paths)}

    def _write_again(self, path: str, parts: dict[str, str | None], columns: pa.Schema) -> _Rewritten:
        """Write a file of the table again, with these columns. It counts when it is committed."""
        from deltalake.transaction import AddAction

        # Named as Delta's OPTIMIZE names its files: a file with the name of an export is a stray if no manifest has it.
        folder = "/".join(f"{name}={value or '':0>2}" for name, value in parts.items() if name != "tag")
        if "tag" in parts:
            folder += table_tag_folder(parts["tag"] or "")
        new = f"{folder}/part-00000-{uuid.uuid4()}-c000.zstd.parquet"
        key = f"{self.folder}/{new}"
        rows, bounds = 0, ColumnBounds(columns)
        with self.store.local(f"{self.folder}/{path}") as source, pq.ParquetFile(source) as file:
            with self.store.writing(key) as target:
                sink = ParquetSink(target, columns, self.parts.compression)
                for group in range(file.num_row_groups):
                    batches = [with_columns(batch, columns) for batch in file.read_row_group(group).to_batches()]
                    written = pa.Table.from_batches(batches, columns)
                    sink.write(written)
                    bounds.add(written)
                    rows += len(written)
                sink.close()
            if rows != file.metadata.num_rows:
                raise ManifestDamaged(f"{path} of the Delta table {self.uri} does not have the rows that it declares.")
        size = self.store.size(key)
        if size is None:
            raise StoreRefused(f"{key} has disappeared: another job removes files of the table.")
        action = AddAction(
            path=new,
            size=size,
            partition_values=parts,
            modification_time=time.time_ns() // 1_000_000,
            data_change=False,
            stats=bounds.stats(),
        )
        return _Rewritten(action, rows, key, size)

    def _replace(self, table: Any, adds: list[Any], columns: pa.Schema, wider: dict[str, pa.DataType]) -> Any:
        """Commit other files with other columns to exactly that state of the table. Returns an error."""
        from deltalake.transaction import CommitProperties, PostCommitHookProperties

        version = table.version() + 1
        try:
            table.create_write_transaction(
                adds,
                mode="overwrite",
                schema=self._api.Schema.from_arrow(columns),
                partition_by=self.partitions(table),
                commit_properties=CommitProperties(
                    custom_metadata={WIDENED: {name: str(kind) for name, kind in wider.items()}},
                    max_commit_retries=0,
                ),
                post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=False),
            )
            self.store.sync(self._key(version))
        except self._error as error:
            return error
        return None

    def _asking(self, ask: Any, *arguments: Any) -> Any:
        try:
            return ask(*arguments)
        except self._error as error:
            raise StoreRefused(f"The Delta table {self.uri} cannot be read: {why(self.store, error)}.") from error

    def _length(self) -> int:
        table = self.table()
        return 0 if table is None else table.version() + 1

    def _key(self, version: int) -> str:
        return f"{self.folder}/_delta_log/{version:020d}.json"

    def _manifest_at(self, version: int) -> Manifest | None:
        """The manifest in the commit of that version; None: another tool made it."""
        try:
            return _manifest_in(self._info_at(version))
        except msgspec.ValidationError as error:
            raise ManifestDamaged(f"{self._key(version)} cannot be read: {error}. Restore it.") from error

    def _info_at(self, version: int) -> dict[str, Any]:
        # Not with deltalake's history: it blocks all threads of the process while it waits for the store.
        key = self._key(version)
        data = self.store.read(key)
        if data is None:
            raise ManifestDamaged(f"{key} is missing. Restore it: without it, the exported seqs are unknown.")
        try:
            infos = [found.info for line in data.splitlines() if (found := _commit.decode(line)).info]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ManifestDamaged(f"{key} cannot be read: {error}. Restore it.") from error
        return infos[0] if infos else {}


_OPTIMIZE_TRIES = 15
_TRIES = 20
_PAUSE_S = 0.02
#: The version of readers that reads files by other names of columns. Later ones have a list of features.
_WITH_MAPPED_NAMES = 2


class _Rewritten(NamedTuple):
    """A file that `widen` has written."""

    action: Any
    rows: int
    key: str
    size: int


def storage_options(url: str) -> dict[str, str] | None:
    """What the library needs beside the environment to reach a store."""
    if url.startswith("s3://"):
        return {"AWS_ALLOW_HTTP": "true", "AWS_CONDITIONAL_PUT": "etag"}
    return {"allow_http": "true"} if "://" in url else None


def partition_values(entry: FileEntry) -> dict[str, str | None]:
    """The partition values of a file: date and hour are in its name. An hour is a number. Pure."""
    pairs = (part.partition("=") for part in entry.file.split("/")[1:-1])
    found: dict[str, str | None] = {name: str(int(value)) if name == "hour" else value for name, _, value in pairs}
    return found if entry.tag is None else found | {"tag": entry.tag or None}


def _manifest_in(info: dict[str, Any]) -> Manifest | None:
    return msgspec.convert(info[MANIFEST], type=Manifest) if MANIFEST in info else None


def _application(manifest: Manifest, partition: str) -> str:
    topic = f"{manifest.cluster_id}/{manifest.topic}"
    return topic if partition == "0" else f"{topic}/{partition}"
