"""Closes connections whose clients are too slow. A sweeper examines all connections at intervals.

A connection is examined in these phases, each with a time limit:

    head      the head of a request is incomplete, or the first request has not come: `header_timeout_s`
    body      the body of a request is being read
    answer    an answer is being sent, and the client does not read it as fast as it is sent
    idle      HTTP/2 without a request: `keep_alive_s`, whatever else is sent (HTTP/1.1 has its own timer for that)

In the phases body and answer, a client must send or read `min_bytes_per_s`, averaged over `body_timeout_s` or
`send_timeout_s`. A connection that is too slow is closed without an answer. While memory for answers is short (see
`broker.memory`), so is one whose client reads nothing of its answer for `stall_timeout_s`.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from broker.memory import Memory
    from broker.settings import Settings

#: The longest interval between two sweeps. It is at most a quarter of the shortest time limit.
MAX_INTERVAL_S: Final = 1.0
#: Connections that are examined before other tasks run.
STRIDE: Final = 500


class Phase(enum.StrEnum):
    HEAD = "head"
    BODY = "body"
    ANSWER = "answer"
    IDLE = "idle"


class Quota:
    """The required speed: `bytes` (at least 1) in each `timeout_s`."""

    __slots__ = ("bytes", "timeout_s")

    def __init__(self, timeout_s: float, bytes_per_s: int) -> None:
        self.timeout_s = timeout_s
        self.bytes = max(1, int(timeout_s * bytes_per_s))


class Progress:
    """The progress of a client that has a quota. Time is an argument."""

    __slots__ = ("_at", "_moved", "_quota", "last_moved")

    def __init__(self, quota: Quota, now: float) -> None:
        self._quota = quota
        self._at = now
        self._moved = 0
        #: When the last bytes moved.
        self.last_moved = now

    def moved(self, count: int, now: float) -> None:
        if count:
            self.last_moved = now
        self._moved += count
        if self._moved >= self._quota.bytes:
            self._at, self._moved = now, 0

    def begin_anew(self, now: float) -> None:
        """Start again: until now, the client was not expected to move bytes."""
        self._at, self._moved, self.last_moved = now, 0, now

    def deadline(self) -> float:
        """When the client is too slow, unless it moves bytes before."""
        return self._at + self._quota.timeout_s


class ConnectionState(NamedTuple):
    """The state of a connection. `request` identifies the current request; `total` counts its moved bytes."""

    phase: Phase
    request: object
    total: int


class _Mark:
    __slots__ = ("progress", "state")

    def __init__(self, state: ConnectionState, quota: Quota, now: float) -> None:
        self.state = state
        self.progress = Progress(quota, now)


class Sweeper:
    """Examines all connections of a server at intervals. `connections` returns the open ones."""

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
        """Sweep until cancelled."""
        while True:
            await asyncio.sleep(self.interval_s)
            seen: dict[Any, _Mark] = {}
            for number, connection in enumerate(list(self._connections()), 1):
                self._look_at(connection, asyncio.get_running_loop().time(), seen)
                if not number % STRIDE:
                    await asyncio.sleep(0)
            self._marks = seen

    def _look_at(self, connection: Any, now: float, seen: dict[Any, _Mark]) -> None:
        state = _look_at(connection)
        if state is None:
            return
        mark = self._marks.get(connection)
        if mark is None or (mark.state.phase, mark.state.request) != (state.phase, state.request):
            mark = _Mark(state, self._quotas[state.phase], now)
        if state.phase in (Phase.BODY, Phase.ANSWER):  # bytes of a head do not extend its time limit
            mark.progress.moved(max(0, state.total - mark.state.total), now)
        mark.state = state
        if now < mark.progress.deadline() and not self._stalls(mark, now):
            seen[connection] = mark
        else:
            self._closed(state.phase)
            if state.phase is Phase.ANSWER:
                self._memory.stalled()
            if connection.transport.is_closing():
                connection.transport.abort()
            else:
                connection.too_slow(state.phase)

    def _stalls(self, mark: _Mark, now: float) -> bool:
        """Whether the client reads nothing of its answer while other requests wait for memory."""
        memory = self._memory
        return (
            mark.state.phase is Phase.ANSWER
            and mark.progress.last_moved + memory.stall_timeout_s <= now
            and (memory.is_short)
        )


def _look_at(connection: Any) -> ConnectionState | None:
    transport = connection.transport
    if transport.is_closing():
        # It is closed when the client has read the rest.
        left: int = transport.get_write_buffer_size()
        return ConnectionState(Phase.ANSWER, transport, -left) if left else None
    # WebSockets have their own checks.
    return connection.look() if hasattr(connection, "look") else None


def look_at_http1(connection: Any) -> ConnectionState | None:
    """The state of an HTTP/1.1 connection of uvicorn; None: nothing to check.

    `connection.received` counts received bytes, `connection.resumed` how often the write buffer had room again.
    """
    cycle, flow = connection.cycle, connection.flow
    if flow.write_paused:
        return ConnectionState(Phase.ANSWER, connection.resumed, -connection.transport.get_write_buffer_size())
    if connection.timeout_keep_alive_task is not None:
        return None
    if cycle is not None and cycle.more_body:
        # While reading is paused, the broker is slow, not the client.
        return None if flow.read_paused else ConnectionState(Phase.BODY, cycle, connection.received)
    if cycle is None or cycle.response_complete:
        return ConnectionState(Phase.HEAD, cycle, 0)
    return None
