"""A refused batch leaves nothing: no record, no seq, no topic, not after a restart either."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from storage import Discard, Durability, Engine, NewRecord, TopicConfig
from storage.errors import BatchTooLarge, InvalidRequest, LimitReached, RecordTooLarge, StorageError, StorageFull
from storage.errors import TopicFull as Full
from tests.unit.storage.machine import Machine

OPTIONS = {"max_record_bytes": 10_000, "max_batch_records": 20}
REFUSED: list[tuple[list[Any], type[StorageError]]] = [
    ([b"good", math.nan], InvalidRequest),
    (["good", {1, object()}], InvalidRequest),
    ([b"good", b"x" * 10_001], RecordTooLarge),
    (["good", "x" * 10_000], RecordTooLarge),
    ([b"good"] * 21, BatchTooLarge),
    ([], InvalidRequest),
    ([b"good", NewRecord(msgspec.Raw(b"1"), tag="x" * 257)], InvalidRequest),
    ([b"good", NewRecord(msgspec.Raw(b"1"), delay_ms=1)], InvalidRequest),
]


async def seen(engine: Engine) -> list[Any]:
    """The figures and values of all topics."""
    found: list[Any] = []
    for state in engine.topics():
        batch = await engine.read_batch(state.topic, "eye", checkpoint=False)
        found.append((state.topic, state.head_seq, state.count, state.bytes, [record.value for record in batch]))
    return found


async def begun(machine: Machine, durability: Durability, **changes: Any) -> Engine:
    engine = await machine.start(**{**OPTIONS, **changes})
    await engine.append_batch("t", [b"first", "second"], config=TopicConfig(durability=durability))
    return engine


@pytest.mark.parametrize("durability", [Durability.MEMORY, Durability.DISK, Durability.FSYNC])
@pytest.mark.parametrize(("batch", "error"), REFUSED)
async def test_an_invalid_batch_leaves_no_trace(
    machine: Machine, durability: Durability, batch: list[Any], error: type[StorageError]
) -> None:
    engine = await begun(machine, durability)
    before = await seen(engine)
    for topic in ("t", "new"):
        with pytest.raises(error):
            await engine.append_batch(topic, batch)
    assert await seen(engine) == before
    assert (await engine.append("t", b"third")).first_seq == 3
    engine = await machine.kill(**OPTIONS)
    assert await seen(engine) == [("t", 3, 3, 18, [b"first", "second", b"third"])]


@pytest.mark.parametrize("durability", [Durability.DISK, Durability.FSYNC])
async def test_a_batch_refused_by_a_full_disk_leaves_no_trace(machine: Machine, durability: Durability) -> None:
    engine = await begun(machine, durability)
    machine.disk.capacity_bytes = machine.disk.used_bytes
    taken, refused = 0, 0
    while refused < 3:
        try:
            await engine.append_batch("t", [b"x" * 5000] * 12)
            taken += 12
        except StorageFull:
            refused += 1
    assert await seen(engine) == [
        ("t", 2 + taken, 2 + taken, 13 + 5000 * taken, [b"first", "second", *[b"x" * 5000] * taken])
    ]
    before = await seen(engine)
    with pytest.raises(StorageFull):
        await engine.append_batch("new", [b"x"])
    machine.disk.capacity_bytes = None
    engine = await machine.kill(**OPTIONS)
    assert await seen(engine) == before
    assert (await engine.append("t", b"behind")).first_seq == 3 + taken


async def test_a_batch_refused_by_a_full_engine_or_topic_leaves_no_trace(machine: Machine) -> None:
    engine = await begun(machine, Durability.DISK, max_total_bytes=40)
    await engine.put_topic("capped", TopicConfig(cap_records=1, discard=Discard.REJECT))
    await engine.append("capped", b"x")
    before = await seen(engine)
    with pytest.raises(LimitReached):
        await engine.append_batch("t", [b"x" * 10] * 3)
    with pytest.raises(LimitReached):
        await engine.append_batch("new", [b"x" * 10] * 3)
    with pytest.raises(Full):
        await engine.append_batch("capped", [b"y"])
    assert await seen(engine) == before
    engine = await machine.kill(**OPTIONS)
    assert await seen(engine) == before
