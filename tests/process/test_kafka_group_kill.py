"""kill -9 of a broker under an idempotent producer and a group of three, again and again."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import is_soak
from tests.support.broker_process import BrokerProcess, verify
from tests.support.group_load import GroupLoad, all_there_once, committed, make_topics
from tests.support.ports import free_port

SOAK = is_soak(os.environ)
KILLS = 20 if SOAK else 3
#: Partitions by topic; the first is synced with each write.
TOPICS = {"a": 1, "b": 3}
PLACES = [("a", 0), ("b", 0), ("b", 1), ("b", 2)]


@pytest.fixture
def port() -> int:
    """The same port for every process, so that clients find it again."""
    return free_port()


@pytest.fixture
def broker(tmp_path: Path, port: int) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, kafka_port=port, wal_shards=2, snapshot_interval_ms=500) as process:
        yield process


@pytest.mark.timeout(1200 if SOAK else 600)
def test_acked_records_exist_once_and_committed_offsets_never_go_back(
    broker: BrokerProcess, port: int, dice: random.Random
) -> None:
    broker.start()
    make_topics(f"127.0.0.1:{port}", TOPICS)
    broker.ok("PUT", "/v0/topics/a", {"durability": "fsync"})
    load = GroupLoad(f"127.0.0.1:{port}", list(TOPICS), members=3)
    with load.running():
        for _ in range(KILLS):
            load.wait_commits(5)
            time.sleep(dice.uniform(0, 0.5))
            broker.kill()
            floor = dict(load.floor)
            broker.start()
            there = committed(load.address, PLACES)
            assert {place: there[place] for place in floor if there[place] < floor[place]} == {}, floor
        load.wait_commits(5)
        load.sent.stop()
        load.wait_read()
    all_there_once(load, PLACES)
    assert broker.complaints() == []
    assert broker.stop() == 0
    verify(broker.data_dir)
