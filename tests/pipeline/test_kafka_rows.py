"""Rows have the same content as for a consumer of the Kafka port, and options of Kafka's source the same effect."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import confluent_kafka
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pipeline.batches import Shape
from pipeline.errors import BadOption
from pipeline.options import ReadOptions, parse
from pipeline.origins import open_origin
from pipeline.planning import batch_ranges, splits_for
from pipeline.source.stream import StreamReader
from pipeline.split_reader import SplitReader, fail_on_gap
from tests.support.small_segments import SEGMENT_RECORDS, SmallSegments
from topics_client import NewRecord

TOPIC, PARTITIONS = "both", 2
COUNT = SEGMENT_RECORDS + 150
PATIENCE_S = 60.0
TS = 1_700_000_000_000


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SmallSegments, str]]:
    """A broker with records in sealed segments and in the log of each partition, and the address of its Kafka port."""
    folder = tmp_path_factory.mktemp("rows")
    file = Path(folder, "kafka-port")
    with SmallSegments(folder / "broker", kafka_port=0, kafka_port_file=file) as broker:
        broker.until(file.exists)
        address = f"127.0.0.1:{int(file.read_text())}"
        broker.ok("PUT", f"/v0/topics/{TOPIC}", {"durability": "fsync", "partitions": PARTITIONS})
        producer = confluent_kafka.Producer({"bootstrap.servers": address, "acks": "all"})
        for number in range(COUNT):
            for partition in range(PARTITIONS):
                producer.produce(
                    TOPIC,
                    value=(b'{"n":%d}' % number, b"\x00\xff%d" % number, None)[number % 3],
                    key=(None, b"k%d" % number, b"\xff\x00")[number % 4 % 3],
                    headers=[("h", b"\xfe"), ("h", None)] if number % 5 == 0 else [],
                    timestamp=TS + number,
                    partition=partition,
                )
            producer.poll(0)
            if number + 1 == SEGMENT_RECORDS:  # a batch is in one segment, so the first ends here if one ends here
                assert producer.flush(PATIENCE_S) == 0
        assert producer.flush(PATIENCE_S) == 0
        flushed_ms = time.time() * 1000
        broker.until(lambda: time.time() * 1000 > flushed_ms + 2)  # so the last records have a later time
        for partition in range(PARTITIONS):
            broker.await_sealed(TOPIC, SEGMENT_RECORDS, partition)
            broker.client.append(TOPIC, [NewRecord(data=b'{"from":"v0"}', tag="tagged")], partition=partition)
        yield broker, address


def rows(url: str, **given: str) -> list[dict[str, Any]]:
    """Every row of a batch read with these options, by topic, partition and offset."""
    options = parse({"url": url, "subscribe": TOPIC, "includeHeaders": "true", "timestampType": "CreateTime", **given})
    with open_origin(url=url) as origin:
        planned = splits(options, origin)
        shape = Shape(options.headers, options.create_time)
        readers = [SplitReader(origin, split, shape, fail_on_gap) for split in planned]
        found = [
            row
            for reader in readers
            for batch in reader.batches()
            for row in cast("list[dict[str, Any]]", batch.to_pylist())
        ]
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def splits(options: ReadOptions, origin: Any) -> list[Any]:
    return splits_for(origin, batch_ranges(origin, TOPIC, options), options, fail_on_gap)


def consumed(address: str, count: int) -> list[tuple[Any, ...]]:
    """What a consumer of the Kafka port gets."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "compare"})
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)])
    found: list[tuple[Any, ...]] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records arrived"
        for message in consumer.consume(500, 1.0):
            assert message.error() is None
            kind, stamp = message.timestamp()
            assert kind == confluent_kafka.TIMESTAMP_CREATE_TIME
            headers = [(name, value) for name, value in message.headers() or ()]
            found.append((message.partition(), message.offset(), message.key(), message.value(), stamp, headers))
    consumer.close()
    return sorted(found, key=lambda each: each[:2])


def as_consumed(row: dict[str, Any]) -> tuple[Any, ...]:
    headers = [(each["key"], each["value"]) for each in row["headers"] or ()]
    stamp = round(row["timestamp"].timestamp() * 1000)
    return row["partition"], row["offset"], row["key"], row["value"], stamp, headers


