"""A connection is written by its own task or, while that task is idle, directly by the publisher."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from broker.live.cursor import Position
from broker.live.frames import Event, Kind
from broker.live.hub import Live
from broker.live.watcher import MAX_NOTICES, Heartbeat, Watcher
from storage.errors import ShuttingDown


class Line:
    """A connection that accepts bytes until it is full."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.full = False

    def push(self, piece: bytes) -> bool:
        if not self.full:
            self.sent.append(piece)
        return not self.full


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def watcher(line: Line) -> Watcher[bytes]:
    watcher: Watcher[bytes] = Watcher(
        cast(Live, None),  # no topic is watched here
        encode=lambda watcher, event: event.data + b"@%d" % watcher.delivered["t"].seq,
        failure=lambda error, _: error.code.encode(),
        positions={},
    )
    watcher.delivered["t"] = Position(1, 0)
    watcher.attach(line.push)
    return watcher


def event(seq: int) -> Event:
    return Event(Kind.RECORD, b"%d" % seq, Position(1, seq))


async def parked(watcher: Watcher[bytes]) -> asyncio.Task[bytes]:
    """The connection's idle task."""
    waiting = asyncio.create_task(anext(watcher.pieces()))
    await asyncio.sleep(0)
    return waiting


async def test_other_tasks_send_while_the_task_of_the_watcher_is_idle(watcher: Watcher[bytes], line: Line) -> None:
    waiting = await parked(watcher)
    assert watcher.offer("t", event(1))
    watcher.send_notice(b"notice")
    assert line.sent == [b"1@1", b"notice"]
    assert watcher.positions == {"t": Position(1, 1)}
    waiting.cancel()


async def test_feed_does_not_send_while_the_task_sends(watcher: Watcher[bytes], line: Line) -> None:
    pieces = watcher.pieces()
    watcher.send_notice(b"first")
    assert await anext(pieces) == b"first"
    assert not watcher.offer("t", event(1))
    watcher.send_notice(b"second")
    assert line.sent == []
    assert await anext(pieces) == b"second"


async def test_events_do_not_overtake_waiting_notices(watcher: Watcher[bytes], line: Line) -> None:
    waiting = await parked(watcher)
    line.full = True
    watcher.send_notice(b"notice")
    line.full = False
    assert not watcher.offer("t", event(1))
    watcher.send_notice(b"another")
    assert line.sent == []
    assert await waiting == b"notice"


async def test_refused_event_does_not_count_as_delivered(watcher: Watcher[bytes], line: Line) -> None:
    waiting = await parked(watcher)
    line.full = True
    assert not watcher.offer("t", event(5))
    assert watcher.delivered["t"] == Position(1, 0)
    assert watcher.positions == {}
    waiting.cancel()


async def test_watcher_ends_with_the_reason_after_waiting_notices(watcher: Watcher[bytes]) -> None:
    watcher.send_notice(b"notice")
    watcher.fail(ShuttingDown())
    assert [piece async for piece in watcher.pieces()] == [b"notice", b"shutting_down"]


async def test_a_heartbeat_is_sent_after_silence(watcher: Watcher[bytes]) -> None:
    pieces = watcher.pieces(Heartbeat(0.01, lambda: b"beat"))
    async with asyncio.timeout(5):
        assert [await anext(pieces) for _ in range(3)] == [b"beat"] * 3


async def test_sender_of_notices_waits_above_the_limit(watcher: Watcher[bytes]) -> None:
    for _ in range(MAX_NOTICES):
        watcher.send_notice(b"")
    waiting: asyncio.Task[Any] = asyncio.create_task(watcher.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    await anext(watcher.pieces())
    async with asyncio.timeout(5):
        await waiting
