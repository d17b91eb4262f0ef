"""The same reads through Kafka's source for Spark and through ours: equal columns, rows, batches, offsets and progress.

Maven fetches Kafka's source. Its last release is one for an earlier Spark, and runs in the installed one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from tests.support.broker_process import PYTHON_PATH, ROOT
from tests.support.jars import jars
from tests.support.small_segments import SEGMENT_RECORDS, SmallSegments

JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
PARTITIONS = 3
COUNT = 3 * SEGMENT_RECORDS + 200
PATIENCE_S = 900
TS = 1_700_000_000_000
TOPIC, OTHER = "compared", "compared-too"

#: The options of each read, whatever the source.
BATCHES: list[dict[str, str]] = [
    {"subscribe": TOPIC},
    {"subscribePattern": "compared.*", "minPartitions": "7", "maxRecordsPerPartition": "100"},
    {"assign": json.dumps({TOPIC: [0, 2], OTHER: [1]})},
    {
        "subscribe": TOPIC,
        "startingOffsets": json.dumps({TOPIC: {"0": 17, "1": -2, "2": 400}}),
        "endingOffsets": json.dumps({TOPIC: {"0": 300, "1": -1, "2": 400}}),
    },
]
STREAMS: list[dict[str, str]] = [
    {"subscribe": TOPIC, "startingOffsets": json.dumps({TOPIC: {"0": 17, "1": -2, "2": -1}})},
    {"subscribePattern": "compared.*", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "1000"},
]


def fill(address: str, topic: str, count: int) -> None:
    """Records with and without keys, headers and text, in all partitions."""
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "acks": "all"})
    for number in range(count):
        producer.produce(
            topic,
            value=bytes((0, 255, number % 256)) if number % 4 == 3 else b'{"n": %d}' % number,
            key=(None, b"eu-%d" % number, b"\xff\x00%d" % number)[number % 3],
            headers=[("n", b"%d" % number), ("raw", b"\xfe\x00")] if number % 5 == 0 else [],
            timestamp=TS + number,
            partition=number % PARTITIONS,
        )
        producer.poll(0)
        if number + 1 == PARTITIONS * SEGMENT_RECORDS:  # a batch is in one segment, so each first one ends here
            assert producer.flush(60) == 0
    assert producer.flush(60) == 0


def reads(url: str, address: str) -> dict[str, Any]:
    return {
        "sources": {
            "kafka": {"format": "kafka", "options": {"kafka.bootstrap.servers": address, "includeHeaders": "true"}},
            "topics": {
                "format": "topics",
                "options": {"url": url, "includeHeaders": "true", "timestampType": "CreateTime"},
            },
        },
        "batches": BATCHES,
        "streams": STREAMS,
    }


@pytest.mark.soak
@pytest.mark.timeout(PATIENCE_S)
def test_both_sources_read_the_same(tmp_path: Path, java_home: str, mvn: str) -> None:
    found_jars = jars("spark-kafka-source", JARS)
    file = tmp_path / "kafka-port"
    with SmallSegments(tmp_path / "broker", kafka_port=0, kafka_port_file=file) as broker:
        broker.until(file.exists)
        address = f"127.0.0.1:{int(file.read_text())}"
        for topic in (TOPIC, OTHER):
            broker.client.put_topic(topic, partitions=PARTITIONS, durability="fsync")
            fill(address, topic, COUNT)
        for at in range(PARTITIONS):
            broker.await_sealed(TOPIC, SEGMENT_RECORDS, at)
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.spark.kafka_source_program",
                found_jars,
                str(tmp_path),
                json.dumps(reads(broker.url, address)),
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "JAVA_HOME": java_home,
                "PYTHONPATH": PYTHON_PATH,
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    found = {(name, what, number): one for name, what, number, one in map(json.loads, done.stdout.splitlines())}
    for (name, what, number), one in found.items():
        if name == "topics":
            theirs = found["kafka", what, number]
            assert one.get("columns") == theirs.get("columns"), (what, number)
            assert one.get("progress") == theirs.get("progress"), (what, number)
            assert one["rows"] == theirs["rows"], (what, number)
    assert done.returncode == 0, done.stderr
    assert len(found) == 2 * len(BATCHES + STREAMS)
    assert len(found["kafka", "batches", 0]["rows"]) == COUNT
    assert len(found["kafka", "streams", 1]["rows"]) > 2
