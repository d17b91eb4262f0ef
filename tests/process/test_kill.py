"""kill -9 at random moments under load, on the real disk: a restart finds every acknowledged write."""

from __future__ import annotations

import contextlib
import io
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import storage.__main__ as storage_command
from tests.conftest import is_soak
from tests.support.broker_process import BrokerProcess, verify
from tests.support.kill_connection import Connection
from tests.support.kill_ledger import Outcome
from tests.support.kill_load import Ledger, Load
from tests.support.kill_settle import check, settle
from tests.support.kill_view import View, views

SOAK = is_soak(os.environ)
#: Rounds of kills in the fast tier, and in the slow one.
FEW_ROUNDS = 2
ROUNDS = 50 if SOAK else 4

# With small files (the default here) and frequent snapshots, kills also meet file changes, trimming and snapshots.
SMALL: dict[str, Any] = {
    "wal_shards": 2,
    "snapshot_interval_ms": 300,
    "snapshot_wal_bytes": 256 << 10,
    "sync_point_bytes": 64 << 10,
}


# Tiny segments, processed as fast as possible: kills also meet flushing, sealing, flags, rewriting and drops.
SEGMENTS: dict[str, Any] = {
    "wal_shards": 2,
    "wal_file_bytes": 256 << 10,
    "wal_reserve_bytes": 32 << 10,
    "sync_point_bytes": 64 << 10,
    "snapshot_interval_ms": 1000,
    "segment_max_events": 100,
    "checkpoint_records": 50,
    "checkpoint_interval_ms": 100,
    "max_open_segments": 8,
}
SEGMENT_ROUNDS = 30 if SOAK else 3


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, **SMALL) as process:
        yield process


@pytest.fixture
def segmented(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, **SEGMENTS) as process:
        yield process


async def all_views(broker: BrokerProcess) -> dict[str, View]:
    async with Connection(broker.port) as connection:
        return await views(connection)


def has_torn_end(broker: BrokerProcess) -> bool:
    """Whether a kill hit a write of the log and left a part of it: the start then moved that to the quarantine."""
    quarantine = broker.data_dir / "quarantine"
    return quarantine.exists() and any(quarantine.iterdir())


def is_sound(data_dir: Path) -> None:
    """`python -m storage verify`, without starting another interpreter."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert storage_command.main(["verify", str(data_dir)]) == 0, said.getvalue()


@pytest.mark.fast
@pytest.mark.timeout(1800 if SOAK else 600)
@pytest.mark.parametrize(
    "rounds",
    [pytest.param(FEW_ROUNDS, id="few-rounds"), pytest.param(ROUNDS, id="some-rounds", marks=pytest.mark.slow)],
)
async def test_acked_writes_survive_kills_under_load(broker: BrokerProcess, dice: random.Random, rounds: int) -> None:
    await be_killed_again_and_again(broker, dice, rounds)


@pytest.mark.timeout(1800 if SOAK else 600)
async def test_acked_writes_survive_kills_during_flushes_to_segments(
    segmented: BrokerProcess, dice: random.Random
) -> None:
    await be_killed_again_and_again(segmented, dice, SEGMENT_ROUNDS)
    found = list((segmented.data_dir / "topics").glob("*/seg-*.data"))
    print(f"{len(found)} segments are left")
    assert len(found) >= 10


async def be_killed_again_and_again(broker: BrokerProcess, dice: random.Random, rounds: int) -> None:
    """Under load. After each round everything that was answered is checked."""
    ledger = Ledger(dice)
    broker.start()
    await ledger.create(broker.port)
    there = 0
    for number in range(rounds):
        await Load(ledger, broker.port, dice.randrange(50, 1500), broker.process.kill).run()
        broker.wait()
        is_sound(broker.data_dir)
        broker.start()
        found = await all_views(broker)
        check(ledger, found, torn=has_torn_end(broker))
        if number % 2 == 0:
            # A second recovery, after a kill or a clean stop, gives the same result.
            end_somehow(broker, dice)
            broker.start()
            assert await all_views(broker) == found
        async with Connection(broker.port) as connection:
            there += await settle(ledger, connection)
    check(ledger, await all_views(broker))
    assert broker.stop() == 0
    print(f"{rounds} rounds: {verify(broker.data_dir)}")
    print({outcome.value: count for outcome, count in ledger.counts.items()}, f"of unknown ones {there} were there")
    assert broker.complaints() == []
    assert ledger.counts[Outcome.OK] >= 50 * rounds
    assert ledger.counts[Outcome.UNKNOWN] > 0


def end_somehow(broker: BrokerProcess, dice: random.Random) -> None:
    if dice.random() < 0.5:
        broker.kill()
    else:
        assert broker.stop() == 0


async def test_acked_writes_survive_a_kill_during_recovery(broker: BrokerProcess, dice: random.Random) -> None:
    ledger = Ledger(dice)
    broker.start()
    await ledger.create(broker.port)
    await Load(ledger, broker.port, 600, broker.process.kill).run()
    broker.wait()
    for _ in range(3):
        broker.launch()
        broker.wait_listening()
        broker.kill()
        is_sound(broker.data_dir)
    # Nothing guarantees the page cache here. Seqs that had been reserved are given up and announced as lost, as after a
    # power failure.
    broker.start(trust_page_cache=0)
    found = await all_views(broker)
    reserving = [book for book in ledger.books() if book.durability != "fsync"]
    for book in reserving:
        book.tight = False
    check(ledger, found)
    assert all(found[book.topic].gaps for book in reserving if book in ledger.fixed)
    async with Connection(broker.port) as connection:
        await settle(ledger, connection)
    check(ledger, await all_views(broker))
    assert broker.stop() == 0
    assert broker.complaints() == []
    is_sound(broker.data_dir)
