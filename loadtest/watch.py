"""Measures the time from a write to its watchers, and checks that every watcher gets every record in order.

    python -m loadtest.watch --watchers 1 10 100 1000 --rate 50 --seconds 10

A broker is started with one topic, a number of event streams (or WebSockets, with --ws), and one writer whose records
contain their time of sending. Streams and writer share one process and one loop, and a delivery counts when its bytes
are read. With a great number of watchers the figure therefore includes the time the last ones wait for that.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import re
import time
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import uvloop

from loadtest.observed import cpu_of
from loadtest.own_broker import OwnBroker

_RECORD = re.compile(rb'\{"\$seq":(\d+),"\$ts":\d+,"data":(\d+)\}')
_JSON = b"content-type: application/json\r\n"
_HOST = b"host: localhost\r\n"


class Figures(NamedTuple):
    """Of one run. Times are ms, from the sending of the write."""

    watchers: int
    writes: int
    deliver_p50: float
    deliver_p99: float
    deliver_max: float
    ack_p50: float
    ack_p99: float
    broker_cores: float
    generator_cores: float
    lost: int
    disordered: int


class Watching(asyncio.Protocol):
    """One stream. Notes for each record how long it took, and whether it was the next one."""

    def __init__(self, took_ns: array[int], hello: bytes, then: bytes = b"") -> None:
        """`then` is sent once `hello` was answered."""
        self._took_ns = took_ns
        self._hello = hello
        self._then = then
        self._rest = b""
        self.last_seq = 0
        self.disordered = 0
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.write(self._hello)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        if self._then:
            self.transport.write(self._then)
            self._then = b""
        data = self._rest + data
        end = 0
        for found in _RECORD.finditer(data):
            seq, sent_ns = int(found[1]), int(found[2])
            if seq != self.last_seq + 1:
                self.disordered += 1
            self.last_seq = seq
            self._took_ns.append(now - sent_ns)
            end = found.end()
        if not self.ready.done() and (b"caught-up" in data or b"caught_up" in data):
            self.ready.set_result(None)
        self._rest = data[end:][-4096:]


class Writer:
    """Writes over one connection, one after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def post(self, path: str, body: bytes, method: str = "POST") -> bytes:
        head = f"{method} {path} HTTP/1.1\r\ncontent-length: {len(body)}\r\n".encode()
        self._writer.write(head + _HOST + _JSON + b"\r\n" + body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"(?i)content-length: (\d+)", head)
        answer = await self._reader.readexactly(int(found[1]) if found else 0)
        if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")):
            raise SystemExit(f"{method} {path}: {head.splitlines()[0]!r} {answer!r}")
        return answer


async def run(broker: OwnBroker, watchers: int, *, rate: float, seconds: float, ws: bool, durability: str) -> Figures:
    """One run on a new topic."""
    loop = asyncio.get_running_loop()
    writer = Writer(*await asyncio.open_connection(broker.host, broker.port))
    topic = f"t{watchers}-{time.monotonic_ns()}"
    await writer.post(f"/v0/topics/{topic}", json.dumps({"durability": durability}).encode(), "PUT")
    took_ns: array[int] = array("q")
    streams: list[Watching] = []
    for _ in range(watchers):
        watching = Watching(took_ns, *(_hello_ws(topic) if ws else (await _hello_sse(writer, topic),)))
        await loop.create_connection(lambda watching=watching: watching, broker.host, broker.port)
        streams.append(watching)
    await asyncio.gather(*(stream.ready for stream in streams))
    acks_ns: array[int] = array("q")
    begin_broker, begin_own, begin = cpu_of(broker.pid), cpu_of(os.getpid()), time.monotonic()
    writes = 0
    while (due := begin + writes / rate) < begin + seconds:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        sent = time.monotonic_ns()
        await writer.post(f"/v0/topics/{topic}", b'{"records":[{"data":%d}]}' % sent)
        acks_ns.append(time.monotonic_ns() - sent)
        writes += 1
    span = time.monotonic() - begin
    used = [end.since(start).total_s / span for end, start in _pairs(broker, begin_broker, begin_own)]
    for _ in range(200):
        if all(stream.last_seq == writes for stream in streams):
            break
        await asyncio.sleep(0.05)
    for stream in streams:
        stream.transport.abort()
    took = sorted(took_ns)
    return Figures(
        watchers,
        writes,
        _ms(took, 0.5),
        _ms(took, 0.99),
        _ms(took, 1.0),
        _ms(sorted(acks_ns), 0.5),
        _ms(sorted(acks_ns), 0.99),
        used[0],
        used[1],
        watchers * writes - len(took),
        sum(stream.disordered for stream in streams),
    )


def _pairs(broker: OwnBroker, begin_broker: Any, begin_own: Any) -> list[tuple[Any, Any]]:
    return [(cpu_of(broker.pid), begin_broker), (cpu_of(os.getpid()), begin_own)]


async def _hello_sse(writer: Writer, topic: str) -> bytes:
    made = json.loads(await writer.post("/v0/watch", json.dumps({"topics": {topic: {}}}).encode()))
    return f"GET {made['stream_url']} HTTP/1.1\r\n".encode() + _HOST + b"\r\n"


def _hello_ws(topic: str) -> tuple[bytes, bytes]:
    """Handshake and subscription; the mask of a client's frame may be all zeros."""
    key = base64.b64encode(os.urandom(16))
    body = json.dumps({"type": "subscribe", "topic": topic}).encode()
    frame = bytes([0x81, 0xFE]) + len(body).to_bytes(2, "big") + bytes(4) + body
    if len(body) < 126:
        frame = bytes([0x81, 0x80 | len(body)]) + bytes(4) + body
    hello = (
        b"GET /v0/ws HTTP/1.1\r\n" + _HOST + b"connection: Upgrade\r\nupgrade: websocket\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: " + key + b"\r\n\r\n"
    )
    return hello, frame


def _ms(values: Sequence[int], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))] / 1e6 if values else float("nan")


async def _all(arguments: argparse.Namespace) -> None:
    broker = OwnBroker()
    try:
        broker.start()
        print("watchers writes  deliver p50    p99    max ms   ack p50    p99 ms  cores: broker own   lost disordered")
        for watchers in arguments.watchers:
            found = await run(
                broker,
                watchers,
                rate=arguments.rate,
                seconds=arguments.seconds,
                ws=arguments.ws,
                durability=arguments.durability,
            )
            print(
                f"{found.watchers:8} {found.writes:6} {found.deliver_p50:12.2f} {found.deliver_p99:6.2f} "
                f"{found.deliver_max:6.1f} {found.ack_p50:12.2f} {found.ack_p99:6.2f} {found.broker_cores:14.2f} "
                f"{found.generator_cores:5.2f} {found.lost:5} {found.disordered:5}"
            )
    finally:
        broker.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--watchers", type=int, nargs="+", default=[1, 10, 100, 200, 1000])
    parser.add_argument("--rate", type=float, default=50.0, help="writes a second")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--ws", action="store_true", help="WebSockets in place of event streams")
    parser.add_argument("--durability", default="disk", choices=["ephemeral", "memory", "disk", "fsync"])
    uvloop.run(_all(parser.parse_args()))


if __name__ == "__main__":
    main()
