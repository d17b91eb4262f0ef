"""Clients that take too long: connections are looked at every so often, which costs nothing where all is well.

A connection may be in one of these phases, each with its patience; in any other it is not looked at:

    head      a request's head has begun, or the first is still to come: `header_timeout_s`, however much of it is there
    body      a request's body is being read
    answer    an answer is being sent, and the client does not take it as fast as it comes
    idle      HTTP/2 without a request: `keep_alive_s`, whatever else is sent (HTTP/1.1 has a timer of its own for that)

In body and answer a client has to send or take `min_bytes_per_s` on the average of `body_timeout_s` or
`send_timeout_s`. What is too slow is cut off: there is nobody to tell. While answers lack memory (see `broker.memory`),
so is a client that takes nothing at all of its answer for `stall_timeout_s`.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from broker.memory import Memory
    from broker.settings import Settings

#: Connections are looked at this often at least, and four times in the shortest patience.
MAX_INTERVAL_S: Final = 1.0
#: So many of them without letting others run.
STRIDE: Final = 500


class Phase(enum.StrEnum):
    HEAD = "head"
    BODY = "body"
    ANSWER = "answer"
    IDLE = "idle"


class Quota:
    """How fast somebody has to be: `bytes` in each `timeout_s`; at least one."""

    __slots__ = ("bytes", "timeout_s")

    def __init__(self, timeout_s: float, bytes_per_s: int) -> None:
        self.timeout_s = timeout_s
        self.bytes = max(1, int(timeout_s * bytes_per_s))


class Progress:
    """Of one who has to keep to a quota; time is an argument."""

    __slots__ = ("_at", "_moved", "_quota", "last_moved")

    def __init__(self, quota: Quota, now: float) -> None:
        self._quota = quota
        self._at = now
        self._moved = 0
        #: When it moved at all.
        self.last_moved = now

    def moved(self, count: int, now: float) -> None:
        if count:
            self.last_moved = now
        self._moved += count
        if self._moved >= self._quota.bytes:
            self._at, self._moved = now, 0

    def begin_anew(self, now: float) -> None:
        """It was not its turn to move until now."""
        self._at, self._moved, self.last_moved = now, 0, now

    def deadline(self) -> float:
        """When it is too slow, unless it moves until then."""
        return self._at + self._quota.timeout_s


class Look(NamedTuple):
    """What a connection does. `of` tells one request from the next; `total` counts the bytes that it moves."""

    phase: Phase
    of: object
    total: int


class _Mark:
    __slots__ = ("look", "progress")

    def __init__(self, look: Look, quota: Quota, now: float) -> None:
        self.look = look
        self.progress = Progress(quota, now)


class Sweeper:
    """Looks at all connections of a server. `connections` gives those that are there."""

    def __init__(
        self,
        connections: Callable[[], Iterable[Any]],
        settings: Settings,
        closed: Callable[[Phase], None],
        memory: Memory,
    ) -> None:
        self._connections = connections
        self._closed = closed
        self._memory = memory
        rate = settings.min_bytes_per_s
        self._quotas = {
            Phase.HEAD: Quota(settings.header_timeout_s, 0),
            Phase.IDLE: Quota(settings.keep_alive_s, 0),
            Phase.BODY: Quota(settings.body_timeout_s, rate),
            Phase.ANSWER: Quota(settings.send_timeout_s, rate),
        }
        self.interval_s = min(MAX_INTERVAL_S, *(quota.timeout_s / 4 for quota in self._quotas.values()))
        self._marks: dict[Any, _Mark] = {}

    async def run(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(self.interval_s)
            seen: dict[Any, _Mark] = {}
            for number, connection in enumerate(list(self._connections()), 1):
                self._look_at(connection, asyncio.get_running_loop().time(), seen)
                if not number % STRIDE:
                    await asyncio.sleep(0)
            self._marks = seen

    def _look_at(self, connection: Any, now: float, seen: dict[Any, _Mark]) -> None:
        look = _look_at(connection)
        if look is None:
            return
        mark = self._marks.get(connection)
        if mark is None or (mark.look.phase, mark.look.of) != (look.phase, look.of):
            mark = _Mark(look, self._quotas[look.phase], now)
        if look.phase in (Phase.BODY, Phase.ANSWER):  # no number of bytes buys time for a head
            mark.progress.moved(max(0, look.total - mark.look.total), now)
        mark.look = look
        if now < mark.progress.deadline() and not self._stalls(mark, now):
            seen[connection] = mark
        else:
            self._closed(look.phase)
            if look.phase is Phase.ANSWER:
                self._memory.stalled()
            if connection.transport.is_closing():
                connection.transport.abort()
            else:
                connection.too_slow(look.phase)

    def _stalls(self, mark: _Mark, now: float) -> bool:
        """Whether it takes nothing of an answer while others wait for the memory."""
        memory = self._memory
        return (
            mark.look.phase is Phase.ANSWER
            and mark.progress.last_moved + memory.stall_timeout_s <= now
            and (memory.is_short)
        )


def _look_at(connection: Any) -> Look | None:
    transport = connection.transport
    if transport.is_closing():
        # It ends when what is left has been taken.
        left: int = transport.get_write_buffer_size()
        return Look(Phase.ANSWER, transport, -left) if left else None
    # WebSockets see to it themselves.
    return connection.look() if hasattr(connection, "look") else None


def look_at_http1(connection: Any) -> Look | None:
    """At a connection of uvicorn's that speaks HTTP/1.1.

    `received` counts its bytes, `resumed` how often there was room in it again.
    """
    cycle, flow = connection.cycle, connection.flow
    if flow.write_paused:
        return Look(Phase.ANSWER, connection.resumed, -connection.transport.get_write_buffer_size())
    if connection.timeout_keep_alive_task is not None:
        return None
    if cycle is not None and cycle.more_body:
        # While more is there than is taken, it is not the client who is slow.
        return None if flow.read_paused else Look(Phase.BODY, cycle, connection.received)
    if cycle is None or cycle.response_complete:
        return Look(Phase.HEAD, cycle, 0)
    return None
