"""Writes batches of records to files, one for each date (and hour, and tag), and describes each. Runs in a task."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import math
import uuid
from base64 import b64encode
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from decimal import Decimal
from itertools import groupby, pairwise
from typing import IO, Any, NamedTuple, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.errors import BadOption
from pipeline.export import names
from pipeline.export.column_bounds import ColumnBounds
from pipeline.export.manifest import FileEntry
from pipeline.export.marks import table_folder
from pipeline.export.part_settings import DELTA, ICEBERG, JSON, TABLES, PartSettings
from pipeline.export.store import Store

_DAY_MS, _HOUR_MS = 86_400_000, 3_600_000
#: Columns with repeated values. (pyarrow's types allow only a flag, but it accepts names, too.)
_DICTIONARIES: Any = ["topic", "node", "key", "partition", "timestampType"]
#: Rows of a row group, which is in memory until it is written.
GROUP_ROWS = 1 << 18
GROUP_BYTES = 64 << 20
#: The most tags of one date (or hour) in a task of an export that is partitioned by tag: each is an open file.
TAGS = 256
#: The column that files have if a table is partitioned by tag: Iceberg takes the values of partitions from columns.
TAG_FIELD = pa.field("tag", pa.string())
_TAG_BYTES = 256


class _Sink(Protocol):
    def write(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


class _Hashing(io.RawIOBase):
    """Writes to a file, and computes the size and the sha256."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.size = 0
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        self._file.write(view)
        self.digest.update(view)
        self.size += len(view)
        return len(view)

    def tell(self) -> int:
        return self.size


class ParquetSink:
    """Writes a Parquet file, each table as a row group."""

    def __init__(self, file: IO[bytes] | io.RawIOBase, schema: pa.Schema, compression: str) -> None:
        # us becomes TIMESTAMP_MICROS; the time zone in the schema makes it UTC.
        self._writer = pq.ParquetWriter(
            pa.PythonFile(file, mode="w"), schema, compression=compression, use_dictionary=_DICTIONARIES
        )

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=len(table))

    def close(self) -> None:
        self._writer.close()


class _Json:
    """JSON lines, gzipped. Keys, values and headers that are not text are {"$base64": …}."""

    def __init__(self, file: _Hashing) -> None:
        self._file = gzip.GzipFile(fileobj=cast("IO[bytes]", file), mode="wb", compresslevel=3, mtime=0)

    def write(self, table: pa.Table) -> None:
        for row in table.to_pylist(maps_as_pydicts="strict"):
            row["timestamp"] = row["timestamp"].isoformat()
            try:
                text = _dumped(row)
            except ValueError:  # JSON has no number that is not finite
                text = _dumped({name: _finite(value) for name, value in row.items()})
            self._file.write(text.encode() + b"\n")

    def close(self) -> None:
        self._file.close()


def _dumped(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, allow_nan=False, default=_as_text, separators=(",", ":"))


