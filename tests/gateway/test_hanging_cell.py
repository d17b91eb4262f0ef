"""A cell that accepts connections and answers nothing costs the clients of the others nothing, and no memory."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from broker.cells import Peers, PeerUnavailable
from broker.gateway import links
from broker.gateway.state import State
from tests.support.cells_in_process import cells, client_of
from tests.support.scripted_cell import ScriptedCell


async def forever(*_: Any) -> Any:
    await asyncio.Event().wait()


def hang(made: Any, cell: int, *methods: str) -> None:
    table = made.brokers[cell].cells._server._methods
    for name in methods or [*table]:
        table[name] = forever


async def test_calls_that_were_given_up_keep_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "cell-01.peer"
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(path))
        listener.listen(10)  # as with SIGSTOP: the kernel accepts, and nobody reads
        peers: Any = Peers({1: path})
        outcomes: list[str] = []
        for _ in range(100):
            with pytest.raises(PeerUnavailable) as given_up:
                await peers.call(1, "spread_append", b"x" * (1 << 20), timeout_s=0.02)
            outcomes.append(given_up.value.outcome)
        transport = peers._peers[1]._writer.transport
        assert transport.get_write_buffer_size() < 16 << 20
        assert outcomes.count("none") > 80  # they were never sent
        transport.abort()
        await peers.close()


async def test_routers_from_another_cell_copy(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, client_of(made) as client:
        healthy, dest = made.topic(1), made.topic(0)
        slow = [made.topic(2, n) for n in range(20)]
        for topic in [healthy, dest, *slow]:
            await client.put(f"/v0/topics/{topic}", json={})
        for n, source in enumerate([healthy, *slow]):
            done = await client.put(f"/v0/routers/r{n}", json={"source": source, "dest": dest})
            assert done.status_code == 201, done.text
        await asyncio.sleep(0.5)
        hang(made, 2, "source_read")
        for topic in slow:
            await client.post(f"/v0/topics/{topic}", json={"records": [{"data": 0}]})
        await asyncio.sleep(0.5)
        hang(made, 2)
        await client.post(f"/v0/topics/{healthy}", json={"records": [{"data": 1}]})
        async with asyncio.timeout(8):
            while not made.brokers[0].engine.state(dest).head_seq:
                await asyncio.sleep(0.05)


async def test_a_watch_is_given_up_although_its_client_has_gone(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, ScriptedCell(tmp_path / "hung", forever) as hung, client_of(made) as client:
        made.gateway.upstreams[2].path = tmp_path / "hung"
        with suppress(Exception):
            await client.post("/v0/watch", json={"topics": {made.topic(2): None}}, timeout=1)
        async with asyncio.timeout(10):
            await hung.gone.acquire()  # the client has gone: the gateway gives the request up


async def test_a_queue_is_created_whose_dead_letters_go_there(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, client_of(made) as client:
        hang(made, 2)
        began = time.monotonic()
        queue = {"type": "queue", "dead_letter": made.topic(2)}
        done = await client.put(f"/v0/topics/{made.topic(1)}", json=queue, timeout=100)
        assert (done.status_code, time.monotonic() - began < 15) == (201, True)


async def test_routers_of_other_cells_are_changed(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, client_of(made) as client:
        a, b = made.topic(1), made.topic(1, 1)
        for topic in (a, b, made.topic(2)):
            await client.put(f"/v0/topics/{topic}", json={})
        assert (await client.put("/v0/routers/ok", json={"source": a, "dest": b})).status_code == 201
        hang(made, 2)
        bads = [
            asyncio.create_task(
                client.put(f"/v0/routers/bad{n}", json={"source": made.topic(2), "dest": b}, timeout=100)
            )
            for n in range(2)
        ]
        await asyncio.sleep(0.5)
        began = time.monotonic()
        done = await client.delete("/v0/routers/ok", timeout=100)
        assert (done.status_code, time.monotonic() - began < 15) == (200, True)
        for bad in bads:
            bad.cancel()


async def test_requests_wait_for_a_connection_no_longer_than_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "CONNECT_S", 0.5)
    cell = links.Cell(1, tmp_path / "x", 1.0)
    monkeypatch.setattr(cell, "relayed", forever)
    began = time.monotonic()
    done = await asyncio.gather(*(cell.link() for _ in range(640)), return_exceptions=True)
    assert {type(each) for each in done} == {PeerUnavailable}
    assert time.monotonic() - began < 3  # one after the other: 5


async def test_metrics_of_the_other_cells_come_in_time_for_a_scraper(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, ScriptedCell(tmp_path / "hung", forever), client_of(made) as client:
        made.gateway.upstreams[2].path = tmp_path / "hung"
        made.gateway.states[:2] = [State.READY] * 2  # as `Status.watch` sees it
        began = time.monotonic()

        async def scrape() -> float:
            assert (await client.get("/v0/metrics", timeout=100)).status_code == 200
            return round(time.monotonic() - began, 1)

        took = await asyncio.gather(scrape(), scrape())
        assert max(took) < 15
