"""Writes that bypassed ASGI stayed in memory with their records until the garbage collector found the reference cycles.

It runs after tens of thousands of objects: thousands of writes, and gigabytes if their records were large.
"""

from __future__ import annotations

import asyncio
import gc

import pytest

from storage.log.append import Write
from tests.http.hot_server import HotServer, post, records


def kept() -> list[Write]:
    return [each for each in gc.get_objects() if isinstance(each, Write)]


@pytest.mark.parametrize("more", [{}, {"idempotency_key": "k"}])
async def test_a_write_is_freed_after_its_answer_without_the_garbage_collector(more: dict[str, object]) -> None:
    async with HotServer() as server:
        await server.topic("t")
        await server.ask(post("t", records("first")))
        wire = await server.connect()
        gc.collect()
        gc.disable()
        try:
            wire.send(post("t", records("x" * 10_000, **more)))
            assert (await wire.answer()).status == 200
            # The thread that wrote the group holds it until it returns from it, which may be a moment later.
            until = asyncio.get_running_loop().time() + 10
            while kept() and asyncio.get_running_loop().time() < until:
                await asyncio.sleep(0.01)
            assert not kept()
        finally:
            gc.enable()
        assert server.taken == 2
