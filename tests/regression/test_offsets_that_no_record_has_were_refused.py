"""OffsetCommit refused negative offsets and offsets beyond the head. Kafka accepts them, and clients that reset groups
hung."""

from __future__ import annotations

import pytest

from tests.unit.storage.consumers.reclaimed import CONSUMED, care, files, filled
from tests.unit.storage.machine import Machine

AGAIN = pytest.mark.parametrize("again", ["kill", "cut_power", "restart"])
SAID = {"beyond": 99, "far": (1 << 63) - 1, "earliest": -2, "logical": -1001, "lowest": -(1 << 63)}


@AGAIN
async def test_a_commit_keeps_any_offset_and_bounds_the_cursor_to_the_log(machine: Machine, again: str) -> None:
    engine = await filled(machine, 8)
    for name, seq in SAID.items():
        state = await engine.consumers.commit_offset("t", name, seq, name.encode(), leader_epoch=5)
        assert state.cursor_seq == state.durable_seq == (8 if seq > 0 else 0)
    for _ in range(2):
        for name, seq in SAID.items():
            assert engine.consumers.committed("t", name) == (seq, name.encode(), 5)
            assert engine.consumers.state("t", name).cursor_seq == (8 if seq > 0 else 0)
        await engine.snapshotter.take()
        engine = await getattr(machine, again)()


async def test_the_offset_goes_when_the_cursor_moves(machine: Machine) -> None:
    engine = await filled(machine, 8)
    for move in (
        lambda: engine.consumers.seek("t", "g", seq=2),
        lambda: engine.consumers.commit_offset("t", "g", 2),
    ):
        await engine.consumers.commit_offset("t", "g", 99, None, leader_epoch=1)
        await move()
        assert engine.consumers.committed("t", "g") == (2, None, None)
    engine = await machine.cut_power()
    assert engine.consumers.committed("t", "g") == (2, None, None)


async def test_a_repeated_commit_writes_no_frame_until_the_head_moves(machine: Machine) -> None:
    engine = await filled(machine, 4)
    await engine.consumers.commit_offset("t", "g", 6, b"m", leader_epoch=0)
    frames = engine.shards[0].log.stats.frames
    await engine.consumers.commit_offset("t", "g", 6, b"m", leader_epoch=0)
    assert engine.shards[0].log.stats.frames == frames
    for _ in range(4):
        await engine.append("t", b"1")
    assert engine.consumers.committed("t", "g").seq == 6
    assert engine.consumers.state("t", "g").cursor_seq == 4
    await engine.consumers.commit_offset("t", "g", 6, b"m", leader_epoch=0)
    assert engine.consumers.state("t", "g").cursor_seq == 6


@pytest.mark.parametrize(("seq", "left"), [(99, []), (-2, [1, 5]), (-1, [1, 5])])
async def test_only_records_behind_every_cursor_are_reclaimed(machine: Machine, seq: int, left: list[int]) -> None:
    engine = await filled(machine, 8, CONSUMED, "other")
    await engine.consumers.commit_offset("t", "g", seq)
    await engine.consumers.commit("t", "other", 8)
    await care(engine)
    assert files(machine) == left
