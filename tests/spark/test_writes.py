"""Writes with real Spark whose tasks fail and are retried with their rows in another order."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException

from pipeline.source.appending import CHUNK_RECORDS
from tests.support.small_segments import SmallSegments
from topics_client import Client

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT, TASKS = 6000, 2
#: So that the buffers between the source of the rows and the writer hold a few hundred rows.
PAD = "x" * 200
PATIENCE_S = 120.0
SCHEMA = "key string, value string"


def retried(spark: SparkSession, url: str, topic: str, *, random: bool = False) -> DataFrame:
    """Two tasks whose first attempt fails after both have written some rows, and whose second has its rows in reverse.

    Every third row exists twice. `random`: the second attempt has other rows.
    """

    def given(numbers: Iterator[int]) -> Iterator[tuple[str | None, str]]:
        context = TaskContext.get()
        assert context is not None
        again = context.attemptNumber() > 0
        mine = sorted(numbers, reverse=again)
        for place, number in enumerate(mine):
            if not again and place > len(mine) * 0.8:
                await_records(url, topic, TASKS * CHUNK_RECORDS)
                raise RuntimeError("this try of the task dies here")
            value = number - 1 if number % 3 == 2 else number
            text = f'{{"id":{value + (again and random) * COUNT},"pad":"{PAD}"}}'
            yield (f"key-{value % 50}" if value % 2 else None, text)

    return spark.createDataFrame(spark.sparkContext.parallelize(range(COUNT), TASKS).mapPartitions(given), SCHEMA)


def await_records(url: str, topic: str, count: int) -> None:
    """Waits until the topic has this many records. Runs in a task."""
    deadline = time.monotonic() + PATIENCE_S
    with Client(url) as client:
        while client.state(topic, touch=False).count < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} does not come to hold {count} records")
            time.sleep(0.02)


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Rows reach the writer a few hundred at a time, so that an attempt that dies has written some."""
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert before is not None
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "300")
    yield
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", before)


def ids(broker: SmallSegments, topic: str) -> Counter[int]:
    found: Counter[int] = Counter()
    for partition in range(max(1, len(broker.client.state(topic).partitions))):
        seq, caught_up = 0, False
        while not caught_up:
            page = broker.client.read(topic, seq, limit=1000, partition=partition)
            found.update(record.data["id"] for record in page.records)
            seq, caught_up = page.next_from_seq, page.caught_up
    return found


@pytest.mark.usefixtures("small_batches")
def test_a_repeated_task_in_another_order_writes_every_row_once(spark: SparkSession, broker: SmallSegments) -> None:
    retried(spark, broker.url, "retried").write.format("topics").option("url", broker.url).option(
        "topic", "retried"
    ).mode("append").save()
    assert ids(broker, "retried") == Counter(n - 1 if n % 3 == 2 else n for n in range(COUNT))


@pytest.mark.usefixtures("small_batches")
def test_a_repeated_task_with_other_rows_fails_the_job(spark: SparkSession, broker: SmallSegments) -> None:
    write = (
        retried(spark, broker.url, "random", random=True)
        .write.format("topics")
        .option("url", broker.url)
        .option("topic", "random")
    )
    with pytest.raises(PySparkException, match="rows that this one does not have"):
        write.mode("append").save()
    assert all(each < COUNT for each in ids(broker, "random")), "rows of the second try were added"


def test_a_topic_of_several_partitions_is_read_and_streamed_whole(
    spark: SparkSession, broker: SmallSegments, tmp_path_factory: pytest.TempPathFactory
) -> None:
    broker.client.put_topic("spread", partitions=3, idempotency_window_ms=86_400_000)
    rows = spark.range(900).selectExpr("CAST(id % 70 AS STRING) AS key", "to_json(struct(id)) AS value")
    rows.write.format("topics").option("url", broker.url).option("topic", "spread").mode("append").save()
    frame = spark.read.format("topics").option("url", broker.url).option("subscribe", "spread").load()
    found = frame.selectExpr("partition", "get_json_object(CAST(value AS STRING), '$.id') AS id").collect()
    assert sorted(int(row.id) for row in found) == list(range(900))
    assert {row.partition for row in found} == {0, 1, 2}

    folder = tmp_path_factory.mktemp("stream")

    def copy() -> None:
        stream = spark.readStream.format("topics").option("url", broker.url).option("subscribe", "spread")
        rows = stream.options(startingOffsets="earliest", minPartitions=3).load().select("key", "value")
        writing = rows.writeStream.format("topics").option("url", broker.url).option("topic", "copied")
        query = writing.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
        assert query.awaitTermination(120)

    copy()
    broker.client.put_topic("spread", partitions=4)
    broker.client.append("spread", [b'{"id":900}'], partition=3)
    # As after a crash between the batch and its commit: Spark runs it again, and continues with later rows.
    for path in (folder / "commits").iterdir():
        path.unlink()
    copy()
    assert ids(broker, "copied") == Counter(range(901))


def test_bytes_keys_headers_and_partitions_are_written_and_read_back(
    spark: SparkSession, broker: SmallSegments
) -> None:
    for topic in ("mixed", "mixed-copy"):
        broker.client.put_topic(topic, partitions=3, idempotency_window_ms=86_400_000)
    header = "array(named_struct('key', 'h', 'value', X'FE'))"
    text = r"CONCAT(to_json(struct(id)), repeat('\n', CAST(id % 3 AS INT)))"
    rows = spark.range(60).selectExpr(
        "IF(id % 3 = 0, NULL, CAST(CONCAT('k', id) AS BINARY)) AS key",
        f"IF(id % 4 = 0, NULL, IF(id % 4 = 1, X'00FF', CAST({text} AS BINARY))) AS value",
        f"IF(id % 5 = 0, {header}, NULL) AS headers",
        "CAST(id % 3 AS INT) AS partition",
    )
    target = {"url": broker.url, "topic": "mixed"}
    rows.write.format("topics").options(**target).mode("append").save()
    columns = ["key", "value", "headers", "partition"]

    def read(topic: str) -> DataFrame:
        return spark.read.format("topics").options(url=broker.url, topic=topic, includeHeaders=True).load()

    def counted(frame: DataFrame) -> Counter[str]:
        return Counter(str(row) for row in frame.select(*columns).collect())

    assert counted(read("mixed")) == counted(rows)
    read("mixed").drop("topic").write.format("topics").options(**{**target, "topic": "mixed-copy"}).mode(
        "append"
    ).save()
    assert counted(read("mixed-copy")) == counted(rows)
