"""Connections between the processes of one node and the cells of another, over two relays."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress

import msgspec
import pytest

from broker.cells import Kind, connect_relayed, relay_socket
from broker.cluster import Owner, from_secret
from broker.relay import relay as limits
from broker.relay.pipe import Link
from tests.support.relays import RelayNode, running

SECRET = "the secret of a cluster in a test"


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send everything back, and close behind it."""
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


@pytest.fixture(params=["tls", "plain"])
def nodes(request: pytest.FixtureRequest) -> tuple[RelayNode, RelayNode]:
    """Two nodes. Cell 0 is at the first, and cell 1 at the second."""
    one, two = (RelayNode(name, from_secret(SECRET) if request.param == "tls" else None) for name in ("one", "two"))
    for node in (one, two):
        node.knows(one.owner(), two.owner(), None)
    return one, two


@pytest.mark.parametrize("kind", list(Kind))
async def test_bytes_go_both_ways(nodes: tuple[RelayNode, RelayNode], kind: Kind) -> None:
    one, two = nodes
    async with running(one, two):
        await two.serve(1, echo, kind)
        reader, writer = await one.connect(1, kind)
        for data in (b"a", b"b" * 100, os.urandom(70_000)):
            writer.write(data)
            assert await reader.readexactly(len(data)) == data
        writer.close()


async def test_large_amounts_arrive_whole(nodes: tuple[RelayNode, RelayNode]) -> None:
    one, two = nodes
    data = os.urandom(8 << 20)
    async with running(one, two):
        await two.serve(1, echo)
        reader, writer = await one.connect(1)

        async def send() -> None:
            writer.write(data)
            await writer.drain()
            writer.write_eof()

        sending = asyncio.create_task(send())
        async with asyncio.timeout(60):
            assert await reader.read(-1) == data
        await sending
        writer.close()
        await until(lambda: not one.relay.counts.outgoing and not two.relay.counts.incoming)
        assert one.relay.counts.sent_bytes == two.relay.counts.received_bytes > len(data)


async def test_a_side_that_is_closed_does_not_close_the_other(nodes: tuple[RelayNode, RelayNode]) -> None:
    one, two = nodes
    asked = asyncio.Event()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read(-1) == b"question"
        asked.set()
        await asyncio.sleep(0.05)
        writer.write(b"answer")
        writer.close()

    async with running(one, two):
        await two.serve(1, late)
        reader, writer = await one.connect(1)
        writer.write(b"question")
        writer.write_eof()
        async with asyncio.timeout(20):
            await asked.wait()
            assert await reader.read(-1) == b"answer"
        writer.close()
        await until(lambda: not one.relay.counts.outgoing and not two.relay.counts.incoming)


async def test_the_cell_learns_that_its_client_has_gone(nodes: tuple[RelayNode, RelayNode]) -> None:
    one, two = nodes
    gone = asyncio.Event()

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(b"event")
                await writer.drain()
                await asyncio.sleep(0.01)
        except OSError:
            gone.set()
        writer.close()

    async with running(one, two):
        await two.serve(1, stream)
        reader, writer = await one.connect(1)
        assert await reader.readexactly(5) == b"event"
        writer.close()
        async with asyncio.timeout(20):
            await gone.wait()


async def test_a_connection_that_the_cell_breaks_off_ends(nodes: tuple[RelayNode, RelayNode]) -> None:
    one, two = nodes

    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.write(b"half of an ans")
        await writer.drain()
        writer.transport.abort()
        writer.close()

    async with running(one, two):
        await two.serve(1, break_off)
        reader, writer = await one.connect(1)
        writer.write(b"x")
        async with asyncio.timeout(20):
            with suppress(OSError):
                assert b"half of an ans".startswith(await reader.read(-1))
        writer.close()