def _finite(value: Any) -> Any:
    """The value with names for numbers that are not finite, as valueSchema reads them."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in cast("dict[str, Any]", value).items()}
    return [_finite(each) for each in cast("list[Any]", value)] if isinstance(value, list) else value


def _as_text(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)  # as a number it would lose digits in most readers
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        return {"$base64": b64encode(value).decode()}


class _Part:
    """A file that is being written: records of one date, in seq order. It is valid when a manifest names it."""

    def __init__(self, writer: PartWriter, slot: Slot, schema: pa.Schema) -> None:
        self._tag = slot.tag
        self._schema = schema
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0
        self._rows = 0
        self._first: tuple[int, int] | None = None
        self._last = (0, 0)
        self._stack = contextlib.ExitStack()
        # The name contains the requested range. The manifest lists the actual records.
        self._key = writer.key(slot.folder)
        self._file = _Hashing(self._stack.enter_context(writer.store.writing(writer.staged(self._key))))
        settings = writer.settings
        #: Iceberg's library takes them from the file, and readers of plain files do, too.
        self._bounds = ColumnBounds(schema) if settings.kind == DELTA else None
        self._sink: _Sink = (
            _Json(self._file) if settings.kind == JSON else ParquetSink(self._file, schema, settings.compression)
        )

    def add(self, batch: pa.RecordBatch) -> None:
        seqs, stamps = batch.column("seq"), batch.column("timestamp")
        if self._first is None:
            self._first = (seqs[0].as_py(), _ms(stamps, 0))
        self._last = (seqs[-1].as_py(), _ms(stamps, -1))
        self._held.append(batch)
        self._held_rows += len(batch)
        self._held_bytes += batch.nbytes
        if self._held_rows >= GROUP_ROWS or self._held_bytes >= GROUP_BYTES:
            self.flush()

    @property
    def held_bytes(self) -> int:
        """The bytes of the batches in memory."""
        return self._held_bytes

    def flush(self) -> None:
        """Write the batches in memory as a row group."""
        if self._held:
            rows = pa.Table.from_batches(self._held, self._schema)
            self._sink.write(rows)
            if self._bounds is not None:
                self._bounds.add(rows)
            self._rows += self._held_rows
            self._held, self._held_rows, self._held_bytes = [], 0, 0

    def finish(self, partition: int) -> FileEntry:
        """Complete the file. It is durable on return, under its staged name."""
        self.flush()
        self._sink.close()
        self._stack.close()
        assert self._first is not None
        return FileEntry(
            file=self._key,
            partition=partition,
            rows=self._rows,
            bytes=self._file.size,
            min_seq=self._first[0],
            max_seq=self._last[0],
            min_ts=self._first[1],
            max_ts=self._last[1],
            sha256=self._file.digest.hexdigest(),
            tag=self._tag,
            stats="" if self._bounds is None else self._bounds.stats(),
        )

    def give_up(self, error: BaseException) -> None:
        """Abandon the file. The collection removes it."""
        self._stack.__exit__(type(error), error, error.__traceback__)


def _ms(stamps: pa.Array, index: int) -> int:
    return cast("int", stamps[index].value) // 1000


class PartWriter:
    """Writes the files of one range of a partition: seqs start <= seq < end of an epoch."""

    def __init__(
        self, store: Store, settings: PartSettings, topic: str, partition: int, start: int, end: int, epoch: int
    ) -> None:
        self.store = store
        self.settings = settings
        self._topic = topic
        self._home = table_folder(store, topic) if settings.kind in TABLES else names.component(topic)
        self._partition = partition
        self._range = (start, end)
        self._epoch = epoch

    def key(self, folder: str) -> str:
        """A unique name."""
        start, end = self._range
        attempt = uuid.uuid4().hex[:8]
        return names.part(self._home, folder, self._partition, start, end, self._epoch, attempt, self.settings.kind)

    def staged(self, key: str) -> str:
        """The name of a file before it is valid."""
        return names.staged(self._topic, key)

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[FileEntry]:
        """Write the batches. Yields each file when it is complete. Times must not decrease."""
        settings = self.settings
        now, parts = "", dict[Slot, _Part]()
        try:
            for batch in batches:
                for folder, inside in groupby(by_slot(batch, settings), key=_time_of):
                    if folder != now:
                        yield from self._finished(parts)
                        now = folder
                    for slot, piece in inside:
                        self._part(parts, slot, piece.schema).add(piece)
                        self._relieve(parts)
            yield from self._finished(parts)
        except BaseException as error:
            for part in parts.values():
                with contextlib.suppress(Exception):
                    part.give_up(error)
            raise

    def _part(self, parts: dict[Slot, _Part], slot: Slot, schema: pa.Schema) -> _Part:
        found = parts.get(slot)
        if found is None:
            if len(parts) == TAGS:
                raise BadOption(
                    f"{self._topic} has more than {TAGS} tags in {slot.folder_of_time}: leave `tag` out of "
                    "--partition-by. Readers find the tag in the column `key`."
                )
            found = parts[slot] = _Part(self, slot, schema)
        return found

    def _relieve(self, parts: dict[Slot, _Part]) -> None:
        """Write what is in memory if all files together have too much of it."""
        if len(parts) > 1 and sum(part.held_bytes for part in parts.values()) >= GROUP_BYTES:
            for part in parts.values():
                part.flush()

    def _finished(self, parts: dict[Slot, _Part]) -> Iterator[FileEntry]:
        while parts:
            slot = next(iter(parts))
            done = parts[slot].finish(self._partition)
            del parts[slot]
            yield done


class Slot(NamedTuple):
    """What the records of a file have in common. `tag`: as in `FileEntry`."""

    folder_of_time: str
    folder: str
    tag: str | None


def _time_of(piece: tuple[Slot, pa.RecordBatch]) -> str:
    return piece[0].folder_of_time


def by_slot(batch: pa.RecordBatch, settings: PartSettings) -> Iterator[tuple[Slot, pa.RecordBatch]]:
    """Split a batch by time, and by tag if the files are partitioned by it. Pure."""
    for folder, piece in by_folder(batch, settings.hourly):
        if not settings.tagged:
            yield Slot(folder, folder, None), piece
            continue
        for tag, mine in by_tag(piece):
            if settings.kind == ICEBERG:
                column = pa.array([tag or None], TAG_FIELD.type).take(pa.array(np.zeros(len(mine), np.int8)))
                mine = mine.append_column(TAG_FIELD, column)
            yield Slot(folder, f"{folder}{_tag_folder(tag, settings.kind)}", tag), mine


def _tag_folder(tag: str, kind: str) -> str:
    """The folder of a tag in that of its time, with a slash before it; "": it has none."""
    if kind == ICEBERG:
        return ""  # the tag is a column of the files
    # Readers of files find the tag only here, and so do some of Delta tables (polars), against the protocol.
    return names.table_tag_folder(tag) if kind == DELTA else f"/{names.tag_folder(tag)}"


def by_tag(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The records of each tag, in seq order. "": no tag, or a key that cannot be one. Pure."""
    encoded = cast("pa.DictionaryArray", batch.column("key").dictionary_encode())
    tags = [_tag(key) for key in encoded.dictionary.to_pylist()]
    codes = {tag: code for code, tag in enumerate(dict.fromkeys(["", *tags]))}
    of_key = np.array([codes[tag] for tag in tags], np.int64)
    indices = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    found = np.where(indices < 0, 0, of_key[indices] if len(of_key) else 0)
    for tag, code in codes.items():
        mine = np.flatnonzero(found == code)
        if len(mine):
            yield tag, batch if len(mine) == len(batch) else batch.take(pa.array(mine))


def _tag(key: bytes) -> str:
    """The key as a tag; "": it is none, as with some keys of Kafka clients."""
    try:
        return key.decode() if len(key) <= _TAG_BYTES else ""
    except UnicodeDecodeError:
        return ""


def by_folder(batch: pa.RecordBatch, hourly: bool) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split a batch by folder. Times never decrease within a log."""
    stamps = pc.cast(batch.column("timestamp"), pa.int64()).to_numpy() // 1000
    slots = stamps // (_HOUR_MS if hourly else _DAY_MS)
    borders = [0, *(np.flatnonzero(np.diff(slots)) + 1).tolist(), len(batch)]
    for begin, end in pairwise(borders):
        if begin < end:
            yield names.partition_folder(int(stamps[begin]), hourly), batch.slice(begin, end - begin)
