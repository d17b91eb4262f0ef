"""A list of a thousand topics occupies the event loop for a moment. If there are many, each gets a round of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.service import topics
from tests.http.hot_server import HotServer
from tests.support.unread import get

LISTS = 30


async def test_each_round_begins_a_single_list_and_probes_do_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    rounds = 0
    begun: list[int] = []

    def count() -> None:
        nonlocal rounds
        rounds += 1
        loop.call_soon(count)

    page = topics.page

    async def counted(*arguments: Any, **more: Any) -> Any:
        begun.append(rounds)
        return await page(*arguments, **more)

    monkeypatch.setattr(topics, "page", counted)
    async with HotServer() as server:
        await server.topic("t")
        wires = [await server.connect() for _ in range(LISTS)]
        probe = await server.connect()
        loop.call_soon(count)
        for wire in wires:
            wire.send(get("/v0/topics?page_size=1000"))
        probe.send(get("/v0/health"))
        assert (await probe.answer()).status == 200
        before = len(begun)
        for wire in wires:
            assert (await wire.answer()).status == 200
    assert before < LISTS / 2
    assert len(begun) == len(set(begun)) == LISTS
