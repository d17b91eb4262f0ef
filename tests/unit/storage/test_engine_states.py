"""Values stored for other components are durable when the call returns, and survive every kind of restart."""

from __future__ import annotations

import asyncio
import errno

import pytest

from storage import Durability, Engine, TopicConfig
from storage.errors import InvalidRequest, LimitReached, StorageFailed, TopicIncompatible
from tests.unit.storage.machine import Machine, outcome, records

KEPT = pytest.mark.parametrize("again", ["kill", "cut_power", "restart"])
FSYNC = TopicConfig(durability=Durability.FSYNC)


@KEPT
@pytest.mark.parametrize("snapshots", [0, 1, 3])
async def test_put_values_survive_and_deleted_values_stay_deleted_after_a_restart(
    machine: Machine, again: str, snapshots: int
) -> None:
    engine = await machine.start()
    await engine.states.put("group", "a", b"1")
    await engine.states.put("group", "b", b"")
    for _ in range(snapshots):
        await engine.snapshotter.take()
    await engine.states.put("group", "a", b"\x00\xff")
    await engine.states.put("other", "a", b"3")
    await engine.states.delete("group", "c")
    await engine.states.put("group", "d", b"4")
    await engine.states.delete("group", "d")
    for _ in range(2):
        assert engine.states.items("group") == [("a", b"\x00\xff"), ("b", b"")]
        assert (engine.states.get("other", "a"), engine.states.get("other", "b")) == (b"3", None)
        assert engine.states.items("none") == []
        engine = await getattr(machine, again)()


async def test_values_survive_a_change_of_the_shard_count(machine: Machine) -> None:
    engine = await machine.start()
    await engine.states.put("group", "a", b"1")
    for shards in (3, 1, 2):
        engine = await machine.kill(wal_shards=shards)
        assert engine.states.items("group") == [("a", b"1")]
        await engine.states.put("group", f"{shards}", b"2")
        engine = await machine.cut_power(wal_shards=shards)
        assert engine.states.get("group", f"{shards}") == b"2"
        await engine.states.delete("group", f"{shards}")


async def test_the_last_of_concurrent_puts_wins(machine: Machine) -> None:
    engine = await machine.start()
    await asyncio.gather(*[engine.states.put("group", "a", b"%d" % number) for number in range(50)])
    assert engine.states.get("group", "a") == b"49"
    engine = await machine.cut_power()
    assert engine.states.get("group", "a") == b"49"


async def test_the_log_is_trimmed_behind_values_in_a_snapshot(machine: Machine) -> None:
    engine = await machine.start(wal_file_bytes=1 << 15)
    for number in range(400):
        await engine.states.put("group", f"{number % 7}", b"x" * 500)
    for _ in range(3):
        await engine.snapshotter.take()
    assert engine.snapshotter.trimmed_files >= 4
    engine = await machine.cut_power(wal_file_bytes=1 << 15)
    assert [key for key, _ in engine.states.items("group")] == [str(number) for number in range(7)]


async def test_keys_and_values_have_limits(machine: Machine) -> None:
    engine = await machine.start(max_states=2, max_state_bytes=3)
    await engine.states.put("group", "a", b"123")
    await engine.states.put("group", "b", b"1")
    with pytest.raises(LimitReached) as full:
        await engine.states.put("group", "c", b"1")
    assert full.value.detail == {"limit": "max_states", "max": 2}
    await engine.states.put("group", "b", b"2")
    await engine.states.delete("group", "b")
    await engine.states.put("group", "c", b"1")
    for kind, key, value, field in [
        ("", "a", b"", "kind"),
        ("group", "", b"", "key"),
        ("group", "k" * 1025, b"", "key"),
        ("group", "a", b"1234", "value"),
    ]:
        with pytest.raises(InvalidRequest) as raised:
            await engine.states.put(kind, key, value)
        assert raised.value.detail["field"] == field


