"""kill -9 of a broker under an idempotent producer and a group of three, again and again."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import is_long
from tests.support.broker_process import BrokerProcess, verify
from tests.support.group_load import GroupLoad, all_values, committed

LONG = is_long(os.environ)
KILLS = 20 if LONG else 3
TOPICS = {"a": "fsync", "b": "disk", "c": "disk"}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.fixture
def port() -> int:
    """The same one for every process, so that clients find it again."""
    return free_port()


@pytest.fixture
def broker(tmp_path: Path, port: int) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, kafka_port=port, wal_shards=2, snapshot_interval_ms=500) as process:
        yield process


@pytest.mark.timeout(1200 if LONG else 200)
def test_acked_records_are_there_once_and_committed_offsets_never_go_back(
    broker: BrokerProcess, port: int, dice: random.Random
) -> None:
    broker.start()
    for topic, durability in TOPICS.items():
        broker.ok("PUT", f"/v0/topics/{topic}", {"durability": durability})
    load = GroupLoad(f"127.0.0.1:{port}", list(TOPICS), members=3)
    places = [(topic, 0) for topic in TOPICS]
    with load.running():
        for _ in range(KILLS):
            load.wait_commits(5)
            time.sleep(dice.uniform(0, 0.5))
            broker.kill()
            floor = dict(load.floor)
            broker.start()
            there = committed(load.address, places)
            assert {place: there[place] for place in floor if there[place] < floor[place]} == {}, floor
        load.wait_commits(5)
        load.sent.stop()
        load.wait_read()
    assert [problem for reader in load.readers for problem in reader.problems] == []
    assert load.sent.failed == []
    assert len(load.sent.acked) == load.sent.count
    found = all_values(load.address, list(TOPICS))
    assert [value for value in load.sent.acked if found[value] != 1] == []
    assert sum(found.values()) == load.sent.count
    assert broker.complaints() == []
    assert broker.stop() == 0
    verify(broker.data_dir)
