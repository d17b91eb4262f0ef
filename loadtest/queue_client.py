"""Claims and acks until a queue is empty, in a separate process: the same raw connections for the broker and Redis.

    python -m loadtest.queue_client < task.json

Each connection claims a number of jobs, acks them all, and repeats, one call at a time. Answers are parsed no more than
an ack needs: one regular expression finds the jobs' ids. Prints one JSON line when all connections are open, one when
the last job is acked, and one with the result.
"""

from __future__ import annotations

import asyncio
import gc
import re
import resource
import sys
from time import monotonic
from typing import cast

import msgspec
import uvloop

from loadtest.generator import content_length
from loadtest.scenario import encoded, request

#: Far longer than a measurement: no lease runs out.
LEASE_MS = 600_000


class Task(msgspec.Struct, kw_only=True):
    """`kind`: topics or redis. `tokens`: acks carry lease_ids. `delete`: Redis also deletes the acked entries."""

    kind: str
    host: str
    port: int
    queue: str
    connections: int
    batch: int
    jobs: int
    tokens: bool = True
    delete: bool = False


class QueueLoadResult(msgspec.Struct, kw_only=True):
    """`seconds` from the first claim to the last ack's answer; times of a whole cycle in ms."""

    jobs: int
    cycles: int
    seconds: float
    cpu_s: float
    p50_ms: float
    p99_ms: float


class Wire:
    """What differs between the two: requests, and where an answer ends."""

    def __init__(self, task: Task, number: int) -> None:
        self.task = task
        self.node = b"c%d" % number

    def claim(self) -> bytes:
        """The request."""
        raise AssertionError

    def ack(self, claimed: bytes) -> tuple[bytes, int]:
        """The request that acks what an answer gave, and how many jobs those are; 0 = there are no more."""
        raise AssertionError

    def is_whole(self, answer: bytes) -> bool:
        """Whether all of it has come."""
        raise AssertionError

    def acked(self, answer: bytes) -> int:
        """How many the answer to an ack says were acked."""
        raise AssertionError


class HttpWire(Wire):
    """The broker's."""

    _JOB = re.compile(rb'"\$seq":(\d+),"lease_id":"(lease_[0-9a-f]{16})"')
    _ACKED = re.compile(rb'"acked":(\d+)')

    def __init__(self, task: Task, number: int) -> None:
        super().__init__(task, number)
        self._path = f"/v0/topics/{task.queue}"
        self._host = f"{task.host}:{task.port}"
        body = b'{"node":"%b","max":%d,"lease_ms":%d}' % (self.node, task.batch, LEASE_MS)
        self._claim = request("POST", f"{self._path}/claim", body, self._host)
        self._length = 0

    def claim(self) -> bytes:
        return self._claim

    def ack(self, claimed: bytes) -> tuple[bytes, int]:
        jobs = self._JOB.findall(claimed)
        body = b'{"node":"%b","seqs":[%b]' % (self.node, b",".join(seq for seq, _ in jobs))
        if self.task.tokens:
            body += b',"lease_ids":["%b"]' % b'","'.join(token for _, token in jobs)
        return request("POST", f"{self._path}/ack", body + b"}", self._host), len(jobs)

    def is_whole(self, answer: bytes) -> bool:
        if not self._length:
            head_end = answer.find(b"\r\n\r\n")
            if head_end < 0:
                return False
            if answer[9:12] != b"200":
                raise RuntimeError(answer[:400].decode())
            self._length = head_end + 4 + content_length(answer, head_end)
        if len(answer) < self._length:
            return False
        self._length = 0
        return True

    def acked(self, answer: bytes) -> int:
        found = self._ACKED.search(answer)
        return int(found[1]) if found else 0