async def test_who_does_not_read_stops_the_sender(nodes: tuple[RelayNode, RelayNode]) -> None:
    one, two = nodes
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        with suppress(OSError):
            for _ in range(1000):
                writer.write(bytes(1 << 16))
                await writer.drain()
                sent += 1 << 16
        writer.close()

    async with running(one, two):
        await two.serve(1, flood)
        reader, writer = await one.connect(1)
        await until(lambda: sent)
        before = -1
        async with asyncio.timeout(20):
            while before != sent:
                before = sent
                await asyncio.sleep(0.3)
        assert sent < 32 << 20  # what sockets hold, and the buffers of two relays
        assert len(await reader.readexactly(40 << 20)) == 40 << 20
        writer.close()
        await until(lambda: not two.relay.counts.incoming)


async def test_the_same_the_other_way(nodes: tuple[RelayNode, RelayNode]) -> None:
    one, two = nodes
    go_on, got = asyncio.Event(), 0

    async def sleep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        await go_on.wait()
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                got += len(data)
        writer.close()

    async with running(one, two):
        await two.serve(1, sleep)
        _, writer = await one.connect(1)
        writer.transport.set_write_buffer_limits(high=1 << 16)
        sent = 0

        async def send() -> None:
            nonlocal sent
            for _ in range(1000):
                writer.write(bytes(1 << 16))
                await writer.drain()
                sent += 1 << 16

        sending = asyncio.create_task(send())
        before = -1
        async with asyncio.timeout(20):
            while before != sent:
                before = sent
                await asyncio.sleep(0.3)
        assert 0 < sent < 32 << 20
        go_on.set()
        await sending
        await until(lambda: got == 1000 << 16)
        writer.close()


async def refused(node: RelayNode, cell: int) -> None:
    with pytest.raises(OSError):  # noqa: PT011 - which one depends on who closes first
        await node.connect(cell)


async def test_a_cell_without_an_owner_or_at_this_node_is_refused(nodes: tuple[RelayNode, RelayNode]) -> None:
    one, two = nodes
    async with running(one, two):
        await one.serve(0, echo)
        for cell in (0, 2, 3, -1):
            await refused(one, cell)
        assert one.relay.counts.failed == {"no_owner": 4}


async def test_a_cell_that_its_owner_does_not_serve_yet_is_refused(nodes: tuple[RelayNode, RelayNode]) -> None:
    one, two = nodes
    async with running(one, two):
        await refused(one, 1)
        await two.serve(1, echo)
        reader, writer = await one.connect(1)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        writer.close()


async def test_an_owner_that_cannot_be_reached_is_refused() -> None:
    one, two = RelayNode("one"), RelayNode("two")
    one.knows(None, two.owner())
    async with running(one):
        await refused(one, 1)
        assert one.relay.counts.failed == {"unreachable": 1}
    await two.stop()


async def test_a_relay_sends_nothing_on_to_a_third_node() -> None:
    one, two, three = (RelayNode(name) for name in ("one", "two", "three"))
    one.knows(two.owner())
    two.knows(three.owner())
    three.knows(three.owner())
    async with running(one, two, three):
        await three.serve(0, echo)
        await refused(one, 0)
        assert three.relay.counts.incoming == three.relay.counts.accepted == 0


async def test_a_node_of_another_cluster_is_refused() -> None:
    one, two = RelayNode("one"), RelayNode("two", set_id="set-2")
    one.knows(two.owner())
    async with running(one, two):
        await two.serve(0, echo)
        await refused(one, 0)
        assert two.relay.counts.refused == {"other_cluster": 1}


async def test_connections_to_an_old_owner_are_broken_off(nodes: tuple[RelayNode, RelayNode]) -> None:
    one, two = nodes
    three = RelayNode("three", None if one.relay._tls is None else from_secret(SECRET))  # pyright: ignore[reportPrivateUsage]
    async with running(one, two, three):
        await two.serve(1, echo)
        await two.serve(2, echo)
        await three.serve(1, echo)
        one.knows(one.owner(), two.owner(), two.owner())
        moved, stays = await one.connect(1), await one.connect(2)
        one.knows(one.owner(), two.owner(2), two.owner())  # the same node with a new generation: nothing ends
        moved[1].write(b"x")
        assert await moved[0].readexactly(1) == b"x"
        one.knows(one.owner(), three.owner(3), two.owner())
        async with asyncio.timeout(20):
            with suppress(OSError):
                assert await moved[0].read(-1) == b""
        moved[1].close()
        stays[1].write(b"y")
        assert await stays[0].readexactly(1) == b"y"
        reader, writer = await one.connect(1)
        writer.write(b"z")
        assert await reader.readexactly(1) == b"z"
        assert three.relay.counts.incoming == 1
        writer.close()
        stays[1].close()


