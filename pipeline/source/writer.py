"""Writes: rows to a topic, in appends whose idempotency keys say which rows they are.

A key is made of the query or job, the batch, the partition and the chunk, so a task that is tried again appends the
same rows with the same keys, and the broker stores them once. That holds for rows that come in the same order again,
and as long as the topic remembers keys: hence its idempotency_window_ms must be a day at least, unless told.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from client import Client, NewRecord, RetryPolicy, TopicNotFound, TopicsError
from pipeline.errors import BadOption, SourceUnreadable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

DAY_MS = 86_400_000
_CHUNK_RECORDS = 1000
_CHUNK_BYTES = 4 << 20
_COLUMNS = {"key", "value", "topic", "node", "meta"}
_PASSED_OVER = {"partition", "offset", "timestamp", "timestampType", "headers", "seq"}


class Target:
    """Where rows go, from the options of the write."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        given = {name.lower(): str(value) for name, value in options.items()}
        self.url = given.get("url") or given.get("kafka.bootstrap.servers", "").split(",")[0].strip()
        self.token = given.get("token")
        self.topic = given.get("topic", "")
        self.any_window = given.get("allowshortidempotencywindow", "false").lower() == "true"
        names = set(schema.names)
        if not self.url:
            raise BadOption("Say where to write: url (or kafka.bootstrap.servers).")
        if "value" not in names:
            raise BadOption("There is no column value: JSON text, for example to_json(struct('*')) AS value.")
        if not self.topic and "topic" not in names:
            raise BadOption("Say which topic: the option topic, or a column topic.")
        if strangers := names - _COLUMNS - _PASSED_OVER:
            raise BadOption(f"Columns {', '.join(sorted(strangers))} would be lost: put them into value with to_json.")

    def check(self) -> None:
        """In the driver, before anything is written: that a retried task can be told from a new one."""
        if not self.topic:
            return
        with Client(self.url, token=self.token) as client:
            self.check_window(client, self.topic)

    def check_window(self, client: Client, topic: str) -> None:
        """Makes the topic where it is missing. Raises BadOption, SourceUnreadable."""
        try:
            window_ms = int(client.state(topic, touch=False).config["idempotency_window_ms"])
        except TopicNotFound:
            window_ms = int(client.put_topic(topic, idempotency_window_ms=DAY_MS).config["idempotency_window_ms"])
        except TopicsError as error:
            raise SourceUnreadable(f"Cannot write to {topic} at {self.url}: {error}") from error
        if window_ms < DAY_MS and not self.any_window:
            raise BadOption(
                f"{topic} remembers idempotency keys for {window_ms} ms. A task that is tried again later would write "
                f"its rows twice: set idempotency_window_ms to {DAY_MS} or more, or allowShortIdempotencyWindow=true."
            )


class _Written(WriterCommitMessage):
    def __init__(self, records: int) -> None:
        self.records = records


def append_all(target: Target, batches: Iterator[pa.RecordBatch], key: str) -> int:
    """Append every row; how many there were. Chunks depend on the rows and their order alone."""
    records, chunk_number = 0, 0
    checked: set[str] = {target.topic}
    with Client(target.url, token=target.token, retry=RetryPolicy(total_s=100.0)) as client:
        for topic, chunk in _chunks(target, batches):
            if topic not in checked:
                target.check_window(client, topic)
                checked.add(topic)
            try:
                client.append(topic, chunk, idempotency_key=f"{key}-{chunk_number}")
            except TopicsError as error:
                raise SourceUnreadable(
                    f"Cannot append to {topic} at {target.url}: {error} Of this task {records} rows are written; "
                    "trying it again writes none of them twice."
                ) from error
            records += len(chunk)
            chunk_number += 1
    return records


def _chunks(target: Target, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, list[NewRecord]]]:
    chunk: list[NewRecord] = []
    topic, size = "", 0
    for batch in batches:
        for row in cast("list[dict[str, Any]]", batch.to_pylist()):
            named = target.topic or row["topic"]
            record = _record(row)
            if chunk and (named != topic or len(chunk) >= _CHUNK_RECORDS or size >= _CHUNK_BYTES):
                yield topic, chunk
                chunk, size = [], 0
            topic = named
            chunk.append(record)
            size += len(record.data)
    if chunk:
        yield topic, chunk


def _record(row: dict[str, Any]) -> NewRecord:
    value, key, meta = row["value"], row.get("key"), row.get("meta")
    if value is None:
        raise BadOption("A value is null: a record has data, if only the JSON text null.")
    data = value.encode() if isinstance(value, str) else bytes(value)
    tag = key.decode() if isinstance(key, bytes | bytearray) else key
    return NewRecord(data=data, tag=tag, node=row.get("node"), meta=meta.encode() if meta is not None else None)


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("topics")`. Appends only. What an aborted write has appended stays."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise BadOption("Topics are appended to: use mode('append').")
        self._target = Target(options, schema)
        self._target.check()
        self._job = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        return _Written(append_all(self._target, iterator, f"spark-{self._job}-{partition}"))


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("topics")`: a batch that is run again after a crash adds nothing."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._target = Target(options, schema)
        self._target.check()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None, "a stream is written by tasks"
        query, batch = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
        if not query or batch is None:
            raise SourceUnreadable("Spark does not tell the task which query and batch it is of: nothing was written.")
        digest = hashlib.sha256(query.encode()).hexdigest()[:32]
        return _Written(append_all(self._target, iterator, f"spark-{digest}-{batch}-{context.partitionId()}"))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: what a task has appended is there."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: the batch is run again with the same keys."""