async def test_a_stopped_shard_refuses_values_until_the_next_start(machine: Machine) -> None:
    engine = await machine.start(wal_shards=2)
    await engine.states.put("group", "a", b"1")
    await engine.snapshotter.take()
    await engine.states.put("group", "a", b"2")
    machine.disk.fail("datasync", errno=errno.EIO)
    assert isinstance(await outcome(engine.states.put("group", "a", b"3")), StorageFailed)
    machine.disk.clear_faults()
    assert engine.states.get("group", "a") == b"2"
    assert isinstance(await outcome(engine.states.put("group", "a", b"4")), StorageFailed)
    engine = await machine.restart(wal_shards=2)
    assert engine.states.get("group", "a") in (b"2", b"3")


# -- cursors with metadata ---------------------------------------------------------------------------------------------


async def offsets(engine: Engine, *names: str) -> list[tuple[int, bytes | None]]:
    return [engine.consumers.committed("t", name)[:2] for name in names]


@KEPT
async def test_an_offset_is_stored_with_its_metadata(machine: Machine, again: str) -> None:
    engine = await machine.start()
    await engine.append("t", records(10), config=FSYNC)
    for consumer, seq, metadata in [("g", 3, b"m"), ("h", 0, None), ("g", 7, b""), ("i", 5, b"x"), ("i", 2, b"back")]:
        state = await engine.consumers.commit_offset("t", consumer, seq, metadata)
        assert (state.cursor_seq, state.durable_seq) == (seq, seq)
    for _ in range(2):
        assert await offsets(engine, "g", "h", "i") == [(7, b""), (0, None), (2, b"back")]
        await engine.snapshotter.take()
        engine = await getattr(machine, again)()


async def test_a_move_of_the_cursor_clears_the_metadata_of_a_commit(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(10), config=FSYNC)
    for move in (
        lambda: engine.consumers.commit("t", "g", 4),
        lambda: engine.consumers.seek("t", "g", seq=1),
        lambda: engine.consumers.commit_offset("t", "g", 3),
    ):
        await engine.consumers.commit_offset("t", "g", 3, b"m")
        await move()
        assert engine.consumers.committed("t", "g")[1] is None
    await engine.consumers.commit_offset("t", "g", 3, b"m")
    await engine.consumers.delete("t", "g")
    await engine.consumers.put("t", "g", start=3)
    assert engine.consumers.committed("t", "g")[:2] == (3, None)
    engine = await machine.cut_power()
    assert engine.consumers.committed("t", "g")[:2] == (3, None)


async def test_a_repeated_offset_commit_writes_no_frame(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(10), config=FSYNC)
    await engine.consumers.commit_offset("t", "g", 3, b"m")
    frames = engine.shards[0].log.stats.frames
    await engine.consumers.commit_offset("t", "g", 3, b"m")
    assert engine.shards[0].log.stats.frames == frames
    await engine.consumers.commit_offset("t", "g", 3, b"n")
    assert engine.consumers.committed("t", "g")[:2] == (3, b"n")


async def test_an_invalid_offset_is_refused(machine: Machine) -> None:
    engine = await machine.start(max_offset_metadata_bytes=3)
    await engine.append("t", records(10), config=FSYNC)
    for name in ("new", "there"):
        if name == "there":
            await engine.consumers.commit_offset("t", name, 1)
        for seq, metadata, epoch, field in [
            (1 << 63, None, None, "seq"),
            (-(1 << 63) - 1, None, None, "seq"),
            (1, None, -1, "leader_epoch"),
            (1, None, 1 << 31, "leader_epoch"),
            (1, b"1234", None, "metadata"),
        ]:
            with pytest.raises(InvalidRequest) as raised:
                await engine.consumers.commit_offset("t", name, seq, metadata, leader_epoch=epoch)
            assert raised.value.detail["field"] == field
    await engine.put_topic("e", TopicConfig(durability=Durability.EPHEMERAL))
    with pytest.raises((InvalidRequest, TopicIncompatible)):
        await engine.consumers.commit_offset("e", "g", 0)


async def test_concurrent_first_commits_create_a_single_consumer(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(10), config=FSYNC)
    await asyncio.gather(*[engine.consumers.commit_offset("t", "g", seq, b"%d" % seq) for seq in (3, 5, 4)])
    seq, metadata, _ = engine.consumers.committed("t", "g")
    assert metadata == b"%d" % seq
    assert engine.catalog.usage.consumers == 1
    engine = await machine.cut_power()
    assert engine.consumers.committed("t", "g")[:2] == (seq, metadata)
