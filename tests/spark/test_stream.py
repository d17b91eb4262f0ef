"""Streaming reads and writes through real Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from pipeline.admission import Offset, advance
from tests.support.small_segments import SmallSegments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


def run(spark: SparkSession, broker: SmallSegments, folder: Path, topic: str, **options: Any) -> StreamingQuery:
    """One run with Trigger.AvailableNow from the checkpoint in `folder`. Rows go to Parquet files there."""
    stream = (
        spark.readStream.format("topics")
        .option("url", broker.url)
        .options(**{"subscribe": topic, "startingOffsets": "earliest", **options})
        .load()
        .selectExpr("offset", "CAST(value AS STRING) AS value", "seq")
    )
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120), "the stream does not end"
    return query


def seqs(spark: SparkSession, folder: Path) -> list[int]:
    return sorted(row.seq for row in spark.read.parquet(str(folder / "rows")).select("seq").collect())


def test_available_now_reads_in_limited_batches_and_resumes(
    spark: SparkSession, broker: SmallSegments, tmp_path: Path
) -> None:
    broker.append("streamed", 700)
    first = run(spark, broker, tmp_path, "streamed", maxOffsetsPerTrigger=300)
    assert seqs(spark, tmp_path) == list(range(1, 701))
    assert [each["numInputRows"] for each in first.recentProgress] == [300, 300, 100]
    offsets = first.recentProgress[-1]["sources"][0]["endOffset"]
    offsets = json.loads(offsets) if isinstance(offsets, str) else offsets
    epoch = broker.client.state("streamed").epoch
    cluster_id = broker.ok("GET", "/v0/topics/streamed/segments")["cluster_id"]
    assert offsets == {"streamed": {"0": {"epoch": epoch, "seq": 701, "cluster_id": cluster_id}}}

    broker.append("streamed", 50, first=700)
    run(spark, broker, tmp_path, "streamed", maxOffsetsPerTrigger=300)
    assert seqs(spark, tmp_path) == list(range(1, 751))


def test_a_recreated_topic_fails_the_stream(spark: SparkSession, broker: SmallSegments, tmp_path: Path) -> None:
    broker.append("again", 10)
    run(spark, broker, tmp_path, "again")
    broker.client.delete_topic("again")
    broker.append("again", 4)
    with pytest.raises(PySparkException, match="the topic was deleted and created again"):
        run(spark, broker, tmp_path, "again")
    run(spark, broker, tmp_path, "again", failOnDataLoss=False)
    assert seqs(spark, tmp_path) == sorted([*range(1, 11), *range(1, 5)])


def test_a_broker_that_was_installed_again_fails_the_stream(
    spark: SparkSession, broker: SmallSegments, tmp_path: Path
) -> None:
    """The topic of the new broker has the same epoch, and more records. Before that, its neighbour is deleted."""
    folder = tmp_path / "stream"
    for topic in ("kept.a", "kept.b"):
        broker.append(topic, 10)
    which = {"subscribe": "kept.a,kept.b"}
    run(spark, broker, folder, "", **which)
    broker.client.delete_topic("kept.b")
    with pytest.raises(PySparkException, match=r"kept\.b: the topic was deleted"):
        run(spark, broker, folder, "", **which)
    run(spark, broker, folder, "", **which, failOnDataLoss=False)
    epoch = broker.client.state("kept.a").epoch
    with SmallSegments(tmp_path / "new") as new:
        for number in range(1, epoch):
            new.client.put_topic(f"other-{number}")
        new.append("kept.a", 14)
        assert new.client.state("kept.a").epoch == epoch
        with pytest.raises(PySparkException, match=r"kept\.a: it has another cluster id: .* failOnDataLoss=false"):
            run(spark, new, folder, "kept.a")
        run(spark, new, folder, "kept.a", failOnDataLoss=False)
    assert seqs(spark, folder) == sorted([*range(1, 11), *range(1, 11), *range(1, 15)])


def test_a_stream_of_no_topics_waits_for_one(spark: SparkSession, broker: SmallSegments, tmp_path: Path) -> None:
    which = {"subscribe": "", "subscribePattern": "alone[.].*", "failOnDataLoss": False}
    broker.append("alone.a", 3)
    run(spark, broker, tmp_path, "", **which)
    broker.client.delete_topic("alone.a")
    run(spark, broker, tmp_path, "", **which)
    broker.append("alone.b", 2)
    run(spark, broker, tmp_path, "", **which)
    assert seqs(spark, tmp_path) == [1, 1, 2, 2, 3]


def test_a_write_appends_every_row_once(spark: SparkSession, broker: SmallSegments) -> None:
    rows = spark.range(500).selectExpr("CAST(id % 7 AS STRING) AS key", "to_json(struct(id)) AS value")
    rows.write.format("topics").option("url", broker.url).option("topic", "written").mode("append").save()
    records = [record for page in pages(broker, "written") for record in page]
    assert sorted(record.data["id"] for record in records) == list(range(500))
    assert all(record.tag == str(record.data["id"] % 7) for record in records)
    assert broker.client.state("written").config["idempotency_window_ms"] == 86_400_000


def test_a_short_idempotency_window_is_refused(spark: SparkSession, broker: SmallSegments) -> None:
    broker.client.put_topic("forgetful")
    write = spark.range(1).selectExpr("'1' AS value").write.format("topics").option("url", broker.url)
    with pytest.raises(PySparkException, match="idempotency_window_ms"):
        write.option("topic", "forgetful").mode("append").save()
    write.option("topic", "forgetful").option("allowShortIdempotencyWindow", "true").mode("append").save()
    assert broker.client.state("forgetful").count == 1


def test_a_repeated_batch_of_a_stream_adds_no_row(spark: SparkSession, broker: SmallSegments, tmp_path: Path) -> None:
    broker.append("in", 120)

    def copy() -> None:
        stream = spark.readStream.format("topics").option("url", broker.url).option("topic", "in")
        rows = stream.option("startingOffsets", "earliest").load().select("key", "value")
        writing = rows.writeStream.format("topics").option("url", broker.url).option("topic", "copied")
        query = writing.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        assert query.awaitTermination(120)

    copy()
    # As after a crash between the batch and its commit: Spark runs it again.
    for path in (tmp_path / "c" / "commits").iterdir():
        path.unlink()
    copy()
    values = [record.data["n"] for page in pages(broker, "copied") for record in page]
    assert sorted(values) == list(range(120))


def pages(broker: SmallSegments, topic: str) -> list[list[Any]]:
    found: list[list[Any]] = []
    seq = 0
    while True:
        page = broker.client.read(topic, seq, limit=1000, include_tags=True)
        found.append(page.records)
        seq = page.next_from_seq
        if page.caught_up:
            return found


def test_a_limit_is_shared_and_offsets_never_go_back() -> None:
    def at(seq: int, epoch: int = 1) -> dict[str, Offset]:
        return {"0": {"epoch": epoch, "seq": seq}}

    begins = {"a": at(1), "b": at(1), "c": at(5)}
    ends = {"a": at(301), "b": at(101), "c": at(5)}
    assert advance(begins, ends, None) == ends
    assert advance(begins, ends, 400) == ends
    assert advance(begins, ends, 100) == {"a": at(76), "b": at(26), "c": at(5)}
    # Even the smallest limit makes progress.
    assert advance(begins, ends, 1) == {"a": at(1), "b": at(2), "c": at(5)}
    # A topic that was created again begins with its first seq.
    assert advance({"a": at(50)}, {"a": at(11, 2)}, 4) == {"a": at(5, 2)}
