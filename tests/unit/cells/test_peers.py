"""Calls between cells, over real unix sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.cells import Method, PeerError, Peers, PeerServer, PeerUnavailable
from storage import TopicNotFound


async def echo(argument: Any) -> Any:
    return argument


@asynccontextmanager
async def serving(folder: Path, methods: Mapping[str, Method]) -> AsyncGenerator[tuple[Peers, PeerServer]]:
    path = folder / "cell-01.peer"
    server = PeerServer(path, methods)
    await server.start()
    peers = Peers({1: path})
    try:
        yield peers, server
    finally:
        await peers.close()
        await server.stop()


def run(coroutine: Any) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 20))


def test_arguments_and_results_pass_unchanged(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, {"echo": echo}) as (peers, _):
            value = {"seqs": [1, 2**53 - 1], "frames": b"\x00\xff" * 700_000, "none": None}
            assert await peers.call(1, "echo", value) == value

    run(scenario())


def test_concurrent_calls_share_a_connection_and_may_be_answered_out_of_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        release = asyncio.Event()

        async def held(argument: Any) -> Any:
            await release.wait()
            return argument

        async with serving(tmp_path, {"echo": echo, "held": held}) as (peers, _):
            first = asyncio.create_task(peers.call(1, "held", "late"))
            assert await peers.call(1, "echo", "soon") == "soon"
            assert not first.done()
            release.set()
            assert await first == "late"

    run(scenario())


def test_an_error_keeps_its_code_message_and_detail(tmp_path: Path) -> None:
    async def missing(argument: Any) -> Any:
        raise TopicNotFound(argument)

    async def scenario() -> None:
        async with serving(tmp_path, {"missing": missing}) as (peers, _):
            with pytest.raises(PeerError) as caught:
                await peers.call(1, "missing", "orders")
            assert (caught.value.code, caught.value.detail["topic"]) == ("topic_not_found", "orders")
            assert caught.value.outcome == "none"
            with pytest.raises(PeerError, match="absent failed: KeyError"):
                await peers.call(1, "absent", None)

    run(scenario())


def test_a_call_to_an_absent_cell_was_certainly_not_done(tmp_path: Path) -> None:
    async def scenario() -> None:
        peers = Peers({1: tmp_path / "cell-01.peer"})
        with pytest.raises(PeerUnavailable) as caught:
            await peers.call(1, "echo", None)
        assert caught.value.outcome == "none"

    run(scenario())


def test_a_call_to_a_killed_cell_has_an_unknown_outcome_and_later_calls_reconnect(tmp_path: Path) -> None:
    async def scenario() -> None:
        begun = asyncio.Event()

        async def held(argument: Any) -> Any:
            begun.set()
            await asyncio.Event().wait()

        async with serving(tmp_path, {"held": held}) as (peers, server):
            call = asyncio.create_task(peers.call(1, "held", None))
            await begun.wait()
            await server.stop()
            with pytest.raises(PeerUnavailable) as caught:
                await call
            assert caught.value.outcome == "unknown"
            again = PeerServer(tmp_path / "cell-01.peer", {"echo": echo})
            await again.start()
            assert await peers.call(1, "echo", 7) == 7
            await again.stop()

    run(scenario())


def test_a_cancelled_call_is_cancelled_at_the_other_cell(tmp_path: Path) -> None:
    async def scenario() -> None:
        begun, cancelled = asyncio.Event(), asyncio.Event()

        async def held(argument: Any) -> Any:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        async with serving(tmp_path, {"held": held}) as (peers, _):
            call = asyncio.create_task(peers.call(1, "held", None))
            await begun.wait()
            call.cancel()
            await cancelled.wait()
            with pytest.raises(PeerUnavailable):
                await peers.call(1, "held", None, timeout_s=0.01)

    run(scenario())


def test_calls_beyond_the_limit_are_refused_and_given_up_ones_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.cells.peers.MAX_CALLS", 2)

    async def scenario() -> None:
        cancelled = asyncio.Event()

        async def held(argument: Any) -> Any:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        async with serving(tmp_path, {"held": held, "echo": echo}) as (peers, _):
            calls = [asyncio.create_task(peers.call(1, "held", None)) for _ in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(PeerUnavailable, match="Too many calls") as caught:
                await peers.call(1, "echo", None)
            assert (caught.value.code, caught.value.outcome) == ("not_ready", "none")
            calls[0].cancel()
            await cancelled.wait()
            assert await peers.call(1, "echo", 5) == 5
            calls[1].cancel()

    run(scenario())
