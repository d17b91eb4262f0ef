"""On a topic at its cap, every write that found the oldest segment unmeasured measured all of it, and then summed the
rest of it several times. Appends went at 600,000 records a second below the cap, and at 20,000 at the cap."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from storage import Durability, Engine, TopicConfig, TopicType
from storage.segments import details
from storage.state.manifest import Details, Segment
from storage.state.segment_sums import STRIDE
from tests.unit.storage.machine import Machine, log_of, sized

WRITERS = 32


async def engine_with_segments(machine: Machine, **config: Any) -> Engine:
    """Records 1 to 100 of "t", 10 bytes each, in segments of 10, as after a start: no sizes are known."""
    engine = await machine.start(tail_cache_bytes=0, segment_max_events=10)
    await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC, **config))
    for _ in range(10):
        await engine.append("t", [sized(10)] * 10)
    await engine.segment_worker.flush_all()
    return await machine.restart(tail_cache_bytes=0, segment_max_events=10)


def slow_loads(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The first seq of each segment that is measured. Other tasks run meanwhile, as during a read from a disk."""
    loaded: list[int] = []
    load = engine.store.details

    def counted(topic_id: int, segment: Segment) -> Details:
        loaded.append(segment.first_seq)
        return load(topic_id, segment)

    async def run_io(job: Callable[..., Any], *arguments: Any) -> Any:
        for _ in range(5):
            await asyncio.sleep(0)
        return job(*arguments)

    monkeypatch.setattr(engine.store, "details", counted)
    monkeypatch.setattr(engine.runtime, "run_io", run_io)
    return loaded


@pytest.mark.parametrize("config", [{"cap_records": 100}, {"cap_bytes": 1000}], ids=["records", "bytes"])
@pytest.mark.parametrize("type", list(TopicType))
async def test_concurrent_writers_share_a_single_load_of_a_segment(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, config: dict[str, int], type: TopicType
) -> None:
    engine = await engine_with_segments(machine, type=type, **config)
    loaded = slow_loads(engine, monkeypatch)
    await asyncio.gather(*(engine.append("t", [sized(10)]) for _ in range(WRITERS)))
    assert engine.state("t").earliest_seq == 1 + WRITERS
    assert (engine.state("t").count, engine.state("t").bytes) == (100, 1000)
    assert len(loaded) == len(set(loaded)) <= 5


async def test_later_segments_are_measured_before_a_write_needs_the_sizes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await engine_with_segments(machine, cap_records=100)
    loaded = slow_loads(engine, monkeypatch)
    for _ in range(20):
        await engine.append("t", [sized(10)])
        assert len(engine.segments._loads) <= details._LOADS_AHEAD
        for _ in range(10):
            await asyncio.sleep(0)
    assert loaded == [1, 11, 21, 31, 41, 51, 61, 71, 81, 91]
    assert engine.state("t").earliest_seq == 21
    # Writes that pass several segments while one is loaded do not wait for the loads.
    outcomes: list[Any] = []
    for _ in range(6):
        assert engine.try_append("t", [sized(10)] * 10, outcomes.append)
    await asyncio.sleep(0)
    assert engine.state("t").earliest_seq == 81
    assert len(outcomes) == 6


async def test_with_large_details_a_floor_measures_only_the_next_segment(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await engine_with_segments(machine, cap_records=100)
    monkeypatch.setattr(details, "MAX_BYTES", 300)  # a segment takes 52
    loaded = slow_loads(engine, monkeypatch)
    for _ in range(5):
        await engine.append("t", [sized(10)])
        for _ in range(10):
            await asyncio.sleep(0)
    assert loaded == [1, 11, 21]  # these take more than half of it
    assert (engine.state("t").count, engine.state("t").bytes) == (100, 1000)


async def test_a_cancelled_append_does_not_cancel_a_shared_load(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await engine_with_segments(machine, cap_records=100)
    loaded = slow_loads(engine, monkeypatch)
    first = asyncio.ensure_future(engine.append("t", [sized(10)]))
    second = asyncio.ensure_future(engine.append("t", [sized(10)]))
    for _ in range(3):
        await asyncio.sleep(0)
    first.cancel()
    assert (await second).first_seq == 101
    assert loaded == [1]


async def test_records_known_in_the_log_are_not_measured_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await machine.start(tail_cache_bytes=0, segment_max_events=10)
    loaded = slow_loads(engine, monkeypatch)
    await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC, cap_records=50))
    for number in range(20):
        await engine.append("t", [sized(10 + number)] * 10)
        await engine.segment_worker.flush_all()
    assert loaded == []
    log = log_of(engine, "t")
    assert (log.count, log.bytes) == (50, sum(10 * (10 + number) for number in range(15, 20)))
    assert (log.count, log.bytes) == log.held.totals(log.marks.live_floor, log.head + 1, log.marks.live_floor)


async def test_details_of_evicted_segments_make_room_for_flushed_segments(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(details, "REMEMBERED_SEGMENTS", 8)
    engine = await machine.start(tail_cache_bytes=0, segment_max_events=10)
    loaded = slow_loads(engine, monkeypatch)
    await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC, cap_records=50))
    for _ in range(20):
        await engine.append("t", [sized(10)] * 10)
        await engine.segment_worker.flush_all()
    assert loaded == []
    await engine.delete_topic("t")
    await engine.put_topic("other", TopicConfig(durability=Durability.FSYNC, cap_records=50))
    for _ in range(20):
        await engine.append("other", [sized(10)] * 10)
        await engine.segment_worker.flush_all()
    assert loaded == []


class CountedSizes(array):  # pyright: ignore[reportMissingTypeArgument]
    """Sizes that count how many of them are looked at."""

    looked_at = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        CountedSizes.looked_at += len(found) if isinstance(key, slice) else 1
        return found


@pytest.mark.parametrize("config", [{"cap_records": 20_000}, {"cap_bytes": 200_000}], ids=["records", "bytes"])
@pytest.mark.parametrize("type", list(TopicType))
async def test_an_eviction_scans_only_a_part_of_its_segment(
    machine: Machine, config: dict[str, int], type: TopicType
) -> None:
    engine = await machine.start(segment_max_events=20_000, max_batch_records=10_000)
    await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC, type=type, **config))
    for _ in range(2):
        await engine.append("t", [sized(10)] * 10_000)
    await engine.segment_worker.flush_all()
    [segment] = [each for each in log_of(engine, "t").held.manifest.segments if each.count]
    known = segment.details
    assert known is not None
    segment.details = Details(CountedSizes("I", known.payloads), known.stamps)
    await engine.append("t", [sized(10)])
    CountedSizes.looked_at = 0
    for _ in range(20):
        await engine.append("t", [sized(10)] * 10)
    assert engine.state("t").earliest_seq == 202
    # One pass to find the new floor, and one to subtract what was evicted. Before, each write looked at 3 to 5 times
    # the segment (1,200,000 and more), and later at as many sizes as two blocks had left.
    assert CountedSizes.looked_at <= 20 * (2 * 10 + (STRIDE if "cap_bytes" in config else 0))
