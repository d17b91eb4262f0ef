"""The export command on Spark, killed at several points, and the flights of a year."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as f

from demo.flights import data_file, flights
from pipeline.export.spark_engine import SparkEngine
from tests.pipeline.exports import Exports
from tests.support.broker_process import PATIENCE_S, ROOT, TETHER
from tests.support.small_segments import SmallSegments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Driver:
    """`python -m pipeline export` on Spark, as a process of its own."""

    def __init__(self, broker: SmallSegments, out: Path, topic: str, java_home: str) -> None:
        command = [sys.executable, "-m", "pipeline", "export", "--url", broker.url, "--topics", topic, "--to", str(out)]
        environment = {
            **os.environ,
            "JAVA_HOME": java_home,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
            "SPARK_DRIVER_MEMORY": "512m",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._log = out.parent / "driver.log"
        with self._log.open("ab") as log:
            # A group of its own, so that the Java that it starts can be ended with it.
            self.process = subprocess.Popen(
                [*TETHER, *command], cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """SIGKILL to the driver and to the Java and the workers below it: nothing of it goes on."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill_when(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 2 * PATIENCE_S
        while not holds() and self.process.poll() is None:
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.002)
        self.kill()

    def finish(self) -> None:
        assert self.process.wait(2 * PATIENCE_S) == 0, self._log.read_text()


def test_killed_at_several_points_and_run_again(
    broker: SmallSegments, out: Path, java_home: str, long_mode: bool
) -> None:
    broker.append("killed", 4000)
    out.mkdir()
    points: list[Callable[[], bool]] = [
        lambda: any(out.glob("_topics/killed/*.plan.json")),
        lambda: any(out.glob("killed/*/*.parquet")),
        lambda: any(out.glob("_topics/killed/????????????????????.json")),
    ]
    count = 4000
    for kill in range(20 if long_mode else len(points)):
        driver = Driver(broker, out, "killed", java_home)
        if kill < len(points):
            driver.kill_when(points[kill])
        else:
            ends = time.monotonic() + random.uniform(0, 20)
            driver.kill_when(lambda ends=ends: time.monotonic() > ends)
        broker.append("killed", 100, first=count)
        count += 100
    Driver(broker, out, "killed", java_home).finish()
    with Exports(broker.url, str(out)) as exports:
        rows = exports.rows("killed")
        numbers = exports.chain("killed").numbers()
        assert [row["seq"] for row in rows] == list(range(1, count + 1))
        assert [row["value"] for row in rows] == [b'{"n":%d}' % n for n in range(count)]
        assert numbers == list(range(1, len(numbers) + 1))


def test_the_flights_of_a_year(spark: SparkSession, broker: SmallSegments, out: Path, long_mode: bool) -> None:
    # Every 50th of them, but in long mode.
    texts = [text for _, text in flights(data_file(), 1 if long_mode else 50)]
    for begin in range(0, len(texts), 10_000):
        broker.client.append("flights", texts[begin : begin + 10_000])
    broker.until(lambda: broker._durable("flights"))  # pyright: ignore[reportPrivateUsage]
    with Exports(broker.url, str(out)) as exports:
        outcome = exports.export("flights", engine=SparkEngine(spark))
        assert outcome.records == len(texts)
        files = [str(out / entry.file) for entry in exports.chain("flights").files()]
    frame = spark.read.option("basePath", str(out / "flights")).parquet(*files)
    total = frame.agg(
        f.count("*").alias("count"),
        f.sum("seq").alias("seqs"),
        f.sum(f.get_json_object(f.col("value").cast("string"), "$.distance").cast("bigint")).alias("miles"),
    ).first()
    assert total is not None
    miles = sum(int(msgspec.json.decode(text)["distance"]) for text in texts)
    assert (total["count"], total["seqs"], total["miles"]) == (len(texts), len(texts) * (len(texts) + 1) // 2, miles)
    digest = sha256()
    for row in frame.orderBy("seq").select("value").toLocalIterator():
        digest.update(bytes(row.value) + b"\n")
    assert digest.hexdigest() == sha256(b"".join(text + b"\n" for text in texts)).hexdigest()
