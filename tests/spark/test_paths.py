"""Spark reads a stopped broker's directory and its cold tier as it reads the broker; damage is named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from tests.support.small_segments import SmallSegments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_directory_and_its_cold_tier_give_what_the_broker_gave(spark: SparkSession, tmp_path: Path) -> None:
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
        content = bytearray(damaged.read_bytes())
        content[50] ^= 1
        damaged.write_bytes(content)
        with pytest.raises(PySparkException, match=rf"{damaged.name} at offset 0 of topic t: checksum mismatch"):
            read(spark, path=str(cold))


def read(spark: SparkSession, **options: Any) -> list[tuple[Any, ...]]:
    rows = spark.read.format("topics").option("topic", "t").options(**options).load().orderBy("seq").collect()
    return [tuple(row) for row in rows]
