"""Records of Kafka clients, exported with Spark: keys, values and headers byte for byte, from segments and the tail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from tests.support.small_segments import SEGMENT_RECORDS, SmallSegments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = SEGMENT_RECORDS + 200
PATIENCE_S = 120.0
TS = 1_700_000_000_000


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SmallSegments, str]]:
    """A broker, and the address of its Kafka port."""
    folder = tmp_path_factory.mktemp("kafka-door")
    file = Path(folder, "kafka-port")
    with SmallSegments(folder / "broker", kafka_port=0, kafka_port_file=file) as broker:
        broker.until(file.exists)
        yield broker, f"127.0.0.1:{int(file.read_text())}"


def key(number: int) -> bytes | None:
    """None, text, or bytes that are not text in any encoding."""
    return (None, b"eu-%d" % number, b"\xff\x00%d" % number)[number % 3]


def value(number: int) -> bytes:
    """JSON, sometimes with spaces around it, or bytes that are not JSON."""
    if number % 2:
        return b' {"n": %d}\n' % number if number % 7 == 0 else b'{"n": %d}' % number
    return bytes((0, 255, number % 256)) * 3


def headers(number: int) -> list[tuple[str, bytes]]:
    return [("n", b"%d" % number), ("raw", b"\xfe\x00")] if number % 5 == 0 else []


def test_records_of_a_kafka_client_are_exported_unchanged(
    spark: SparkSession, port: tuple[SmallSegments, str], tmp_path: Path
) -> None:
    broker, address = port
    broker.ok("PUT", "/v0/topics/t", {"durability": "fsync"})
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "acks": "all", "compression.type": "zstd"})
    for number in range(COUNT):
        producer.produce(
            "t", value=value(number), key=key(number), headers=headers(number), timestamp=TS + number, partition=0
        )
        producer.poll(0)
        if number + 1 == SEGMENT_RECORDS:  # a batch is in one segment, so the first ends here if one ends here
            assert producer.flush(PATIENCE_S) == 0
    assert producer.flush(PATIENCE_S) == 0
    broker.await_sealed("t", SEGMENT_RECORDS)

    frame = spark.read.format("topics").options(url=broker.url, topic="t", includeHeaders=True).load()
    frame.write.parquet(str(tmp_path / "out"))
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("offset").collect()
    assert [row.offset for row in rows] == [*range(COUNT)]
    assert [row.key and bytes(row.key) for row in rows] == [*map(key, range(COUNT))]
    assert [bytes(row.value) for row in rows] == [*map(value, range(COUNT))]
    assert [[(each.key, bytes(each.value)) for each in row.headers or ()] for row in rows] == [
        *map(headers, range(COUNT))
    ]
