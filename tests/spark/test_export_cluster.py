"""Exports of a topic with 16 partitions on a Spark cluster, while producers write, segments move to the cold tier, and
executors, drivers and the broker are killed: tables have every record once."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.export.part_settings import TABLES, PartSettings
from pipeline.export.versions import whereabouts_of
from tests.pipeline.exports import Exports, command
from tests.support import duckdb_scans
from tests.support.broker_process import PATIENCE_S
from tests.support.other_packages import Counts
from tests.support.small_segments import SmallSegments
from tests.support.spark_cluster import Driver, SparkCluster
from tests.support.table_connectors import count
from topics_client import Client, NewRecord, TopicsError

TOPIC = "scaled"
PARTITIONS = 16
BATCH = 500
#: For a long run: TOPICS_TEST_EXPORT_RECORDS=10000000.
RECORDS = int(os.environ.get("TOPICS_TEST_EXPORT_RECORDS", "200000"))
#: What is killed, in this order, and again.
VICTIMS = ("executor", "driver", "broker")
KILLS = min(24, max(6, RECORDS // 250_000))
#: Of each partition, so most of them move to the cold tier.
SEGMENTS = 20
#: Manifests of the whole export, at least.
MANIFESTS = 10


class Producer:
    """Appends to all partitions as many records as it is told, and knows the last acked seq of each."""

    def __init__(self, broker: SmallSegments) -> None:
        self._broker = broker
        self._wanted = 0
        self.acked = dict.fromkeys(range(PARTITIONS), 0)
        self.count = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._stopped = threading.Event()
        self._thread.start()

    def want(self, records: int) -> None:
        """Append until there are that many records."""
        self._wanted = records

    def _run(self) -> None:
        while not self._stopped.is_set():
            # The broker may be dead, or alive at another port.
            with contextlib.suppress(TopicsError, OSError), Client(f"http://127.0.0.1:{self._broker.port}") as client:
                while self.count < self._wanted and not self._stopped.is_set():
                    at = random.randrange(PARTITIONS)
                    records = [NewRecord(data=b'{"n":%d}' % n) for n in range(BATCH)]
                    answer = client.append(TOPIC, records, partition=at)
                    self.acked[at] = max(self.acked[at], answer.last_seq)
                    self.count += BATCH
            time.sleep(0.05)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(PATIENCE_S)


class Run:
    """The drivers of one export, one after the other, and what is killed."""

    def __init__(self, cluster: SparkCluster, broker: SmallSegments, folder: Path, kind: str) -> None:
        self._cluster = cluster
        self._broker = broker
        self._log = folder / "driver.log"
        self._plans = folder / "out" / "_topics" / TOPIC
        self._arguments = ("--to", str(folder / "out"), "--format", kind, "--follow")
        self.killed = dict.fromkeys(VICTIMS, 0)
        self._driver = self._started()

    def _started(self) -> Driver:
        where = ("--url", self._broker.url, "--topics", TOPIC, "--max-records", str(RECORDS // MANIFESTS))
        return Driver(self._cluster, self._log, *where, *self._arguments)

    def at_work(self) -> bool:
        """Whether the driver has claimed a manifest that it has not put yet, and an executor works for it."""
        self.keep_running()
        return any(self._is_ours(path) for path in self._plans.glob("*.plan.json")) and bool(self._cluster.executors())

    def _is_ours(self, path: Path) -> bool:
        with contextlib.suppress(OSError, ValueError):
            return json.loads(path.read_bytes())["pid"] == self._driver.process.pid
        return False

    def keep_running(self) -> None:
        """Start another driver if this one has ended, as it does if the broker is away for long, or a task fails four
        times."""
        if self._driver.process.poll() is not None:
            self._driver = self._started()

    def kill(self, victim: str) -> None:
        """SIGKILL it."""
        if victim == "executor":
            os.kill(random.choice(self._cluster.executors()), signal.SIGKILL)
        elif victim == "driver":
            self._driver.kill()
        else:
            self._broker.kill()
            self._broker.start_again(port=self._broker.port)
        self.killed[victim] += 1

    def end(self) -> None:
        self._driver.kill()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition, while a driver runs."""
        deadline = time.monotonic() + 10 * PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"{what}\n{self._log.read_text()}"
            self.keep_running()
            time.sleep(0.05)


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_every_record_once_at_scale(tmp_path: Path, java_home: str, kind: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    broker = SmallSegments(
        tmp_path / "broker",
        cold_dir=tmp_path / "cold",
        hot_retain_segments=1,
        segment_max_events=max(BATCH, RECORDS // PARTITIONS // SEGMENTS),
    )
    with broker, SparkCluster(tmp_path / "spark", java_home) as cluster:
        broker.client.put_topic(TOPIC, partitions=PARTITIONS)
        producer = Producer(broker)
        run = Run(cluster, broker, tmp_path, kind)
        try:
            for turn in range(KILLS):
                producer.want(RECORDS * (turn + 1) // KILLS)
                run.until(run.at_work, f"no export is at work before kill {turn}")
                time.sleep(random.uniform(0, 3))
                if run.at_work():
                    run.kill(VICTIMS[turn % len(VICTIMS)])
            run.until(lambda: producer.count >= RECORDS, "the producer does not come to its end")
            producer.stop()
            broker.until(lambda: all(broker.is_durable(TOPIC, at) for at in range(PARTITIONS)))
            with Exports(broker.url, str(out)) as exports:
                exporter = exports.exporter(parts=PartSettings(kind=kind))
                run.until(lambda: not exporter.todo(TOPIC), "the export does not come to its end")
        finally:
            producer.stop()
            run.end()
        assert any((tmp_path / "cold").rglob("*.data")), "no segment has moved to the cold tier"
        with Exports(broker.url, str(out)) as exports:
            heads = {each.partition: each.head_seq for each in exports.origin.held(TOPIC)}
            rows, again = counted(exports, kind, java_home)
            versions = len(exports.chain(TOPIC).numbers())
        said = command("verify", "--to", str(out), "--topics", TOPIC, "--url", broker.url)
    assert all(heads[at] >= seq for at, seq in producer.acked.items())
    # Rows, different seqs, first and last seq of each partition.
    assert rows == {at: (head, head, 1, head) for at, head in heads.items() if head}
    assert again == rows
    assert sum(heads.values()) >= RECORDS
    assert "0 problems" in said, said
    print(f"{kind}: {sum(heads.values()):,} records, {versions} manifests, killed {run.killed}")


def counted(exports: Exports, kind: str, java_home: str) -> tuple[Counts, Counts]:
    """What DuckDB counts in the table, and what Spark counts, each with its own reader of that format."""
    path = whereabouts_of(exports.store, TOPIC)
    return duckdb_scans.count(kind, path)[0], count(kind, path, java_home)[0]
