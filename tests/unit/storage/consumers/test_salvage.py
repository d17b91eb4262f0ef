"""Consumers of a log shortened by salvage: no cursor is beyond the end, and every consumer reads new records."""

from __future__ import annotations

import pytest

from storage import ReadQuery
from storage.options import Recovery
from tests.unit.storage.consumers.consumed import STRICT, add, consumed, cursor, take
from tests.unit.storage.machine import DATA, Machine


def damage(machine: Machine, marker: bytes) -> None:
    """One byte of the first frame with this tag."""
    path = f"{DATA}/wal/wal-{1:016d}.log"
    machine.disk.flip_byte(path, machine.disk.read_file(path).index(marker))


@pytest.mark.parametrize("snapshot", [False, True])
async def test_cursors_beyond_the_salvaged_head_are_moved_back(machine: Machine, snapshot: bool) -> None:
    engine = await consumed(machine, 4, STRICT, wal_file_bytes=1 << 17)
    await engine.consumers.put("a", "d", STRICT)
    await machine.clock.advance(3000)
    await add(engine, 4, tag="lost")
    await take(engine, 8)
    await take(engine, 2, name="d")
    if snapshot:
        await engine.snapshotter.take()
    await machine.clock.advance(3000)
    await engine.consumers.commit("a", "d", 3)
    damage(machine, b"lost")
    engine = await machine.kill(recovery=Recovery.SALVAGE)
    head = engine.state("a").head_seq
    assert (head, cursor(engine), cursor(engine, "d")) == ((8, 8, 3) if snapshot else (4, 4, 3))
    await add(engine, 6)
    engine = await machine.kill()
    assert (cursor(engine), cursor(engine, "d")) == (head, 3)
    for name in "cd":
        seen: list[int] = []
        for _ in range(4):
            found = await engine.consumers.read("a", name, ReadQuery())
            seen += [each.seq for each in found.result.records]
        assert seen[-6:] == list(range(head + 1, head + 7))
