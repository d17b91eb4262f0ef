"""All messages that had arrived over WebSockets were handled in one round of the event loop. Now each round begins some
of them, as it does with requests."""

from __future__ import annotations

import asyncio
import json
import struct
from typing import Any

import pytest

from broker.api.routes import commands
from broker.memory.memory import BEGIN_COST
from broker.scheduling import ROUND
from tests.http.hot_server import HotServer

SOCKETS = 10
MESSAGES = 60
HANDSHAKE = (
    b"GET /v0/ws HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
)
#: The most that one round begins. The round before may have begun as many in the same pass.
MOST = 2 * ROUND / BEGIN_COST


async def test_messages_begin_over_several_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    rounds = 0
    begun: dict[int, int] = {}

    def count() -> None:
        nonlocal rounds
        rounds += 1
        loop.call_soon(count)

    write_of = commands.write_of

    async def counted(*arguments: Any, **more: Any) -> Any:
        begun[rounds] = begun.get(rounds, 0) + 1
        return await write_of(*arguments, **more)

    monkeypatch.setattr(commands, "write_of", counted)
    text = json.dumps({"op": "publish", "topic": "t", "records": [{"data": 1}]}).encode()
    message = struct.pack(">BB4x", 0x81, 0x80 | len(text)) + text
    async with HotServer() as server:
        await server.topic("t")
        wires = [await server.connect() for _ in range(SOCKETS)]
        for wire in wires:
            wire.send(HANDSHAKE)
            async with asyncio.timeout(20):
                assert b" 101 " in await wire.read()
        loop.call_soon(count)
        for wire in wires:
            wire.send(message * MESSAGES)
        async with asyncio.timeout(60):
            while server.engine.topic("t").log.head < SOCKETS * MESSAGES:
                await asyncio.sleep(0)
    assert sum(begun.values()) == SOCKETS * MESSAGES
    assert max(begun.values()) <= MOST
