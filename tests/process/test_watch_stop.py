"""Watchers of a broker that stops are told so in every protocol, and the stop does not wait for them."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import httpx
import pytest
from websockets import ConnectionClosed
from websockets.asyncio.client import connect

from tests.http.watch_calls import session, stream
from tests.support.live_server import LiveServer


async def test_streams_and_websockets_get_a_shutdown_message_and_the_exit_code_is_0(data_dir: Path) -> None:
    with LiveServer(data_dir) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=120) as http:
            await http.put("/v0/topics/t")
            path = await session(http, "t")
            async with stream(http, path) as watch, connect(server.url.replace("http", "ws", 1) + "/v0/ws") as ws:
                await watch.caught_up()
                await ws.send('{"type":"ping"}')
                await ws.recv()
                server.signal()
                begin = time.monotonic()
                event = await watch.next()
                assert (event.name, event.data["code"]) == ("error", "server_shutting_down")
                assert json.loads(await ws.recv())["code"] == "server_shutting_down"
                with pytest.raises(ConnectionClosed) as closing:
                    await ws.recv()
                assert closing.value.rcvd is not None
                assert closing.value.rcvd.code == 1001
        assert await asyncio.to_thread(server.wait) == 0
        # A watcher that is not told delays it for the ten seconds of its grace period.
        assert time.monotonic() - begin < 8