@pytest.mark.parametrize("known", [True, False], ids=["another one", "nobody"])
async def test_a_cell_that_moves_while_its_node_connects_is_refused(
    nodes: tuple[RelayNode, RelayNode], monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """Nothing would break off a connection to the old owner: the owners do not change again."""
    one, two = nodes
    connect = one.relay._connect  # pyright: ignore[reportPrivateUsage]

    async def late(owner: Owner) -> Link:
        link = await connect(owner)
        one.knows(one.owner(), msgspec.structs.replace(two.owner(2), node="three") if known else None)
        await asyncio.sleep(3 * limits.LOOK_S)  # the relay has seen it
        return link

    async with running(one, two):
        await two.serve(1, echo)
        monkeypatch.setattr(one.relay, "_connect", late)
        await refused(one, 1)
        assert one.relay.counts.failed == {"no_owner": 1}
        await until(lambda: not one.relay.counts.outgoing and not two.relay.counts.incoming)


async def test_a_new_generation_of_the_same_node_while_it_connects_is_no_reason_to_refuse(
    nodes: tuple[RelayNode, RelayNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = nodes
    connect = one.relay._connect  # pyright: ignore[reportPrivateUsage]

    async def late(owner: Owner) -> Link:
        one.knows(one.owner(), two.owner(2))
        return await connect(owner)

    async with running(one, two):
        await two.serve(1, echo)
        monkeypatch.setattr(one.relay, "_connect", late)
        reader, writer = await one.connect(1)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        writer.close()


async def test_the_connections_of_a_relay_that_stops_end(nodes: tuple[RelayNode, RelayNode]) -> None:
    one, two = nodes
    async with running(one):
        async with running(two):
            await two.serve(1, echo)
            reader, writer = await one.connect(1)
        async with asyncio.timeout(20):
            with suppress(OSError):
                assert await reader.read(-1) == b""
        writer.close()
        await refused(one, 1)


@pytest.mark.parametrize(
    "line", [b"\n", b"{}\n", b'{"cell":"x","kind":"http"}\n', b"x" * 4096, b'{"cell":1,"kind":"a"}\n']
)
async def test_a_process_that_names_no_cell_is_refused(nodes: tuple[RelayNode, RelayNode], line: bytes) -> None:
    one, two = nodes
    async with running(one, two):
        reader, writer = await asyncio.open_unix_connection(str(relay_socket(one.run)))
        writer.write(line)
        async with asyncio.timeout(20):
            with suppress(OSError):
                assert await reader.read(-1) == b""
        assert one.relay.counts.failed == {"first_line": 1}
        writer.close()


async def test_more_connections_than_allowed_are_closed(
    nodes: tuple[RelayNode, RelayNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = nodes
    async with running(one, two):
        await two.serve(1, echo)
        opened = [await one.connect(1) for _ in range(3)]
        monkeypatch.setattr(limits, "MAX_CONNECTIONS", 3)
        await refused(one, 1)
        assert one.relay.counts.failed == {"too_many": 1}
        monkeypatch.undo()
        for reader, writer in opened:
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            writer.close()


async def test_a_caller_that_has_gone_before_it_was_connected_leaves_nothing(
    nodes: tuple[RelayNode, RelayNode],
) -> None:
    one, two = nodes
    async with running(one, two):
        await two.serve(1, echo)
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(relay_socket(one.run)))
        connection.send(b'{"cell":1,"kind":"http"}\n')
        connection.close()
        await until(lambda: one.relay.counts.connected)
        await until(lambda: not one.relay.counts.outgoing and not two.relay.counts.incoming)
        assert (await connect_relayed(one.run, 1, Kind.HTTP)).close() is None
