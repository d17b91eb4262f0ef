"""A full disk under an idempotent producer and a group of two: all wait, none fails, and with space they continue."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess, verify
from tests.support.group_load import GroupLoad, all_there_once, all_values, committed, make_topics
from tests.support.ports import free_port
from tests.support.small_disk import SMALL_LOG, SmallDisk

TOPICS = {"a": 1, "b": 2}
PLACES = [("a", 0), ("b", 0), ("b", 1)]
QUIET_S = 1.0


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def broker(tmp_path: Path, small_disk: SmallDisk, port: int) -> Iterator[BrokerProcess]:
    data_dir = small_disk.mount_point / "data"
    with BrokerProcess(tmp_path, data_dir=data_dir, prefix=small_disk.prefix, kafka_port=port, **SMALL_LOG) as process:
        process.start()
        yield process


def wait_stuck(load: GroupLoad, disk: SmallDisk) -> None:
    """Wait until no ack has come for a while and no byte is left."""
    acked, since = -1, time.monotonic()
    while time.monotonic() - since < QUIET_S:
        disk.fill(leave_bytes=0)
        if len(load.sent.acked) != acked:
            acked, since = len(load.sent.acked), time.monotonic()
        time.sleep(0.02)


@pytest.mark.parametrize(
    "killed", [pytest.param(False, id="as-it-runs"), pytest.param(True, id="killed-when-full", marks=pytest.mark.soak)]
)
@pytest.mark.timeout(200)
def test_kafka_clients_wait_for_space_and_lose_no_record(
    broker: BrokerProcess, small_disk: SmallDisk, port: int, killed: bool
) -> None:
    make_topics(f"127.0.0.1:{port}", TOPICS)
    broker.ok("PUT", "/v0/topics/a", {"durability": "fsync"})
    load = GroupLoad(f"127.0.0.1:{port}", list(TOPICS), members=2)
    with load.running():
        load.wait_commits(5)
        wait_stuck(load, small_disk)
        load.wait_read()
        assert load.sent.count > len(load.sent.acked)
        if killed:
            broker.kill()
            broker.start()
        floor = dict(load.floor)
        there = committed(load.address, PLACES)
        assert {place: there[place] for place in floor if there[place] < floor[place]} == {}, floor
        count = len(load.sent.acked)
        small_disk.relieve()
        broker.until(lambda: len(load.sent.acked) > count)
        load.wait_commits(5)
        load.sent.stop()
        load.wait_read()
    found = all_there_once(load, PLACES)
    broker.kill()
    broker.start()
    assert all_values(load.address, PLACES) == found
    assert broker.stop() == 0
    verify(broker.data_dir, small_disk.prefix)
