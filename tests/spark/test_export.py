"""The export command on Spark, killed at several points, and the flights of a year."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as f

from demo.flights import data_file, flights
from pipeline.errors import DataLoss
from pipeline.export.parts import PartSettings
from pipeline.export.spark_engine import SparkEngine
from pipeline.export.verification import Verification
from tests.pipeline.exports import Exports, Overtaken, ended_pid
from tests.spark.conftest import SHORT_JAVA
from tests.support.broker_process import PATIENCE_S, ROOT, TETHER
from tests.support.dated import write_dated
from tests.support.small_segments import SmallSegments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Driver:
    """`python -m pipeline export` on Spark, as a separate process."""

    def __init__(self, broker: SmallSegments, out: Path, topic: str, java_home: str) -> None:
        command = [sys.executable, "-m", "pipeline", "export", "--url", broker.url, "--topics", topic, "--to", str(out)]
        command += ["--format", "parquet"]
        environment = {
            **os.environ,
            "JAVA_HOME": java_home,
            "JAVA_TOOL_OPTIONS": SHORT_JAVA,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
            "SPARK_DRIVER_MEMORY": "512m",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._log = out.parent / "driver.log"
        with self._log.open("ab") as log:
            # A process group of its own, so that the Java that it starts can be ended with it.
            self.process = subprocess.Popen(
                [*TETHER, *command], cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """SIGKILL to the driver, its Java and its workers, so that nothing of it continues."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill_when(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 4 * PATIENCE_S
        while not holds() and self.process.poll() is None:
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.002)
        self.kill()

    def finish(self) -> None:
        assert self.process.wait(4 * PATIENCE_S) == 0, self._log.read_text()


def _at_work(out: Path, behind_s: float) -> Callable[[], bool]:
    """How long after its start a run has made its plan."""
    since = time.time()
    plans: list[float] = []

    def holds() -> bool:
        if not plans:
            plans.extend(each for path in out.glob("_topics/*/*.plan.json") if (each := _put_s(path)) >= since)
        return bool(plans) and time.time() > plans[0] + behind_s

    return holds


def _put_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


@pytest.mark.timeout(1800)  # this takes twenty starts of Spark, in the soak tier
def test_killed_at_several_points_and_run_again(
    broker: SmallSegments, out: Path, java_home: str, soak_mode: bool
) -> None:
    broker.append("killed", 4000)
    out.mkdir()
    points: list[Callable[[], bool]] = [
        lambda: any(out.glob("_topics/killed/*.plan.json")),
        lambda: any(out.glob("killed/*/*.parquet")),
        lambda: any(out.glob("_topics/killed/????????????????????.json")),
    ]
    if not soak_mode:
        del points[random.randrange(len(points))]  # each kill takes a start of Spark
    count, kill = 4000, 0
    for kill in range(20 if soak_mode else len(points)):
        driver = Driver(broker, out, "killed", java_home)
        if kill < len(points):
            driver.kill_when(points[kill])
        else:
            driver.kill_when(_at_work(out, random.uniform(0, 12)))
        broker.append("killed", 100, first=count)
        count += 100
    Driver(broker, out, "killed", java_home).finish()
    with Exports(broker.url, str(out)) as exports:
        rows = exports.rows("killed")
        numbers = exports.chain("killed").numbers()
        assert [row["seq"] for row in rows] == list(range(1, count + 1))
        assert [row["value"] for row in rows] == [b'{"n":%d}' % n for n in range(count)]
        assert numbers == list(range(1, len(numbers) + 1))
        print(f"{kill + 1} kills, {count} records, {len(numbers)} manifests")


def test_two_concurrent_exports_write_no_record_twice(spark: SparkSession, broker: SmallSegments, out: Path) -> None:
    broker.append("both", 1200)
    with Exports(broker.url, str(out)) as exports:
        runs = [exports.exporter(engine=SparkEngine(spark)) for _ in range(2)]
        with ThreadPoolExecutor(2) as pool:
            outcomes = list(pool.map(lambda run: run.export("both"), runs))
        assert sorted(outcome.records for outcome in outcomes) == [0, 1200]
        assert exports.seqs("both") == list(range(1, 1201))
        assert len(exports.parts("both")) == len(exports.chain("both").files())
        assert any("another exporter" in each for each in exports.said)


def test_the_second_manifest_of_a_number_is_discarded(spark: SparkSession, broker: SmallSegments, out: Path) -> None:
    broker.append("overtaken", 700)
    with Exports(broker.url, str(out)) as exports:

        def overtake() -> None:
            assert exports.export("overtaken").records == 700
            broker.append("overtaken", 5, first=700)

        engine = Overtaken(overtake, SparkEngine(spark))
        outcome = exports.export("overtaken", engine=engine, pid=ended_pid())
        assert (outcome.lost_races, outcome.records, outcome.manifests) == (1, 5, [2])
        assert exports.seqs("overtaken") == list(range(1, 706))
        assert len(exports.parts("overtaken")) == len(exports.chain("overtaken").files())


