"""How much of a topic stays in the log, depending on its records, batches and bytes, and on how records are deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import pytest

from storage import Discard, Durability, Engine, Options, Retention, TopicConfig
from storage.errors import TopicFull
from storage.segments import flusher
from storage.segments.flusher import CONSUMED_RECORDS
from storage.state.catalog import Topic
from tests.unit.storage.machine import Machine, records, sized

LARGE = {"wal_file_bytes": 64 << 20, "wal_reserve_bytes": 4 << 20}
FSYNC = TopicConfig(durability=Durability.FSYNC)
CONSUMED = TopicConfig(durability=Durability.FSYNC, retention=Retention.CONSUMED)
DEFAULTS = Options()


async def looked(engine: Engine) -> int:
    """How many records of `t` are in segments after the flusher has run."""
    await engine.segment_worker.tick()
    return engine.topic("t").log.held.flushed


async def write(engine: Engine, count: int, batch: int, config: TopicConfig) -> None:
    for _ in range(0, count, batch):
        await engine.append("t", records(batch), config=config)


@pytest.mark.parametrize(
    ("option", "batch", "most"), [("checkpoint_records", 500, 5000), ("checkpoint_batches", 1, 200)]
)
async def test_a_topic_is_flushed_from_checkpoint_records_on(
    machine: Machine, option: str, batch: int, most: int
) -> None:
    engine = await machine.start(**LARGE, **{option: most})
    await write(engine, most - batch, batch, FSYNC)
    assert await looked(engine) == 0
    await write(engine, batch, batch, FSYNC)
    assert await looked(engine) > 0


async def test_a_topic_is_flushed_from_checkpoint_bytes_on(machine: Machine) -> None:
    engine = await machine.start(**LARGE, checkpoint_bytes=1 << 20)
    await engine.append("t", [sized(1 << 19)], config=FSYNC)
    assert await looked(engine) == 0
    await engine.append("t", [sized((1 << 19) + 100)])
    assert await looked(engine) == 2


async def test_with_the_defaults_a_small_log_is_flushed_only_after_its_maximum_age(machine: Machine) -> None:
    engine = await machine.start(**LARGE)
    await write(engine, 2 * CONSUMED_RECORDS, 1000, FSYNC)
    assert await looked(engine) == 0
    await machine.clock.advance(DEFAULTS.checkpoint_age_ms + 1)
    assert await looked(engine) == 2 * CONSUMED_RECORDS


async def test_a_topic_with_retention_consumed_is_flushed_sooner(machine: Machine) -> None:
    engine = await machine.start(**LARGE)
    await write(engine, CONSUMED_RECORDS - 1000, 1000, CONSUMED)
    assert await looked(engine) == 0
    await write(engine, 1000, 1000, CONSUMED)
    assert await looked(engine) == CONSUMED_RECORDS


async def test_a_full_topic_accepts_records_as_soon_as_older_records_are_consumed(machine: Machine) -> None:
    engine = await machine.start(**LARGE)
    config = TopicConfig(
        durability=Durability.FSYNC, retention=Retention.CONSUMED, cap_records=20_000, discard=Discard.REJECT
    )
    await engine.put_topic("t", config)
    await engine.consumers.put("t", "c")
    refused = 0
    for _ in range(40):
        try:
            await engine.append("t", records(2000))
        except TopicFull:
            refused += 1
        await engine.consumers.commit("t", "c", engine.state("t").head_seq)
        await machine.clock.advance(1000)
        await engine.segment_worker.tick()
    assert refused == 0


async def test_a_topic_deleted_during_a_round_is_skipped(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await machine.start(checkpoint_records=1)
    for name in "tu":
        await engine.append(name, records(5), config=CONSUMED)

    async def slowly(topics: Iterable[Topic], _: object) -> AsyncIterator[Topic]:
        for topic in topics:
            if topic.name == "u":
                await engine.delete_topic("u")
            yield topic

    monkeypatch.setattr(flusher, "in_slices", slowly)
    await engine.flusher.work()
    assert engine.topic("t").log.held.flushed == 5
