"""Batch reads through real Spark: `spark.read.format("topics")` finds the source by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tests.support.small_segments import SmallSegments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 1700
SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "seq bigint, node string, meta string"
)


@pytest.fixture(scope="module")
def filled(broker: SmallSegments) -> SmallSegments:
    broker.append("filled", COUNT)
    broker.await_sealed("filled", 1500)
    return broker


def read(spark: SparkSession, broker: SmallSegments, topic: str = "filled", **options: Any) -> DataFrame:
    reader = spark.read.format("topics").option("url", broker.url)
    return reader.options(**{"topic": topic, **options}).load()


def test_every_record_once_in_the_columns_of_kafka(spark: SparkSession, filled: SmallSegments) -> None:
    frame = read(spark, filled)
    assert frame.schema.toDDL().replace("`", "") == spark.createDataFrame([], SCHEMA).schema.toDDL().replace("`", "")
    rows = frame.orderBy("seq").collect()
    assert [row.seq for row in rows] == list(range(1, COUNT + 1))
    assert [bytes(row.value) for row in rows] == [b'{"n":%d}' % n for n in range(COUNT)]
    assert [row.key and bytes(row.key) for row in rows[:4]] == [b"third", None, None, b"third"]
    first = rows[0]
    assert (first.offset, first.partition, first.topic, first.node) == (0, 0, "filled", "node-0")
    assert first.meta == '{"fifth":"yes","n":0}'
    assert first.timestamp.timestamp() * 1000 == filled.client.get_record("filled", 1).ts


def test_a_job_for_kafka_runs_after_changing_format_and_bootstrap(spark: SparkSession, filled: SmallSegments) -> None:
    frame = (
        spark.read.format("topics")
        .option("kafka.bootstrap.servers", filled.url)
        .option("subscribe", "filled")
        .option("startingOffsets", '{"filled":{"0":100}}')
        .option("endingOffsets", '{"filled":{"0":1600}}')
        .option("failOnDataLoss", "true")
        .load()
        .selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "offset")
    )
    found = frame.agg(f.min("offset"), f.max("offset"), f.count("*")).first()
    assert found is not None
    assert tuple(found) == (100, 1599, 1500)


def test_headers_contain_meta_and_node(spark: SparkSession, filled: SmallSegments) -> None:
    row = read(spark, filled, includeHeaders=True, endingOffsets='{"filled":{"0":1}}').first()
    assert row is not None
    assert [(each.key, bytes(each.value)) for each in row.headers] == [("fifth", b"yes"), ("node", b"node-0")]


def test_values_are_parsed_into_typed_columns(spark: SparkSession, broker: SmallSegments) -> None:
    broker.client.append("typed", [{"n": 1, "s": "a"}, {"n": "no number"}, [1], {"s": "b", "more": 2}])
    frame = read(spark, broker, "typed", valueSchema="n int, s string")
    rows = frame.orderBy("seq").select("n", "s", "_corrupt_record").collect()
    assert [tuple(row) for row in rows] == [
        (1, "a", None),
        (None, None, '{"n":"no number"}'),
        (None, None, "[1]"),
        (None, "b", None),
    ]


def test_a_pattern_reads_several_topics(spark: SparkSession, broker: SmallSegments) -> None:
    for name in ("many.a", "many.b", "other.a"):
        broker.append(name, 10)
    counts = read(spark, broker, topic="", topicsPattern=r"many\..*").groupBy("topic").count().collect()
    assert sorted(map(tuple, counts)) == [("many.a", 10), ("many.b", 10)]


def test_an_empty_topic_is_no_error(spark: SparkSession, broker: SmallSegments) -> None:
    broker.client.put_topic("empty")
    assert read(spark, broker, "empty").count() == 0


def test_deleted_records_are_not_read_and_no_loss(spark: SparkSession, broker: SmallSegments) -> None:
    broker.append("deleted", 600)
    broker.await_sealed("deleted", 501)
    broker.client.delete_records("deleted", match="third")
    broker.client.delete_records("deleted", before_seq=11)
    seqs = sorted(row.seq for row in read(spark, broker, "deleted").select("seq").collect())
    assert seqs == [seq for seq in range(11, 601) if (seq - 1) % 3]


def test_a_loss_in_the_range_fails_with_gap_and_reason(spark: SparkSession, broker: SmallSegments) -> None:
    broker.client.put_topic("capped", cap_records=100)
    broker.append("capped", 250)
    options = {"startingOffsets": '{"capped":{"0":0}}'}
    with pytest.raises(PySparkException, match=r"capped: seqs 1 to 150 are lost \(reason: cap\).*failOnDataLoss"):
        read(spark, broker, "capped", **options).count()
    assert read(spark, broker, "capped", **options, failOnDataLoss=False).count() == 100
    assert read(spark, broker, "capped").count() == 100  # earliest is after the gap


def test_an_absent_topic_is_an_error(spark: SparkSession, broker: SmallSegments) -> None:
    with pytest.raises(PySparkException, match="the topic does not exist"):
        read(spark, broker, "absent").count()


def test_offset_bounds_are_pushed_down_if_enabled(spark: SparkSession, broker: SmallSegments) -> None:
    broker.client.put_topic("narrowed", cap_records=100)
    broker.append("narrowed", 250)
    frame = read(spark, broker, "narrowed", startingOffsets='{"narrowed":{"0":0}}').where("offset >= 200")
    with pytest.raises(PySparkException, match="are lost"):
        frame.count()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        # The loss is outside the query's range, and is not even looked at.
        options = {"startingOffsets": '{"narrowed":{"0":0}}', "pushFilters": "true"}
        frame = read(spark, broker, "narrowed", **options).where("offset >= 200")
        assert sorted(row.offset for row in frame.collect()) == list(range(200, 250))
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
