"""kill -9 of a broker whose consumers are read while clients write: each consumer keeps its promise over a crash."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import is_soak
from tests.support.broker_process import BrokerProcess, verify
from tests.support.consumer_load import Kind, Load, make_consumers, through_kills, told

SOAK = is_soak(os.environ)
BATCHES = 600 if SOAK else 40
KILLS = 30 if SOAK else 4
PATIENCE_S = 120.0
TOPICS = {"a": "fsync", "b": "disk"}

# With small files (the default here) and frequent snapshots, kills also meet file changes, trimming and snapshots.
SMALL: dict[str, Any] = {
    "wal_shards": 2,
    "snapshot_interval_ms": 300,
    "snapshot_wal_bytes": 256 << 10,
    "sync_point_bytes": 64 << 10,
    "checkpoint_records": 200,
}


KINDS = [
    Kind("strict-single", "a", "strictly_at_once", 1, readers=3),
    Kind("strict-batch", "b", "strictly_at_once", 20),
    Kind("strict-alone", "b", "strictly_at_once", 5, readers=1),
    Kind("single", "a", "at_least_once", 1, readers=3, persist_every=25),
    Kind("alone", "a", "at_least_once", 10, readers=1, persist_every=40),
    Kind("batch", "b", "at_least_once", 20, persist_every=60),
    Kind("each", "b", "at_least_once", 20, persist_every=1),
    Kind("commits", "a", "at_least_once", 7, readers=1, commits=True),
    Kind("strict-commits", "b", "strictly_at_once", 7, readers=1, commits=True),
]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, **SMALL) as process:
        yield process


@pytest.mark.timeout(1800 if SOAK else 600)
async def test_consumers_keep_their_promises_over_kills(broker: BrokerProcess, dice: random.Random) -> None:
    broker.start()
    for topic, durability in TOPICS.items():
        broker.ok("PUT", f"/v0/topics/{topic}", {"durability": durability})
    load = Load(broker, dice, KINDS, batches=BATCHES)
    make_consumers(load)
    await through_kills(load, KILLS, PATIENCE_S)
    assert load.problems() == []
    told(load)
    assert broker.stop() == 0
    assert broker.complaints() == []
    print(verify(broker.data_dir))