def test_rows_equal_what_a_kafka_consumer_gets(filled: tuple[SmallSegments, str]) -> None:
    broker, address = filled
    found = rows(broker.url)
    assert {row["topic"] for row in found} == {TOPIC}
    assert {row["timestampType"] for row in found} == {0}
    assert [as_consumed(row) for row in found] == consumed(address, PARTITIONS * (COUNT + 1))
    assert [row["seq"] for row in found] == [row["offset"] + 1 for row in found]


def test_the_commit_time_is_the_default(filled: tuple[SmallSegments, str]) -> None:
    broker, _ = filled
    found = rows(broker.url, timestampType="LogAppendTime")
    assert {row["timestampType"] for row in found} == {1}
    assert min(row["timestamp"].timestamp() * 1000 for row in found) > TS + COUNT


def test_offsets_by_topic_and_partition_bound_a_read(filled: tuple[SmallSegments, str]) -> None:
    broker, _ = filled
    start, end = '{"both":{"0":7,"1":-2}}', '{"both":{"0":30,"1":-1}}'
    found = rows(broker.url, startingOffsets=start, endingOffsets=end)
    assert [row["offset"] for row in found if row["partition"] == 0] == [*range(7, 30)]
    assert [row["offset"] for row in found if row["partition"] == 1] == [*range(COUNT + 1)]
    with pytest.raises(BadOption, match="endingOffsets does not name partition 1"):
        rows(broker.url, endingOffsets='{"both":{"0":30}}')


def test_times_by_partition_bound_a_read(filled: tuple[SmallSegments, str]) -> None:
    broker, _ = filled
    last = {at: broker.client.read(TOPIC, COUNT, partition=at).records[0].ts for at in range(PARTITIONS)}
    found = rows(broker.url, startingOffsetsByTimestamp=f'{{"both":{{"0":{last[0]},"1":0}}}}')
    assert [row["offset"] for row in found if row["partition"] == 0] == [COUNT]
    assert len(found) == 1 + COUNT + 1
    found = rows(broker.url, endingOffsetsByTimestamp=f'{{"both":{{"0":{last[0]},"1":0}}}}')
    assert [(row["partition"], row["offset"]) for row in found] == [(0, each) for each in range(COUNT)]
    with pytest.raises(BadOption, match="startingOffsetsByTimestamp does not name partition 1"):
        rows(broker.url, startingOffsetsByTimestamp='{"both":{"0":1}}')
    later = str(max(last.values()) + 3_600_000)
    with pytest.raises(BadOption, match="startingOffsetsByTimestampStrategy=latest"):
        rows(broker.url, startingTimestamp=later)
    assert rows(broker.url, startingTimestamp=later, startingOffsetsByTimestampStrategy="latest") == []


def test_a_stream_waits_for_the_least_number_of_records(filled: tuple[SmallSegments, str]) -> None:
    broker, _ = filled
    broker.append("trickle", 10)
    reader = StreamReader(
        parse(
            {
                "url": broker.url,
                "subscribe": "trickle",
                "startingOffsets": "earliest",
                "minOffsetsPerTrigger": "20",
                "maxOffsetsPerTrigger": "25",
                "maxTriggerDelay": "1h",
            }
        )
    )
    limit = reader.getDefaultReadLimit()
    start = reader.initialOffset()
    first = reader.latestOffset(start, limit)
    assert first["trickle"]["0"]["seq"] == 11
    broker.append("trickle", 19, first=10)
    assert reader.latestOffset(first, limit) == first
    assert reader.latestOffset(first, ReadAllAvailable())["trickle"]["0"]["seq"] == 30
    broker.append("trickle", 21, first=29)
    second = reader.latestOffset(first, limit)
    assert second["trickle"]["0"]["seq"] == 36
    # What was there when a query with Trigger.AvailableNow began is read, however little it is.
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(second, limit)["trickle"]["0"]["seq"] == 51


def test_tasks_have_at_most_the_wanted_records(filled: tuple[SmallSegments, str]) -> None:
    broker, _ = filled
    options = parse({"url": broker.url, "subscribe": TOPIC, "maxRecordsPerPartition": "100"})
    with open_origin(url=broker.url) as origin:
        planned = splits(options, origin)
    assert max(each.end - each.start for each in planned) == 100
    assert len(rows(broker.url, maxRecordsPerPartition="100")) == PARTITIONS * (COUNT + 1)