class RedisWire(Wire):
    """Redis's: a consumer group that reads from a stream."""

    _ID = re.compile(rb"\r\n(\d+-\d+)\r\n")
    _LINES_BEFORE, _LINES_OF_ENTRY = 5, 8

    def __init__(self, task: Task, number: int) -> None:
        super().__init__(task, number)
        self._queue = task.queue.encode()
        words = (b"XREADGROUP", b"GROUP", b"workers", self.node, b"COUNT", b"%d" % task.batch)
        self._claim = encoded(*words, b"STREAMS", self._queue, b">")
        self._lines = 0

    def claim(self) -> bytes:
        return self._claim

    def ack(self, claimed: bytes) -> tuple[bytes, int]:
        ids = self._ID.findall(claimed)
        command = encoded(b"XACK", self._queue, b"workers", *ids)
        if self.task.delete:
            command += encoded(b"XDEL", self._queue, *ids)
        return command, len(ids)

    def is_whole(self, answer: bytes) -> bool:
        if not answer.endswith(b"\r\n"):
            return False
        if answer.startswith(b"-"):
            raise RuntimeError(answer.decode())
        if answer.startswith(b":"):
            return answer.count(b"\r\n") == 1 + self.task.delete
        if answer.startswith(b"*-1"):
            return True
        head = answer.split(b"\r\n", 5)
        if len(head) < 6:
            return False
        return answer.count(b"\r\n") == self._LINES_BEFORE + self._LINES_OF_ENTRY * int(head[4][1:])

    def acked(self, answer: bytes) -> int:
        return int(answer[1 : answer.index(b"\r")])


class Connection(asyncio.Protocol):
    """Claims and acks in turn until a claim returns no job."""

    def __init__(self, wire: Wire, ended: asyncio.Future[None]) -> None:
        self._wire = wire
        self._ended = ended
        self._buffer = b""
        self._acking = 0
        self._since = 0.0
        self.jobs = 0
        self.last_ack = 0.0
        self.cycles: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not derive from it

    def begin(self) -> None:
        """The first claim."""
        self._since = monotonic()
        self._transport.write(self._wire.claim())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            if not self._wire.is_whole(self._buffer):
                return
            answer, self._buffer = self._buffer, b""
            if self._acking:
                self._take_ack(answer)
                self.begin()
            else:
                ack, self._acking = self._wire.ack(answer)
                if self._acking:
                    self._transport.write(ack)
                else:
                    self._ended.set_result(None)
        except Exception as error:
            self._ended.set_exception(error)

    def _take_ack(self, answer: bytes) -> None:
        acked = self._wire.acked(answer)
        if acked != self._acking:
            raise RuntimeError(f"of {self._acking} jobs {acked} were acked: {answer[:300]!r}")
        self.jobs += acked
        self._acking = 0
        self.last_ack = monotonic()
        self.cycles.append(self.last_ack - self._since)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_exception(exc or ConnectionResetError("the connection was closed"))


async def run(task: Task) -> QueueLoadResult:
    """Run all connections until the queue is empty."""
    loop = asyncio.get_running_loop()
    wire_of = HttpWire if task.kind == "topics" else RedisWire
    connections: list[Connection] = []
    ends: list[asyncio.Future[None]] = []
    for number in range(task.connections):
        ended: asyncio.Future[None] = loop.create_future()
        connection = Connection(wire_of(task, number), ended)
        await loop.create_connection(lambda connection=connection: connection, task.host, task.port)
        connections.append(connection)
        ends.append(ended)
    gc.collect()
    gc.disable()
    print('{"event":"begin"}', flush=True)
    begin, cpu = monotonic(), _cpu_s()
    for connection in connections:
        connection.begin()
    await asyncio.gather(*ends)
    cpu_s = _cpu_s() - cpu
    print('{"event":"end"}', flush=True)
    jobs = sum(connection.jobs for connection in connections)
    if jobs != task.jobs:
        raise RuntimeError(f"{jobs} jobs were acked, {task.jobs} were there")
    cycles = sorted(each for connection in connections for each in connection.cycles)
    return QueueLoadResult(
        jobs=jobs,
        cycles=len(cycles),
        seconds=max(connection.last_ack for connection in connections) - begin,
        cpu_s=cpu_s,
        p50_ms=1000 * cycles[len(cycles) // 2],
        p99_ms=1000 * cycles[int(len(cycles) * 0.99)],
    )


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    print(msgspec.json.encode(uvloop.run(run(task))).decode(), flush=True)


if __name__ == "__main__":
    main()
