"""Spark reads a stopped broker's directory and its cold tier like the broker itself, and names damage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from tests.support.small_segments import SmallSegments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_directory_and_its_cold_tier_give_the_same_records_as_the_broker(spark: SparkSession, tmp_path: Path) -> None:
    cold = tmp_path / "cold"
    with SmallSegments(tmp_path / "broker", cold_dir=cold, hot_retain_segments=1) as broker:
        broker.append("t", 1800)
        broker.await_sealed("t", 1001)
        broker.until(lambda: any(cold.glob("*/topics/*/topic.json")))
        by_broker = read(spark, url=broker.url)
        broker.stop()
        data = str(broker.data_dir)
        assert read(spark, path=data, coldPath=str(cold)) == by_broker
        by_tier = read(spark, path=str(cold))
        assert by_tier
        assert by_tier == by_broker[: len(by_tier)]
        damaged = sorted(cold.rglob("*.data"))[0]
        at = damage(damaged)
        with pytest.raises(PySparkException, match=rf"{damaged.name} at offset {at} of topic t: checksum mismatch"):
            read(spark, path=str(cold))
        hot = sorted(broker.data_dir.glob("topics/**/*.data"))[-1]
        at = damage(hot)
        with pytest.raises(PySparkException, match=rf"{hot} at offset {at} of topic t: checksum mismatch"):
            read(spark, path=data, coldPath=str(cold), startingOffsets='{"t":{"0":1500}}')


def test_a_damaged_frame_from_a_broker_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with SmallSegments(tmp_path / "broker") as broker:
        broker.append("t", 600)
        broker.await_sealed("t", 501)
        at = damage(sorted(broker.data_dir.glob("topics/**/*.data"))[0])
        with pytest.raises(
            PySparkException, match=rf"/v0/topics/t/segments/1/data at offset {at} of topic t: checksum"
        ):
            read(spark, url=broker.url)


def damage(path: Path) -> int:
    """Flips a bit in the fourth record's data. Returns the offset of its frame."""
    content = bytearray(path.read_bytes())
    at = 0
    for _ in range(3):
        at += int.from_bytes(content[at : at + 4], "little") + 4
    content[content.index(b'{"data":', at) + 10] ^= 1
    path.write_bytes(content)
    return at


def read(spark: SparkSession, **options: Any) -> list[tuple[Any, ...]]:
    rows = spark.read.format("topics").option("topic", "t").options(**options).load().orderBy("seq").collect()
    return [tuple(row) for row in rows]
