"""Unmodified clients with a real set of cells: all their operations, and what they see while cells are killed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.kafka.cells.several import CELLS, name_of
from tests.support.broker_process import PYTHON_PATH, BrokerProcess

PATIENCE_S = 90
pytestmark = pytest.mark.slow


class KafkaCells(BrokerProcess):
    """A set whose cells have ports for Kafka clients; without a gateway."""

    def __init__(self, directory: Path) -> None:
        self._kafka_port_file = directory / "kafka-port"
        super().__init__(
            directory, cells=CELLS, gateways=0, wal_shards=1, kafka_port=0, kafka_port_file=self._kafka_port_file
        )

    def wait_ready(self) -> None:
        """Wait until all cells serve: a list is answered only with the topics of all."""
        self.until(self._kafka_port_file.exists)
        self.until(lambda: all((self.data_dir / "run" / f"cell-{cell:02d}.peer").exists() for cell in range(CELLS)))
        AdminClient({"bootstrap.servers": self.address}).list_topics(timeout=PATIENCE_S)

    def wait_listening(self) -> None:
        """There is no HTTP port."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{int(self._kafka_port_file.read_text())}"


@pytest.fixture
def cells(tmp_path: Path) -> Iterator[KafkaCells]:
    with KafkaCells(tmp_path) as found:
        found.start()
        yield found


@pytest.mark.parametrize("library", ["confluent", "kafka_python", "aio"])
def test_each_client_completes_its_walk(cells: KafkaCells, library: str) -> None:
    walked = subprocess.run(
        [sys.executable, "-m", f"tests.kafka.walks.{library}", cells.address],
        env={**os.environ, "PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert walked.returncode == 0, walked.stdout + walked.stderr + cells.log()


class _Sending(threading.Thread):
    """Produces to all topics until told to stop. `acked`: the values whose delivery was reported."""

    def __init__(self, address: str, topics: list[str]) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._topics = topics
        self.acked: set[bytes] = set()
        self.refused: list[str] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        producer = Producer({"bootstrap.servers": self._address, "enable.idempotence": True, "linger.ms": 5})

        def delivered(error: object, message: object) -> None:
            if error is None:
                self.acked.add(message.value())  # type: ignore[attr-defined]  # pyright: ignore
            else:
                self.refused.append(str(error))

        number = 0
        while not self.stopping.is_set():
            for topic in self._topics:
                producer.produce(
                    topic, b"%s %d" % (topic.encode(), number), partition=number % 2, on_delivery=delivered
                )
            number += 1
            producer.poll(0.01)
        assert producer.flush(PATIENCE_S) == 0


def test_killed_cells_lose_no_acked_record_and_the_group_continues(cells: KafkaCells) -> None:
    topics = [name_of(cell, "orders") for cell in range(CELLS)]
    group = name_of(1, "group")
    admin: Any = AdminClient({"bootstrap.servers": cells.address})
    made = admin.create_topics([NewTopic(each, 2, 1) for each in topics])
    for each in made.values():
        each.result(PATIENCE_S)
    settings = {
        "bootstrap.servers": cells.address,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 500,
        "topic.metadata.refresh.interval.ms": 1000,
    }
    members = [Consumer({**settings, "client.id": f"m{number}"}) for number in range(2)]
    for each in members:
        each.subscribe(topics)
    sending = _Sending(cells.address, topics)
    sending.start()
    seen: set[bytes] = set()

    def read(until: float) -> None:
        while time.monotonic() < until:
            for member in members:
                for message in member.consume(500, 0.05):
                    if message.error() is None:
                        value = message.value()
                        assert isinstance(value, bytes)
                        seen.add(value)
                try:
                    member.commit(asynchronous=False)
                except Exception:  # nothing to commit, or its cell is away: it commits again
                    continue

    read(time.monotonic() + 5)
    for cell in (0, 1, 2):  # cell 1 is the coordinator
        before = len(seen)
        cells.kill_cell(cell)
        deadline = time.monotonic() + PATIENCE_S
        read(time.monotonic() + 3)
        while len(seen) <= before or not _holds_all(members):
            assert time.monotonic() < deadline, f"the group stands after cell {cell} was killed: {cells.log()[-3000:]}"
            read(time.monotonic() + 0.5)
    sending.stopping.set()
    sending.join(PATIENCE_S)
    assert not sending.is_alive()
    assert sending.refused == []
    deadline = time.monotonic() + PATIENCE_S
    while not sending.acked <= seen:
        assert time.monotonic() < deadline, f"{len(sending.acked - seen)} of {len(sending.acked)} acked records lost"
        read(time.monotonic() + 0.5)
    assert len(seen) > 100
    # The offsets survived: a new member begins where the group was, in the topics of all cells.
    read(time.monotonic() + 1)
    partitions = [TopicPartition(topic, number) for topic in topics for number in range(2)]
    committed = members[0].committed(partitions, timeout=PATIENCE_S)
    assert all(each.offset > 0 for each in committed), committed
    for each in members:
        each.close()


def _holds_all(members: list[Consumer]) -> bool:
    return sum(len(each.assignment()) for each in members) == 2 * CELLS
