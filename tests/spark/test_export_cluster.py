"""Exports of a topic with 16 partitions on a Spark cluster, while producers write, segments move to the cold tier, and
executors, drivers and the broker are killed: tables have every record once."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from pathlib import Path

import duckdb
import pytest

from pipeline.export.part_settings import TABLES, PartSettings
from pipeline.export.tables import TableChain
from tests.pipeline.exports import Exports
from tests.support.broker_process import PATIENCE_S
from tests.support.small_segments import SmallSegments
from tests.support.spark_cluster import Driver, SparkCluster
from topics_client import Client, NewRecord, TopicsError

TOPIC = "scaled"
PARTITIONS = 16
BATCH = 500
#: What is killed, in this order, and again.
VICTIMS = ("executor", "driver", "broker")


class Producer:
    """Appends to all partitions until it is stopped, and knows the last acked seq of each."""

    def __init__(self, broker: SmallSegments, records: int) -> None:
        self._broker = broker
        self._wanted = records
        self.acked = dict.fromkeys(range(PARTITIONS), 0)
        self.count = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._stopped = threading.Event()
        self._thread.start()

    def _run(self) -> None:
        while self.count < self._wanted and not self._stopped.is_set():
            # The broker may be dead, or alive at another port.
            with contextlib.suppress(TopicsError, OSError), Client(f"http://127.0.0.1:{self._broker.port}") as client:
                while self.count < self._wanted and not self._stopped.is_set():
                    at = random.randrange(PARTITIONS)
                    records = [NewRecord(data=b'{"n":%d}' % n) for n in range(BATCH)]
                    answer = client.append(TOPIC, records, partition=at)
                    self.acked[at] = max(self.acked[at], answer.last_seq)
                    self.count += BATCH
            time.sleep(0.05)

    def finish(self) -> None:
        """Wait until all records are appended."""
        self._thread.join(60 * PATIENCE_S)
        assert not self._thread.is_alive()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(PATIENCE_S)


def kill(victim: str, cluster: SparkCluster, broker: SmallSegments, driver: Driver) -> bool:
    """SIGKILL it. False: it is not there."""
    if victim == "executor":
        found = cluster.executors()
        if not found:
            return False
        os.kill(random.choice(found), signal.SIGKILL)
    elif victim == "driver":
        driver.kill()
    else:
        broker.kill()
        broker.start_again()
    return True


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(("records", "kills"), [(64_000, 3), (10_000_000, 24)], ids=["small", "large"])
@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_every_record_once_at_scale(
    tmp_path: Path, java_home: str, kind: str, records: int, kills: int, soak_mode: bool
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    killed = dict.fromkeys(VICTIMS, 0)
    broker = SmallSegments(
        tmp_path / "broker",
        cold_dir=tmp_path / "cold",
        hot_retain_segments=1,
        segment_max_events=20_000 if soak_mode else 500,
    )
    with broker, SparkCluster(tmp_path / "spark", java_home) as cluster:
        broker.client.put_topic(TOPIC, partitions=PARTITIONS)
        producer = Producer(broker, records)

        def start() -> Driver:
            where = ("--url", broker.url, "--topics", TOPIC, "--to", str(out), "--format", kind)
            return Driver(cluster, tmp_path / "driver.log", *where, "--follow", "--max-records", str(records // 10))

        driver = start()
        try:
            for turn in range(kills):
                began = time.monotonic()
                # Until the driver is at work, there is no executor.
                while not kill(VICTIMS[turn % len(VICTIMS)], cluster, broker, driver):
                    assert time.monotonic() < began + 6 * PATIENCE_S, driver.log.read_text()
                    if driver.process.poll() is not None:
                        driver = start()
                    time.sleep(0.2)
                killed[VICTIMS[turn % len(VICTIMS)]] += 1
                if driver.process.poll() is not None:
                    driver = start()
                # At any point of the next steps.
                time.sleep(random.uniform(0, 10))
            producer.finish()
        finally:
            producer.stop()
            driver.kill()
        broker.until(lambda: all(broker._durable(TOPIC, at) for at in range(PARTITIONS)))  # pyright: ignore
        assert any((tmp_path / "cold").rglob("*.data")), "no segment has moved to the cold tier"
        with Exports(broker.url, str(out)) as exports:
            exports.export(TOPIC, parts=PartSettings(kind=kind))
            heads = {each.partition: each.head_seq for each in exports.origin.held(TOPIC)}
            rows = counted(exports)
            versions = len(exports.chain(TOPIC).numbers())
    assert all(heads[at] >= seq for at, seq in producer.acked.items())
    # Rows, different seqs, first and last seq of each partition.
    assert rows == {at: (head, head, 1, head) for at, head in heads.items() if head}
    assert sum(heads.values()) >= records
    print(f"{kind}: {sum(heads.values()):,} records, {versions} manifests, killed {killed}")


def counted(exports: Exports) -> dict[int, tuple[int, int, int, int]]:
    """What DuckDB counts in the table."""
    chain = exports.chain(TOPIC)
    assert isinstance(chain, TableChain)
    table = chain.table()
    assert table is not None
    rows = (
        table.to_pyarrow_dataset().to_table(["partition", "seq"])
        if chain.called == "Delta"
        else table.scan(selected_fields=("partition", "seq")).to_arrow()
    )
    query = "SELECT partition, count(*), count(DISTINCT seq), min(seq), max(seq) FROM rows GROUP BY partition"
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        return {
            at: (count, different, low, high) for at, count, different, low, high in connection.sql(query).fetchall()
        }
