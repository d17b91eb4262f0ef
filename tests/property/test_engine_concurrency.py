"""Everything at once: whatever coincides, fails or is cancelled, the counts are right and a crash changes nothing."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from storage import Discard, Durability, Engine, ReadQuery, TagMatch, TopicConfig
from storage.errors import StorageError
from tests.unit.storage.machine import Machine, record, seqs

NAMES = st.sampled_from(["a", "b", "c"])
CONFIGS = st.builds(
    TopicConfig,
    durability=st.sampled_from(list(Durability)),
    cap_records=st.sampled_from([0, 0, 4]),
    cap_bytes=st.sampled_from([0, 0, 30]),
    discard=st.sampled_from(list(Discard)),
    ttl_ms=st.sampled_from([0, 0, 20]),
    idempotency_window_ms=st.just(500),
)
SMALL = {"wal_file_bytes": 4096, "wal_reserve_bytes": 2048, "sync_point_bytes": 300, "tail_cache_bytes": 500}


@dataclass(frozen=True, slots=True)
class Step:
    """One call, begun after a number of turns of the loop and given up after some more (None: never)."""

    what: str
    name: str
    count: int
    config: TopicConfig
    key: str | None
    expected: int | None
    turns: int
    patience: int | None


STEPS = st.builds(
    Step,
    what=st.sampled_from(
        ["append"] * 6
        + ["put", "put", "delete", "delete if empty", "below", "tagged", "read", "wait", "snapshot", "tick"]
    ),
    name=NAMES,
    count=st.integers(1, 6),
    config=CONFIGS,
    key=st.sampled_from([None, None, "k1", "k2"]),
    expected=st.sampled_from([None, None, None, 0, 3]),
    turns=st.integers(0, 12),
    patience=st.sampled_from([None, None, None, None, 0, 1, 2, 5]),
)


async def carry_out(machine: Machine, engine: Engine, step: Step) -> Any:
    for _ in range(step.turns):
        await asyncio.sleep(0)
    match step.what:
        case "append":
            batch = [record(n, tag="x" if n % 2 else None) for n in range(step.count)]
            more = {"idempotency_key": step.key, "expected_seq": step.expected, "config": step.config}
            return await engine.append(step.name, batch, **more)
        case "put":
            return await engine.put_topic(step.name, step.config)
        case "delete" | "delete if empty":
            return await engine.delete_topic(step.name, if_empty=step.what != "delete")
        case "below":
            return await engine.delete_records(step.name, before_seq=step.count)
        case "tagged":
            return await engine.delete_records(step.name, match=TagMatch(b"x"))
        case "read":
            return await engine.read(step.name, ReadQuery(limit=step.count))
        case "wait":
            return await engine.wait_beyond(step.name, step.count, 50)
        case "snapshot":
            return await engine.snapshotter.take()
        case _:
            return machine.clock.tick(step.count * 10)


async def all_at_once(machine: Machine, engine: Engine, steps: list[Step]) -> None:
    async def impatient(step: Step) -> None:
        task = asyncio.create_task(carry_out(machine, engine, step))
        if step.patience is not None:
            for _ in range(step.turns + step.patience):
                await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            error = task.exception()
            assert error is None or isinstance(error, StorageError | OSError), repr(error)

    async with asyncio.timeout(20):
        await asyncio.gather(*(impatient(step) for step in steps))
        await machine.clock.advance(200)  # the work that was left to other tasks has ended as well


async def check_books(engine: Engine) -> None:
    """Nothing is half done, and the counts match what exists."""
    usage = engine.catalog.usage
    logs = [topic.log for topic in engine.catalog.topics.values()]
    assert (engine.changing, engine.pending_keys) == ({}, {})
    for shard in engine.shards:
        assert (len(shard.unresolved), shard.queued_frames, shard.queued_bytes) == (0, 0, 0)
    assert usage.bytes == sum(log.bytes for log in logs)
    assert usage.ephemeral_bytes == sum(log.memory_bytes for log in logs)
    assert usage.keys == sum(log.keys.key_count for log in logs if log.keys)
    for topic in engine.catalog.topics.values():
        log, config = topic.log, topic.config
        assert not topic.provisional
        assert (log.assigned_head, log.assigned_count, log.assigned_bytes) == (log.head, log.count, log.bytes)
        assert log.assigned_floor == log.marks.live_floor
        assert not config.cap_records or log.count <= config.cap_records
        assert not config.cap_bytes or log.bytes <= config.cap_bytes
        found: list[int] = []
        at = 0
        while at < log.head:
            result = await engine.read(topic.name, ReadQuery(from_seq=at, limit=1000))
            found += [each.seq for each in result.records]
            at = result.next_from_seq
        assert (log.count, log.earliest_seq) == (len(found), found[0] if found else log.head + 1)


def figures(engine: Engine) -> dict[str, tuple[Any, ...]]:
    """What a crash must not change. Of ephemeral topics only the config is promised."""
    return {
        state.topic: (state.config, state.epoch)
        if state.config.durability is Durability.EPHEMERAL
        else (
            state.config,
            state.epoch,
            state.head_seq,
            state.count,
            state.bytes,
            state.earliest_seq,
            state.evict_floor,
        )
        for state in engine.topics()
    }


@given(st.lists(STEPS, min_size=1, max_size=30), st.lists(STEPS, max_size=15))
@settings(max_examples=2 * settings().max_examples // 3)
async def test_concurrent_steps_keep_figures_consistent_and_survive_a_kill(
    first: list[Step], second: list[Step]
) -> None:
    async with Machine() as machine:
        engine = await machine.start(**SMALL)
        for steps in (first, second):
            await all_at_once(machine, engine, steps)
            await check_books(engine)
            before = figures(engine)
            records = {name: await seqs(engine, name) for name in before}
            before = figures(engine)
            engine = await machine.kill(**SMALL)
            assert figures(engine) == before
            for name, (config, *_) in before.items():
                if config.durability is not Durability.EPHEMERAL and not config.ttl_ms:
                    assert await seqs(engine, name) == records[name]
            await check_books(engine)


@given(st.lists(STEPS, min_size=4, max_size=25), st.integers(1, 25), st.integers(0, 200))
@settings(max_examples=2 * settings().max_examples // 3)
async def test_writes_refused_by_a_full_disk_leave_no_trace(steps: list[Step], nth: int, room: int) -> None:
    async with Machine() as machine:
        engine = await machine.start(**SMALL)
        machine.disk.fail("pwritev", "*/wal/*", errno=errno.ENOSPC, nth=nth)
        machine.disk.capacity_bytes = machine.disk.used_bytes + 100 * room
        await all_at_once(machine, engine, steps)
        machine.disk.clear_faults()
        machine.disk.capacity_bytes = None
        await machine.clock.advance(1500)
        assert engine.failed_shards == []
        await check_books(engine)
        await engine.append("after", [record()])
        before = figures(engine)
        engine = await machine.kill(**SMALL)
        assert figures(engine) == before
        await check_books(engine)


@given(st.lists(STEPS, min_size=4, max_size=25), st.integers(1, 25), st.sampled_from(["pwritev", "datasync", "sync"]))
@settings(max_examples=settings().max_examples // 3)
async def test_a_failing_disk_loses_no_acked_write(steps: list[Step], nth: int, op: str) -> None:
    async with Machine() as machine:
        engine = await machine.start(**SMALL)
        machine.disk.fail(op, "*/wal/wal-*", errno=errno.EIO, nth=nth)
        await all_at_once(machine, engine, steps)
        for topic in engine.catalog.topics.values():
            assert topic.log.assigned_head == topic.log.head
            assert not topic.provisional
        before = {state.topic: state for state in engine.topics()}
        failed = bool(engine.failed_shards)
        engine = await machine.kill(**SMALL)
        for name, state in before.items():
            if failed and name not in engine.catalog.topics:
                continue  # its deletion was written but not acked
            after = engine.state(name)
            if after.epoch == state.epoch and after.config.durability is not Durability.EPHEMERAL:
                assert after.head_seq >= state.head_seq
        await check_books(engine)
