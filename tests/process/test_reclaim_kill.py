"""kill -9 of a broker that drops consumed records: no unread record goes, and disk space is freed."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import is_soak
from tests.support.broker_process import BrokerProcess, verify
from tests.support.consumer_load import Kind, Load, make_consumers, through_kills, told
from tests.support.disk_use import allocated

SOAK = is_soak(os.environ)
KILLS = 30 if SOAK else 3
BATCHES = 600 if SOAK else 100
PATIENCE_S = 120.0
TOPICS = {"a": "fsync", "b": "disk", "late": "disk"}
RECORD_BYTES, SEGMENT_BYTES = 1000, 64 << 10
#: A segment holds as much of a topic as nobody frees before it is full.
LEFT_OVER = 2 * SEGMENT_BYTES

# Small segments, moved often, so that kills meet reclaiming at every step.
SMALL: dict[str, Any] = {
    "wal_shards": 2,
    "snapshot_interval_ms": 200,
    "snapshot_wal_bytes": 256 << 10,
    "sync_point_bytes": 64 << 10,
    "checkpoint_interval_ms": 20,
    "checkpoint_records": 20,
    "segment_max_bytes": SEGMENT_BYTES,
}

KINDS = [
    Kind("strict", "a", "strictly_at_once", 20, readers=2),
    Kind("single", "a", "at_least_once", 1, readers=3, persist_every=25),
    Kind("strict-alone", "b", "strictly_at_once", 5, readers=1),
    Kind("batch", "b", "at_least_once", 20, persist_every=60),
    Kind("commits", "b", "at_least_once", 20, readers=1, commits=True),
    # The second consumer holds what the first has passed, over most of the kills.
    Kind("early", "late", "strictly_at_once", 50, readers=1),
    Kind("late", "late", "at_least_once", 50, readers=1, persist_every=50, begins_at=0.9),
]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, **SMALL) as process:
        yield process


@pytest.mark.timeout(1800 if SOAK else 600)
async def test_kills_lose_no_unread_record_and_consumed_disk_space_is_freed(
    broker: BrokerProcess, dice: random.Random
) -> None:
    broker.start()
    for topic, durability in TOPICS.items():
        broker.ok("PUT", f"/v0/topics/{topic}", {"durability": durability, "retention": "consumed"})
    load = Load(broker, dice, KINDS, batches=BATCHES, record_bytes=RECORD_BYTES)
    make_consumers(load)
    looks: list[int] = []
    watching = asyncio.create_task(watch(load, looks))
    try:
        await through_kills(load, KILLS, PATIENCE_S)
    finally:
        watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    assert len(set(looks)) > 10, "too little was seen of what goes"
    assert load.problems() == []
    told(load)
    await given_back(broker, load)
    assert broker.stop() == 0
    assert broker.complaints() == []
    print(verify(broker.data_dir))


async def watch(load: Load, looks: list[int]) -> None:
    """During the load, no topic begins after the durable cursor of one of its consumers.

    `looks`: the beginnings of topics that were seen.
    """
    broker = load.broker
    while True:
        await asyncio.sleep(0.02)
        for topic in TOPICS:
            life = load.life
            try:
                # In this order: a cursor that moves between the two answers can only have been lower at the first.
                first_seq = (await asyncio.to_thread(broker.ok, "GET", f"/v0/topics/{topic}"))["earliest_seq"]
                found = await asyncio.to_thread(broker.ok, "GET", f"/v0/topics/{topic}/consumers")
            except (OSError, http.client.HTTPException, AssertionError):
                continue  # it is killed, or not ready
            if load.life == life:  # otherwise the answers are of two processes
                lowest = min(each["durable_seq"] for each in found["consumers"])
                assert first_seq <= lowest + 1, f"{topic} begins with {first_seq}, and a consumer stands at {lowest}"
                looks.append(first_seq)


async def given_back(broker: BrokerProcess, load: Load) -> None:
    """Everything but the last segment of each topic is gone, also from the disk."""
    assert load.heads is not None
    written = sum(load.heads.values()) * RECORD_BYTES
    topics = broker.data_dir / "topics"
    assert written > 6 * len(TOPICS) * LEFT_OVER  # otherwise it proves nothing
    async with asyncio.timeout(PATIENCE_S):
        while allocated(topics) > len(TOPICS) * LEFT_OVER:
            await asyncio.sleep(0.05)
    for topic, head_seq in load.heads.items():
        state = broker.ok("GET", f"/v0/topics/{topic}")
        assert state["head_seq"] == head_seq
        assert state["count"] * RECORD_BYTES <= LEFT_OVER, (topic, state)
        # None of it is announced as a loss.
        answer = broker.ok("POST", f"/v0/topics/{topic}/diff", {"from_seq": 0, "limit": 1})
        assert answer["tombstone"] is None, answer
    print(f"{written >> 10} KiB were written, {allocated(topics) >> 10} KiB are left in segments")
