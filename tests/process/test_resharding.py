"""kill -9 while a start changes the number of log shards: the next start finds everything, whatever its number."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker_process import BrokerProcess, verify

TOPICS = 25
RECORDS = 10


def fill(broker: BrokerProcess) -> None:
    for number in range(TOPICS):
        body = {
            "records": [{"data": [number, index], "tag": f"tag-{index % 2}"} for index in range(RECORDS)],
            "config": {"durability": "fsync"},
        }
        broker.ok("POST", f"/v0/topics/topic-{number:03d}", body)


def contents(broker: BrokerProcess) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for number in range(TOPICS):
        topic = f"topic-{number:03d}"
        answer = broker.ok("POST", f"/v0/topics/{topic}/diff", {"from_seq": 0, "limit": 1000})
        assert answer["caught_up"]
        assert answer.get("tombstone") is None
        found[topic] = answer["records"]
    return found


def log_files(data_dir: Path) -> set[str]:
    """The names at this moment: folders may disappear while they are listed."""
    found = os.walk(data_dir / "wal")
    return {f"{folder}/{name}" for folder, _, names in found for name in names if name.endswith(".log")}


def moments(data_dir: Path, dice: random.Random) -> list[Callable[[], bool]]:
    """Stages of a change: some segments made, a snapshot, a log file gone, all done."""
    folders = dice.randrange(1, TOPICS)
    logs, snapshots = log_files(data_dir), set((data_dir / "meta").glob("snapshot-*.bin"))
    return [
        lambda: len(list((data_dir / "topics").glob("*/seg-*.idx"))) >= folders,
        lambda: bool(set((data_dir / "meta").glob("snapshot-*.bin")) - snapshots),
        lambda: bool(logs - log_files(data_dir)),
        lambda: bool(log_files(data_dir) - logs),
    ]


def look(broker: BrokerProcess, condition: Callable[[], bool]) -> None:
    """Wait for it without a pause: a change takes a few hundred milliseconds."""
    deadline = time.monotonic() + 60
    while not condition():
        assert broker.process.poll() is None, broker.log()
        assert time.monotonic() < deadline


@pytest.mark.timeout(300)
def test_a_killed_change_of_the_shard_count_loses_no_record(tmp_path: Path, dice: random.Random) -> None:
    with BrokerProcess(tmp_path) as broker:
        broker.start(wal_shards=1)
        fill(broker)
        wanted = contents(broker)
        broker.kill()
        assert [len(records) for records in wanted.values()] == [RECORDS] * TOPICS
        before = 1
        for stage, count in enumerate([3, 4, 2, 5]):
            broker.launch(wal_shards=count)
            look(broker, moments(broker.data_dir, dice)[stage])
            time.sleep(dice.uniform(0, 0.01))
            broker.kill()
            before = dice.choice([before, count])
            broker.start(wal_shards=before)
            assert contents(broker) == wanted
            broker.kill()
        broker.start(wal_shards=6)
        assert contents(broker) == wanted
        broker.ok("DELETE", "/v0/topics/topic-000")
        assert len(list((broker.data_dir / "wal").iterdir())) == 6
        assert broker.stop() == 0
        verify(broker.data_dir)
        assert broker.complaints() == []
