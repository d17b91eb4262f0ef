"""What arrives on one of the two connections before the other one is there.

uvloop reads a new connection although its protocol has said not to. The byte that says that a cell is connected was
lost so, and the process that waited for it gave up after 5 s: calls to a cell that had just moved took so long, and
failed.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from broker.relay.pipe import END, Link, Local, pair

#: More than enough to read what has arrived.
_LATER_S = 0.05
FRAME = b"\0\0\0\1+"


class Ends:
    """A link and a local connection that are not paired yet, and the other ends of both."""

    def __init__(self, link: Link, node: socket.socket, local: Local, process: socket.socket) -> None:
        self.link, self.node, self.local, self.process = link, node, local, process


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        _, link = await loop.create_connection(lambda: Link(lambda received, sent: None), host, port)
        node, _ = listener.accept()
    process, inner = socket.socketpair()
    inner.setblocking(False)
    _, local = await loop.connect_accepted_socket(Local, inner)
    for each in (node, process):
        each.setblocking(False)
    yield Ends(link, node, local, process)
    for side in (link, local):
        side.transport.abort()
    for each in (node, process):
        each.close()
    await asyncio.sleep(0)


async def received(connection: socket.socket) -> bytes:
    async with asyncio.timeout(20):
        return await asyncio.get_running_loop().sock_recv(connection, 100)


async def test_bytes_of_the_other_node_wait(ends: Ends) -> None:
    ends.node.send(FRAME)
    await asyncio.sleep(_LATER_S)
    pair(ends.local, ends.link)
    assert await received(ends.process) == b"+"
    ends.node.send(FRAME)
    assert await received(ends.process) == b"+"


async def test_bytes_of_the_process_wait_and_its_end_behind_them(ends: Ends) -> None:
    ends.process.send(b"+")
    ends.process.shutdown(socket.SHUT_WR)
    await asyncio.sleep(_LATER_S)
    pair(ends.local, ends.link)
    passed_on = b""
    while passed_on != FRAME + END:
        passed_on += await received(ends.node)
    ends.node.send(FRAME)
    assert await received(ends.process) == b"+"


async def test_the_end_of_the_other_node_waits(ends: Ends) -> None:
    ends.node.send(FRAME + END)
    await asyncio.sleep(_LATER_S)
    pair(ends.local, ends.link)
    assert await received(ends.process) == b"+"
    assert await received(ends.process) == b""