def test_tasks_write_the_files_of_a_delta_table(spark: SparkSession, broker: SmallSegments, out: Path) -> None:
    broker.append("as_delta", 700)
    broker.await_sealed("as_delta", 501)
    with Exports(broker.url, str(out)) as exports:
        job = {"engine": SparkEngine(spark), "parts": PartSettings(kind="delta")}
        assert exports.export("as_delta", **job).records == 700
        broker.append("as_delta", 30, first=700)
        assert exports.export("as_delta", **job).records == 30
    rows = DeltaTable(out / "as_delta").to_pyarrow_table(columns=["seq", "value"]).sort_by("seq").to_pydict()
    assert rows == {"seq": list(range(1, 731)), "value": [b'{"n":%d}' % n for n in range(730)]}


def test_losses_are_refused_or_recorded(spark: SparkSession, broker: SmallSegments, out: Path) -> None:
    broker.client.put_topic("lossy", cap_records=600)
    broker.append("lossy", 500)
    with Exports(broker.url, str(out)) as exports:
        engine = SparkEngine(spark)
        exports.export("lossy", engine=engine)
        broker.append("lossy", 1000, first=500)
        with pytest.raises(DataLoss, match=r"seqs 501 to 900 are lost \(reason: cap\)"):
            exports.export("lossy", engine=engine)
        outcome = exports.export("lossy", engine=engine, fail_on_loss=False)
        assert [(gap.first, gap.last, gap.reason) for gap in outcome.gaps] == [(501, 900, "cap")]
        assert exports.seqs("lossy") == [*range(1, 501), *range(901, 1501)]


def test_records_evicted_during_an_export_are_a_loss(spark: SparkSession, broker: SmallSegments, out: Path) -> None:
    broker.client.put_topic("going", cap_records=600)
    broker.append("going", 600)

    def evict() -> None:
        head = broker.client.state("going").head_seq
        broker.append("going", 1300, first=head)
        broker.until(lambda: broker.ok("GET", "/v0/topics/going/segments")["segments"][0]["first_seq"] > head)

    with Exports(broker.url, str(out)) as exports:
        with pytest.raises(DataLoss, match=r"going: seqs 1 to 600 are lost \(reason: cap\)"):
            exports.export("going", engine=Overtaken(evict, SparkEngine(spark), before=True))
        assert exports.chain("going").newest() is None
        outcome = exports.export("going", engine=SparkEngine(spark), fail_on_loss=False)
        assert (outcome.records, outcome.gaps) == (600, [])  # the first export begins with the existing records
        broker.append("going", 100, first=1900)
        outcome = exports.export("going", engine=Overtaken(evict, SparkEngine(spark), before=True), fail_on_loss=False)
        assert [(gap.first, gap.last, gap.reason) for gap in outcome.gaps] == [(1901, 2000, "cap")]
        assert (outcome.records, outcome.end) == (0, 2001)


@pytest.mark.timeout(900)
def test_flights_are_exported_by_the_date_of_departure(spark: SparkSession, tmp_path: Path, soak_mode: bool) -> None:
    """Each is committed on the day of its flight. Only every 50th flight, except in the soak tier."""
    days: dict[int, list[bytes]] = {}
    for _, text in flights(data_file(), 1 if soak_mode else 50):
        told = msgspec.json.decode(text)
        left = datetime(told["year"], told["month"], told["day"], 12, tzinfo=UTC)
        days.setdefault(int(left.timestamp() * 1000), []).append(text)
    directory = tmp_path / "broker"
    directory.mkdir()
    write_dated(directory / "data", "flights", sorted(days.items()))
    out = tmp_path / "out"
    with SmallSegments(directory, segment_max_events=20_000 if soak_mode else 500) as broker:
        count = sum(map(len, days.values()))
        broker.until(lambda: broker.is_durable("flights"))
        with Exports(broker.url, str(out)) as exports:
            outcome = exports.export("flights", engine=SparkEngine(spark))
            assert outcome.records == count
            files = [str(out / entry.file) for entry in exports.chain("flights").files()]
            expected, digest = of_the_broker(broker, "flights")
            assert Verification(exports.store, "flights").run(exports.origin).problems == []
    assert len(expected) == 365
    frame = spark.read.option("basePath", str(out / "flights")).parquet(*files)
    distance = f.get_json_object(f.col("value").cast("string"), "$.distance").cast("bigint")
    by_date = frame.groupBy("date").agg(f.count("*"), f.sum("seq"), f.sum(distance)).collect()
    assert {str(row[0]): tuple(row[1:]) for row in by_date} == expected
    exported = sha256()
    for row in frame.orderBy("seq").select("value").toLocalIterator():
        exported.update(bytes(row.value) + b"\n")
    assert exported.hexdigest() == digest
    print(f"{count} flights, {len(files)} files, {len(expected)} dates, {outcome.seconds:.1f} s, sha256 {digest}")


def of_the_broker(broker: SmallSegments, topic: str) -> tuple[dict[str, tuple[int, int, int]], str]:
    """The result of plain reads: (records, sum of seqs, sum of distances) by date, and the sha256 of all values in
    order."""
    found: dict[str, tuple[int, int, int]] = {}
    digest = sha256()
    seq, caught_up = 0, False
    while not caught_up:
        page = broker.client.read(topic, seq, limit=1000)
        for record in page.records:
            date = datetime.fromtimestamp(record.ts / 1000, UTC).strftime("%Y-%m-%d")
            records, seqs, miles = found.get(date, (0, 0, 0))
            found[date] = records + 1, seqs + record.seq, miles + record.data["distance"]
            digest.update(bytes(record.data_raw) + b"\n")
        seq, caught_up = page.next_from_seq, page.caught_up
    return found, digest.hexdigest()
