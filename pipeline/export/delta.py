"""A Delta table for each topic (`--format delta`). Its log is the chain; there are no other manifests.

    <to>/<topic>/_delta_log/<version>.json    a commit: the added files; the manifest, in commitInfo; and a transaction
                                              of the application `<cluster id>/<topic>` (partitions above 0:
                                              `/<partition>` appended) with `end` as its version
    _topics/<topic>/delta.json                marks this export as a Delta table

The commit is the bookmark. Delta accepts a repeated version of an application, and its writer would retry a lost race
by itself. So a commit is made for exactly the version of the table that was read, and never retried blindly: if another
commit came in between, the log shows whose it was. Other tools may rewrite files (OPTIMIZE) and remove old ones
(VACUUM): their commits have no manifest, and commits of exports follow them.

Source: docs/guides/spark.md#exporting.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import msgspec

from pipeline.errors import BadOption, ManifestDamaged, StoreRefused
from pipeline.export import names
from pipeline.export.manifest import Chain, FileEntry, Manifest, files_of
from pipeline.export.store import Store
from pipeline.schema import arrow_schema

MANIFEST = "topicsManifest"
_TRIES = 20
#: Commits must stay: the newest one of an export is searched among them.
_CONFIGURATION = {"delta.enableExpiredLogCleanup": "false"}


class _Action(msgspec.Struct):
    """A line of a commit. Only commitInfo matters here."""

    info: dict[str, Any] | None = msgspec.field(name="commitInfo", default=None)


_commit = msgspec.json.Decoder(_Action)


class DeltaChain(Chain):
    """The manifests in a table's log. `headers` and `hourly` are for a new table."""

    visible_first = True

    def __init__(self, store: Store, topic: str, *, headers: bool = False, hourly: bool = False) -> None:
        super().__init__(store, topic)
        try:
            import deltalake
            from deltalake.exceptions import DeltaError, TableNotFoundError
        except ImportError as error:
            raise StoreRefused("--format delta needs the extra `delta`: pip install 'topics-broker[delta]'") from error
        self._api: Any = deltalake
        self._error: type[Exception] = DeltaError
        self._absent: type[Exception] = TableNotFoundError
        self._headers = headers
        self._hourly = hourly
        self.folder = names.delta_component(topic)
        self._uri = f"{store.url}/{self.folder}"
        self._storage = {"AWS_ALLOW_HTTP": "true", "AWS_CONDITIONAL_PUT": "etag"} if "://" in store.url else None

    # -- reading -----------------------------------------------------------------------------------------------------

    def numbers(self) -> list[int]:
        """The numbers of the manifests. Raises ManifestDamaged if one in between is missing."""
        found = [each.number for each in self.all()]
        if found != list(range(1, len(found) + 1)):
            raise ManifestDamaged(
                f"The commits of {self.topic} have manifests {found[:5]}…, not 1, 2, 3, …: restore them."
            )
        return found

    def newest(self) -> Manifest | None:
        """The last manifest; None: there is none. Raises ManifestDamaged if it contradicts the table."""
        table = self._table()
        return None if table is None else self._newest_of(table)

    def load(self, number: int) -> Manifest:
        """Raises ManifestDamaged."""
        for each in self.all():
            if each.number == number:
                return each
        raise ManifestDamaged(f"No commit of {self.topic} has manifest {number}. Restore it.")

    def all(self) -> Iterator[Manifest]:
        """All manifests in order."""
        table = self._table()
        for version in range(0 if table is None else table.version() + 1):
            found = self._manifest_at(version)
            if found is not None:
                yield found

    def files(self) -> list[FileEntry]:
        """The valid files. Raises BadOption if another tool has written some."""
        table = self._table()
        if table is None:
            return []
        ours = {entry.file: entry for entry in files_of(self.all())}
        counting = {f"{self.folder}/{path}" for path, _ in self._active(table)}
        if counting != ours.keys():
            raise BadOption(
                f"Another tool has rewritten files of the Delta table {self._uri}: read it as a table, not by files."
            )
        return sorted(ours.values(), key=lambda entry: (entry.partition, entry.min_seq, entry.file))

    def counts(self) -> tuple[int, int]:
        """The numbers of valid files and records, whatever tool wrote them."""
        table = self._table()
        active = [] if table is None else self._active(table)
        return len(active), sum(rows for _, rows in active)

    def referenced(self) -> set[str]:
        """Files that are not strays. VACUUM removes those that a commit has added."""
        return {entry.file for each in self.all() for entry in each.added}

    # -- writing -----------------------------------------------------------------------------------------------------

    def put(self, manifest: Manifest) -> bool:
        """Commit a manifest's files. False: another run was first. Durable on return."""
        for _ in range(_TRIES):
            table = self._table() or self._made()
            self._fits(table)
            last = self._newest_of(table)
            if last is not None and last.number >= manifest.number:
                # This also covers a commit whose answer was lost: the log shows whose it is.
                return self.load(manifest.number).run == manifest.run
            failed = self._commit(table, manifest)
            if failed is None:
                return True
        raise StoreRefused(f"The Delta table {self._uri} accepts no commit: other writers are always faster.")

    def check(self) -> None:
        """Raises BadOption if the existing table has other columns."""
        if (table := self._table()) is not None:
            self._fits(table)

    def _commit(self, table: Any, manifest: Manifest) -> Exception | None:
        from deltalake.transaction import AddAction, CommitProperties, PostCommitHookProperties, Transaction

        adds = [
            AddAction(
                path=entry.file.removeprefix(self.folder + "/"),
                size=entry.bytes,
                partition_values=_partition_values(entry.file),
                modification_time=manifest.created_ms,
                data_change=True,
                stats=_stats(entry),
            )
            for entry in manifest.added
        ]
        properties = CommitProperties(
            custom_metadata={MANIFEST: msgspec.to_builtins(manifest)},
            max_commit_retries=0,
            app_transactions=[Transaction(_application(manifest, at), end) for at, end in manifest.end.items()],
        )
        try:
            table.create_write_transaction(
                adds,
                mode="append",
                schema=table.schema(),
                partition_by=list(table.metadata().partition_columns),
                commit_properties=properties,
                post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=False),
            )
        except Exception as error:  # whatever the error is, the log shows whether the commit exists
            return error
        return None

    def _made(self) -> Any:
        with contextlib.suppress(self._error):  # another exporter may have created it
            self._api.DeltaTable.create(
                self._uri,
                schema=self._api.Schema.from_arrow(self._schema()),
                partition_by=self._partitions(),
                name=self.topic,
                configuration=_CONFIGURATION,
                storage_options=self._storage,
                commit_properties=self._api.CommitProperties(max_commit_retries=0),
            )
        table = self._table()
        if table is None:
            raise StoreRefused(f"The Delta table {self._uri} cannot be created.")
        return table

    def _fits(self, table: Any) -> None:
        given = table.metadata().partition_columns
        if list(given) != self._partitions():
            raise BadOption(f"{self._uri} is partitioned by {','.join(given)}: export it with the same --partition-by.")
        names_there = {field.name for field in table.schema().fields}
        if names_there != set(self._schema().names):
            raise BadOption(f"{self._uri} has other columns: use --headers as in earlier exports.")

    # -- steps -------------------------------------------------------------------------------------------------------

    def _table(self) -> Any | None:
        try:
            return self._api.DeltaTable(self._uri, storage_options=self._storage)
        except self._absent:
            return None
        except self._error as error:
            raise StoreRefused(f"The Delta table {self._uri} cannot be opened: {type(error).__name__}.") from error

    def _asking(self, ask: Any, *arguments: Any) -> Any:
        try:
            return ask(*arguments)
        except self._error as error:
            raise StoreRefused(f"The Delta table {self._uri} cannot be read: {type(error).__name__}.") from error

    def _newest_of(self, table: Any) -> Manifest | None:
        for version in range(table.version(), -1, -1):
            found = self._manifest_at(version)
            if found is not None:
                for partition, end in found.end.items():
                    at = self._asking(table.transaction_version, _application(found, partition))
                    if at != end:
                        raise ManifestDamaged(
                            f"Manifest {found.number} in {self._uri} ends before seq {end} of partition {partition}, "
                            f"but the table's transaction says {at}: the log was changed, or restored from an "
                            "older table."
                        )
                return found
        return None

    def _manifest_at(self, version: int) -> Manifest | None:
        """The manifest in the commit of that version; None: another tool made it."""
        # Not with deltalake's history: it blocks all threads of the process while it waits for the store.
        key = f"{self.folder}/_delta_log/{version:020d}.json"
        data = self.store.read(key)
        if data is None:
            raise ManifestDamaged(f"{key} is missing. Restore it: without it, the exported seqs are unknown.")
        try:
            infos = [found.info for line in data.splitlines() if (found := _commit.decode(line)).info]
            manifests = [info[MANIFEST] for info in infos if MANIFEST in info]
            return msgspec.convert(manifests[0], type=Manifest) if manifests else None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ManifestDamaged(f"{key} cannot be read: {error}. Restore it.") from error

    def _active(self, table: Any) -> list[tuple[str, int]]:
        import pyarrow as pa

        found = pa.table(self._asking(table.get_add_actions))
        return list(zip(found.column("path").to_pylist(), found.column("num_records").to_pylist(), strict=True))

    def _partitions(self) -> list[str]:
        return ["date", "hour"] if self._hourly else ["date"]

    def _schema(self) -> Any:
        import pyarrow as pa

        kinds = {"date": pa.date32(), "hour": pa.int32()}
        found = arrow_schema(headers=self._headers)
        for name in self._partitions():
            found = found.append(pa.field(name, kinds[name]))
        return found


def _application(manifest: Manifest, partition: str) -> str:
    topic = f"{manifest.cluster_id}/{manifest.topic}"
    return topic if partition == "0" else f"{topic}/{partition}"


def _partition_values(file: str) -> dict[str, str | None]:
    """The partition values in the folders of a file's name. An hour is a number."""
    pairs = (part.partition("=") for part in file.split("/")[1:-1])
    return {name: str(int(value)) if name == "hour" else value for name, _, value in pairs}


def _stats(entry: FileEntry) -> str:
    first, last = entry.min_seq, entry.max_seq
    return json.dumps(
        {
            "numRecords": entry.rows,
            "minValues": {"seq": first, "offset": first - 1},
            "maxValues": {"seq": last, "offset": last - 1},
        }
    )
