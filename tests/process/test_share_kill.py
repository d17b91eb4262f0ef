"""kill -9 of a broker under two share consumers: no job is lost, and no job returns whose acknowledgement was
answered."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer

from tests.conftest import is_soak
from tests.support.broker_process import BrokerProcess, verify
from tests.support.ports import free_port

SOAK = is_soak(os.environ)
KILLS = 12 if SOAK else 1
BATCH = 40
PATIENCE_S = 60.0


@pytest.fixture
def port() -> int:
    """The same port for every process, so that clients find it again."""
    return free_port()


@pytest.fixture
def broker(tmp_path: Path, port: int) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, kafka_port=port, wal_shards=2, snapshot_interval_ms=500) as process:
        yield process


class Workers:
    """Two consumers, each on a thread. `done`: offsets whose acknowledgement was answered, and how often."""

    def __init__(self, address: str) -> None:
        self._settings = {
            "bootstrap.servers": address,
            "group.id": "g",
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": 5,
            "reconnect.backoff.max.ms": 200,
            "socket.timeout.ms": 10_000,
        }
        self.done: dict[int, int] = {}
        self.rejected: set[int] = set()
        self.problems: list[str] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(2)]

    def __enter__(self) -> Workers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    def _run(self) -> None:
        consumer = ShareConsumer(self._settings)
        consumer.subscribe(["q"])
        while not self._over.is_set():
            with suppress(KafkaException):
                self._turn(consumer)
        consumer.close()

    def _turn(self, consumer: Any) -> None:
        taken: list[int] = []
        for message in consumer.poll(0.2):
            if message.error() is not None:
                continue
            offset = message.offset()
            with self._lock:
                if offset in self.done:
                    self.problems.append(f"{offset} came again")
            reject = offset % 10 == 7
            consumer.acknowledge(message, AcknowledgeType.REJECT if reject else AcknowledgeType.ACCEPT)
            taken.append(offset)
        if not taken:
            return
        for error in consumer.commit_sync(5.0).values():
            if error is not None:
                return  # the acknowledgement may not have been carried out, so these jobs may come again
        with self._lock:
            for offset in taken:
                self.done[offset] = self.done.get(offset, 0) + 1


@pytest.mark.fast
@pytest.mark.timeout(900 if SOAK else 300)
@pytest.mark.parametrize("leases_durable", [pytest.param(False, marks=pytest.mark.slow), True])
def test_every_job_is_done_and_no_acknowledged_job_returns(
    broker: BrokerProcess, port: int, dice: random.Random, leases_durable: bool
) -> None:
    broker.start()
    settings = {"type": "queue", "durability": "fsync", "leases_durable": leases_durable, "lease_ms": 2000}
    broker.ok("PUT", "/v0/topics/q", settings | {"dead_letter": "dead"})
    with Workers(f"127.0.0.1:{port}") as workers:
        for _ in range(KILLS):
            broker.ok("POST", "/v0/topics/q", {"records": [{"data": n} for n in range(BATCH)]})
            time.sleep(dice.uniform(0.2, 0.8))
            broker.kill()
            broker.start()
        broker.ok("POST", "/v0/topics/q", {"records": [{"data": n} for n in range(BATCH)]})

        def drained() -> bool:
            state = broker.ok("GET", "/v0/topics/q")["queue"]
            return not state["ready"] + state["in_flight"] + state["delayed"] + state["dead_pending"]

        broker.until(drained, PATIENCE_S)
        # This includes jobs whose acknowledgement was carried out and never answered.
        assert len(workers.done) > BATCH // 2
    assert workers.problems == []
    rejected = {offset for offset in range((KILLS + 1) * BATCH) if offset % 10 == 7}
    dead = broker.ok("POST", "/v0/topics/dead/diff", {"from_seq": 0, "limit": 1000})["records"]
    assert sorted(int(each["meta"]["$dead_letter_src_seq"]) - 1 for each in dead) == sorted(rejected)
    assert broker.complaints() == []
    assert broker.stop() == 0
    verify(broker.data_dir)
