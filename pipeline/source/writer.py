"""Writes: the rows of each task to a topic, once (`appending` tells how).

A task is known by the query or job, the batch and its number, so all tries of it are. That holds as long as the topic
remembers keys: hence its idempotency_window_ms must be a day at least, unless told.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, cast

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from pipeline.errors import BadOption, OtherRows, SourceUnreadable, counted
from pipeline.first_contact import reach
from pipeline.option_names import address_of, check_names, nearest
from pipeline.source.appending import TaskLog, probe
from pipeline.source.rows import row_of
from topics_client import Client, ConnectionFailed, RetryPolicy, TopicNotFound, TopicsError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log = logging.getLogger("pipeline")

DAY_MS = 86_400_000
#: Tasks beyond those of a batch that are asked for: was the batch run before, with so many?
_TASKS, _TASKS_ONCE_REPEATED = 4, 200
#: Columns that become part of a record, and their types.
_COLUMNS = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "tag": ("string",),
    "partition": ("int",),
    "topic": ("string",),
    "node": ("string",),
    "meta": ("string",),
}
#: Columns of a read that the broker assigns itself.
_ASSIGNED = ("offset", "timestamp", "timestampType", "seq")
_OPTIONS = ("url", "token", "topic", "differentRows", "allowShortIdempotencyWindow")
#: Spark passes on options of the query itself.
_SPARKS = ("checkpointLocation", "queryName")


class Target:
    """Where rows go, from the options of the write."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        given = {name.lower(): str(value) for name, value in options.items()}
        check_names(given, (*_OPTIONS, *_SPARKS), "write")
        self.url = address_of(given)
        self.token = given.get("token")
        self.topic = given.get("topic", "")
        others = given.get("differentrows", "fail").lower()
        if others not in ("fail", "append"):
            raise BadOption(f"differentRows is fail or append, not {others!r}.")
        self.append_others = others == "append"
        window = given.get("allowshortidempotencywindow", "false").lower()
        if window not in ("true", "false"):
            raise BadOption(f"allowShortIdempotencyWindow must be true or false, not {window!r}.")
        self.any_window = window == "true"
        if not self.url:
            raise BadOption("Say where to write: url, the broker's HTTP address, such as http://host:4000.")
        check_columns(schema)
        if not self.topic and "topic" not in schema.names:
            raise BadOption("Say which topic: the option topic, or a column topic.")

    def client(self) -> Client:
        """For a task, or for the end of a batch."""
        return Client(self.url, token=self.token, retry=RetryPolicy(total_s=100.0))

    def check(self, *, is_running: bool) -> None:
        """In the driver, before anything is written: that the broker answers, so that tasks do not wait for it one
        after the other, and that a retried task can be told from a new one.

        `is_running`: this may be any batch of a stream, which waits for a broker that restarts.

        Raises BadOption, SourceUnreadable.
        """
        with Client(self.url, token=self.token) as client:
            if not is_running:
                reach(client, "url")
            if self.topic:
                self.check_window(client, self.topic)
            elif is_running:
                self._await(client)

    def _await(self, client: Client) -> None:
        try:
            client.health()
        except ConnectionFailed as error:
            raise SourceUnreadable(f"Cannot write to {self.url}: {error}") from error
        except TopicsError:
            return  # the appends say what is wrong

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


def check_columns(schema: StructType) -> None:
    """Raises BadOption for columns that cannot be written, before anything is written."""
    known = {name.lower(): name for name in (*_COLUMNS, *_ASSIGNED)}
    for field in schema.fields:
        if field.name not in known.values():
            raise BadOption(
                f"Column {field.name} would be lost.{nearest(field.name, known)} Put it into value: "
                "to_json(struct('*')) AS value."
            )
        kind = field.dataType.simpleString()
        if field.name in _COLUMNS and kind not in (*_COLUMNS[field.name], "void"):
            raise BadOption(
                f"Column {field.name} is of type {kind}, and must be {' or '.join(_COLUMNS[field.name])}: cast it."
            )
    if "value" not in schema.names:
        raise BadOption("There is no column value: for example to_json(struct('*')) AS value.")


class _Written(WriterCommitMessage):
    """What a task did. `topics`: where it has appended; `repeated`: whether something of it was there before."""

    def __init__(self, records: int, topics: list[str], repeated: bool) -> None:
        self.records = records
        self.topics = topics
        self.repeated = repeated
        #: Of a stream: what the keys of all tasks of the batch begin with.
        self.key = ""


def append_all(target: Target, batches: Iterator[pa.RecordBatch], key: str) -> _Written:
    """Append every row once, whichever tries of the task there were. Raises PipelineError."""
    logs: dict[str, TaskLog] = {}
    with target.client() as client, ExitStack() as stack:
        try:
            for batch in batches:
                for row in cast("list[dict[str, Any]]", batch.to_pylist()):
                    topic = target.topic or row["topic"]
                    if topic is None:
                        raise BadOption("A row has no topic: its column topic is null, and the option topic is unset.")
                    if (log := logs.get(topic)) is None:
                        if topic != target.topic:
                            target.check_window(client, topic)
                        log = TaskLog(client, topic, key, append_others=target.append_others)
                        logs[topic] = stack.enter_context(log)
                    log.add(row_of(row))
            for log in logs.values():
                log.finish()
        except TopicsError as error:
            raise SourceUnreadable(
                f"Cannot append to {', '.join(sorted(logs)) or target.topic} at {target.url}: {error} Trying the task "
                "again writes no row of it twice."
            ) from error
    rows = sum(log.rows for log in logs.values())
    return _Written(rows, sorted(logs), any(log.repeated for log in logs.values()))


def check_tasks(target: Target, done: list[_Written]) -> None:
    """Whether a batch of a stream that was run again had more tasks then: their rows have come to others since.

    Raises OtherRows.
    """
    key = next((each.key for each in done if each.key), "")
    if not key:
        return
    beyond = range(len(done), len(done) + (_TASKS_ONCE_REPEATED if any(each.repeated for each in done) else _TASKS))
    with target.client() as client:
        for topic in sorted({topic for each in done for topic in each.topics}):
            for number in beyond:
                if probe(client, topic, f"{key}-{number}-0") is not None:
                    text = (
                        f"{topic}: this batch was run before with more than {counted(len(done), 'task')}, and task "
                        f"{number} stored rows. They are rows of other tasks now, and may be there twice."
                    )
                    if not target.append_others:
                        raise OtherRows(f"{text} Go on with differentRows=append.")
                    _log.warning("%s", text)
                    return


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("topics")`. Appends only. What an aborted write has appended stays."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise BadOption("Topics are appended to: use mode('append').")
        self._target = Target(options, schema)
        self._target.check(is_running=False)
        self._job = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        return append_all(self._target, iterator, f"spark-{self._job}-{partition}")


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("topics")`: a batch that is run again after a crash adds nothing."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._target = Target(options, schema)
        # Spark makes a writer for each batch, so this cannot tell the first one.
        self._target.check(is_running=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None, "a stream is written by tasks"
        query, batch = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
        if not query or batch is None:
            raise SourceUnreadable("Spark does not tell the task which query and batch it is of: nothing was written.")
        digest = hashlib.sha256(query.encode()).hexdigest()[:32]
        key = f"spark-{digest}-{batch}"
        done = append_all(self._target, iterator, f"{key}-{context.partitionId()}")
        done.key = key
        return done

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What the tasks have appended is there. Raises OtherRows where the batch had more tasks in an earlier run."""
        check_tasks(self._target, [each for each in messages if isinstance(each, _Written)])

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: the batch is run again with the same keys."""
