"""When a cell of a cluster knows that its node knows it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from broker.cells import Cells, Role
from broker.cells import cells as module
from broker.cluster import Address, ClusterMap, Owner, write_owners
from storage import Engine, Options

ME, OTHER = "node-1", "node-2"


async def test_a_cell_is_known_when_its_node_has_written_its_generation(tmp_path: Path) -> None:
    role = Role(set_id="set", count=2, run=str(tmp_path), parent=0, cell=1, node=ME)
    cells = Cells(role, Engine(str(tmp_path / "data"), Options(cell=1, cells=2)))
    waiting = asyncio.create_task(cells.known(7))

    async def is_known(*owners: Owner | None) -> bool:
        write_owners(tmp_path, ClusterMap(me=ME, cells=owners))
        await asyncio.sleep(0.2)
        return waiting.done()

    def owner(node: str, generation: int) -> Owner:
        return Owner(node=node, generation=generation, cluster=Address("localhost", 1))

    await asyncio.sleep(0.1)
    assert not waiting.done()
    assert not await is_known(owner(ME, 9), None)
    assert not await is_known(None, owner(ME, 6))
    assert not await is_known(None, owner(OTHER, 8))
    assert await is_known(None, owner(ME, 7))
    await cells.stop()


async def test_a_cell_that_its_node_does_not_know_says_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KNOWN_S", 0.0)
    role = Role(set_id="set", count=2, run=str(tmp_path), parent=0, cell=1, node=ME)
    cells = Cells(role, Engine(str(tmp_path / "data"), Options(cell=1, cells=2)))
    other, mine = (Owner(node=node, generation=6, cluster=Address("localhost", 1)) for node in (OTHER, ME))
    write_owners(tmp_path, ClusterMap(me=ME, cells=(None, other)))
    with capture_logs() as logged:
        waiting = asyncio.create_task(cells.known(6))
        async with asyncio.timeout(20):
            while not logged:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            write_owners(tmp_path, ClusterMap(me=ME, cells=(None, mine)))
            await waiting
    assert logged == [
        {"event": "cell_not_known", "log_level": "warning", "generation": 6, "known": "node-2 in generation 6"}
    ]
    await cells.stop()
