"""Makes the load, in a separate process: requests are prepared beforehand, answers are parsed as little as possible.

    python -m loadtest.generator < task.json

The generator shares the machine with the broker, so it must cost little: it uses no HTTP library, a request is one
`bytes` object, and of an answer only status and length are parsed (and the seqs, when a ledger is kept). It prints one
JSON line at the beginning and one at the end of the measured window, and one with the result. Times are those of
CLOCK_MONOTONIC.

Closed loop: each connection sends as soon as it has its answer; latency counts from the sending. Open loop: requests
are due at a fixed rate, on a grid of 1 ms, whether or not answers come. Latency then counts from when a request was
*due*, so that a stall is charged to every request that it delayed (no coordinated omission).
"""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
from array import array
from collections import deque
from pathlib import Path
from time import monotonic
from typing import cast

import msgspec
import uvloop

from loadtest.scenario import (
    NATS_CONNECT,
    Scenario,
    append_request,
    nats_request,
    numbered,
    read_requests,
    redis_request,
)

_TICK_S = 0.001
_GRACE_S = 10.0
_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


class Task(msgspec.Struct, kw_only=True):
    """The generator's input. `ledger`: file to write the acknowledged writes to, "" = none."""

    scenario: Scenario
    host: str
    port: int
    ledger: str = ""


class LoadResult(msgspec.Struct, kw_only=True):
    """The results within the window. Latencies in seconds; `failed` counts answers by status, 0 = connection lost."""

    requests: int
    seconds: float
    latencies: dict[str, float]
    failed: dict[int, int]
    cpu_s: float
    max_backlog: int = 0
    given_up: int = 0


class Load:
    """Decides which request is sent when, and keeps the counts. A free connection calls `send_next`."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.keep_ledger = bool(task.ledger)
        scenario, host = task.scenario, f"{task.host}:{task.port}"
        topics = scenario.topic_names
        if scenario.kind == "redis":
            self._requests = [[redis_request(scenario, topic)] for topic in topics]
        elif scenario.kind == "nats":
            self._requests = [[b""] for _ in topics]  # each connection has its own, for its own inbox is in it
        elif scenario.kind == "read":
            self._requests = [read_requests(scenario, topic, host) for topic in topics]
        else:
            numbers = range(scenario.partitions)
            self._requests = [[append_request(scenario, topic, host, each) for each in numbers] for topic in topics]
        self.measuring = False
        self.over = False
        self.latencies = array("d")
        self.requests = 0
        self.failed: dict[int, int] = {}
        #: write number, topic, first seq, last seq of each acknowledged write
        self.ledger = array("Q")
        self._numbers = 0
        self._idle: list[Connection] = []
        self._due: deque[float] = deque()
        self.max_backlog = self.given_up = 0

    def next_request(self, connection: Connection) -> bytes:
        if len(self._requests) > self.task.scenario.connections:  # each goes round, so that none is left out
            connection.topic = (connection.topic + self.task.scenario.connections) % len(self._requests)
        requests = self._requests[connection.topic]
        chosen = requests[connection.turn % len(requests)]
        connection.turn += 1
        if self.keep_ledger:
            self._numbers += 1
            connection.number = self._numbers
            return numbered(chosen, connection.number)
        return chosen

    def free(self, connection: Connection) -> None:
        """The connection can send again."""
        if self.over:
            connection.close()
        elif not self.task.scenario.rate:
            connection.send(self.next_request(connection), monotonic())
        elif (due := self._next_due()) is not None:
            connection.send(self.next_request(connection), due)
        else:
            self._idle.append(connection)

    def _next_due(self) -> float | None:
        """When the next request that is still wanted was due; None when there is none."""
        patience_s = self.task.scenario.give_up_s
        while self._due:
            due = self._due.popleft()
            if not patience_s or monotonic() - due < patience_s:
                return due
            self.given_up += self.measuring
        return None

    def answered(self, since: float, ok: bool, status: int) -> None:
        if self.measuring:
            if ok:
                self.requests += 1
                self.latencies.append(monotonic() - since)
            else:
                self.failed[status] = self.failed.get(status, 0) + 1

    async def open_loop(self) -> None:
        """Have requests due at the rate, on a grid of whole ms of the loop's clock, until it is over."""
        loop = asyncio.get_running_loop()
        tick = int(loop.time() / _TICK_S) + 1
        rate, owed = self.task.scenario.rate * _TICK_S, 0.0
        while not self.over:
            waker = loop.create_future()
            loop.call_at(tick * _TICK_S, waker.set_result, None)
            await waker
            now = int(loop.time() / _TICK_S)
            for at in range(tick, now + 1):
                owed += rate
                self._due.extend([at * _TICK_S] * int(owed))
                owed -= int(owed)
            tick = now + 1
            while self._idle:
                if not self._idle[-1].is_open:
                    self._idle.pop()  # the broker has closed it
                    continue
                if (due := self._next_due()) is None:
                    break
                connection = self._idle.pop()
                connection.send(self.next_request(connection), due)
            if self.measuring:
                self.max_backlog = max(self.max_backlog, len(self._due))


class Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request on its way."""

    __slots__ = (
        "_buffer",
        "_left",
        "_load",
        "_ok",
        "_since",
        "_status",
        "_transport",
        "closed",
        "number",
        "topic",
        "turn",
    )

    def __init__(self, load: Load, index: int) -> None:
        self._load = load
        self.topic = index % load.task.scenario.topics
        self.turn = index * 7  # readers start apart
        self.number = 0
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._buffer = b""
        self._left = 0
        self._ok = False
        self._status = 0
        self._since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not derive from it
        self._load.free(self)

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    def send(self, request: bytes, since: float) -> None:
        self._since = since
        self._transport.write(request)

    def close(self) -> None:
        self._since = 0.0
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        if self._left:
            self._left -= len(data)
            if self._load.keep_ledger:
                self._buffer += data
        else:
            self._buffer += data
            head_end = self._buffer.find(b"\r\n\r\n")
            if head_end < 0:
                return
            self._status = int(self._buffer[9:12])
            self._ok = 200 <= self._status < 300
            self._left = head_end + 4 + content_length(self._buffer, head_end) - len(self._buffer)
        if self._left > 0:
            return
        if self._load.keep_ledger and self._ok:
            first, last = acknowledged(self._buffer)
            self._load.ledger.extend((self.number, self.topic, first, last))
        self._buffer = b""
        self._load.answered(self._since, self._ok, self._status)
        self._load.free(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._since:
            self._load.answered(self._since, False, 0)
        if not self.closed.done():
            self.closed.set_result(None)


class RedisConnection(Connection):
    """A connection to Redis: a request is a number of commands at once, each answered by a string of two lines."""

    __slots__ = ()

    def send(self, request: bytes, since: float) -> None:
        self._left = 2 * self._load.task.scenario.batch
        self._ok = True
        super().send(request, since)

    def data_received(self, data: bytes) -> None:
        self._left -= data.count(b"\n")
        if data.startswith(b"-"):
            self._ok = False
            self._left = 0
        if not self._left:
            self._load.answered(self._since, self._ok, 500)
            self._load.free(self)


class NatsConnection(Connection):
    """A connection to NATS: a request is a number of messages at once, each acknowledged by a message of two lines."""

    __slots__ = ("_publish",)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        scenario, inbox = self._load.task.scenario, f"_INBOX.{id(self)}"
        self._publish = nats_request(scenario, scenario.topic_names[self.topic], inbox)
        cast(asyncio.Transport, transport).write(NATS_CONNECT % inbox.encode())
        super().connection_made(transport)

    def send(self, request: bytes, since: float) -> None:
        self._left = 2 * self._load.task.scenario.batch
        self._ok = True
        super().send(self._publish, since)

    def data_received(self, data: bytes) -> None:
        # Whole lines: what the server says of itself must be told from answers, and may come in pieces.
        data = self._buffer + data
        end = data.rfind(b"\n") + 1
        self._buffer = data[end:]
        pings = data.count(b"PING\r\n", 0, end)
        if pings:
            self._transport.write(b"PONG\r\n" * pings)
        self._left -= data.count(b"\n", 0, end) - pings - data.count(b"INFO {", 0, end)
        if b'"error"' in data or b"HMSG" in data or b"-ERR" in data:
            self._ok = False
            self._left = 0
        if self._since and self._left <= 0:
            since, self._since = self._since, 0.0
            self._load.answered(since, self._ok, 500)
            if self._ok:
                self._load.free(self)
            else:
                self._transport.close()  # which answers are still to come is not known


def content_length(answer: bytes, head_end: int) -> int:
    """The Content-Length of an answer whose head ends there."""
    name = b"\r\ncontent-length: "
    at = answer.find(name, 0, head_end)
    if at < 0:
        at = answer[:head_end].lower().index(name)
    begin = at + len(name)
    return int(answer[begin : answer.index(b"\r", begin)])


def acknowledged(answer: bytes) -> tuple[int, int]:
    """First and last seq of an answer to a write."""
    return _number(answer, b'"first_seq":'), _number(answer, b'"last_seq":')


def _number(answer: bytes, name: bytes) -> int:
    begin = answer.index(name) + len(name)
    return int(answer[begin : answer.index(b",", begin)])


def summary(latencies: array[float]) -> dict[str, float]:
    """p50, p90, p99, p999, max and mean."""
    if not latencies:
        return {}
    ordered = sorted(latencies)
    found = {
        f"p{name}": ordered[int(len(ordered) * q)]
        for name, q in (("50", 0.5), ("90", 0.9), ("99", 0.99), ("999", 0.999))
    }
    return found | {"max": ordered[-1], "mean": sum(ordered) / len(ordered)}


async def _keep_connected(load: Load, index: int) -> None:
    """Keep one connection and reconnect when it breaks, until the load ends or the server is gone."""
    loop = asyncio.get_running_loop()
    kind = {"redis": RedisConnection, "nats": NatsConnection}.get(load.task.scenario.kind, Connection)
    while not load.over:
        try:
            _, connection = await loop.create_connection(lambda: kind(load, index), load.task.host, load.task.port)
        except OSError:
            return
        await connection.closed


def _say(event: str) -> None:
    print(msgspec.json.encode({"event": event}).decode(), flush=True)


async def run(task: Task) -> LoadResult:
    """Warm up, measure, let the answers on their way come in."""
    scenario, load = task.scenario, Load(task)
    connections = [asyncio.create_task(_keep_connected(load, index)) for index in range(scenario.connections)]
    pacing = asyncio.create_task(load.open_loop()) if scenario.rate else None
    await asyncio.sleep(scenario.warmup_s)
    gc.collect()
    gc.disable()
    _say("begin")
    begin, cpu = monotonic(), _cpu_s()
    load.measuring = True
    await asyncio.wait(connections, timeout=scenario.seconds)
    load.measuring = False
    seconds, cpu_s = monotonic() - begin, _cpu_s() - cpu
    _say("end")
    load.over = True
    for connection in load._idle:
        connection.close()
    await asyncio.wait(connections, timeout=_GRACE_S)
    if pacing is not None:
        await pacing
    if task.ledger:
        await asyncio.to_thread(Path(task.ledger).write_bytes, load.ledger.tobytes())
    return LoadResult(
        requests=load.requests,
        seconds=seconds,
        latencies=summary(load.latencies),
        failed=load.failed,
        cpu_s=cpu_s,
        max_backlog=load.max_backlog,
        given_up=load.given_up,
    )


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    print(msgspec.json.encode(uvloop.run(run(task))).decode(), flush=True)


if __name__ == "__main__":
    main()
