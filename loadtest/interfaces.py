"""Loads every interface of a broker as hard as a few clients can, and measures how long health takes meanwhile.

    python -m loadtest.interfaces                a table; 1 if health took longer than 250 ms at any interface
    python -m loadtest.interfaces --most 100 --only tls,kafka --seconds 5 --topics 20000

Each load either delayed others once or was made to: a burst, a large body, an answer that nobody reads, a list of
everything. A separate process asks for health about twenty times a second, each time over a new connection, and over
TLS where the interface uses TLS. Clients, probe and broker share the processors of the machine. Time in which the
broker or the probe was ready to run but had no processor is therefore left out; `clock` includes it.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import gzip
import json
import os
import random
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import h2.config
import h2.connection
import h2.events
import h2.settings
import uvloop

from loadtest.health_probe import Probed, Prober
from loadtest.own_broker import OwnBroker, add_set, ask

#: What a client that reads nothing takes into its socket.
_RECEIVE_BYTES: Final = 4096
_RECORD_BYTES: Final = 900_000
_LARGE_RECORDS: Final = 40
_SMALL_RECORDS: Final = 100_000
_PATIENCE_S: Final = 60.0
_JSON: Final = "application/json"
_V2: Final = "application/vnd.kafka.json.v2+json"
_FULL_WINDOW: Final = (1 << 31) - 1


class Site(NamedTuple):
    """Where a broker is. `tls`: what clients speak it with, where it does."""

    host: str
    port: int
    kafka_port: int
    topics: int
    tls: ssl.SSLContext | None = None


class Clock(NamedTuple):
    """When a load ends."""

    end: float

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.end


Load = Callable[[Site, Clock], Awaitable[None]]


class Case(NamedTuple):
    """One load of one interface."""

    interface: str
    what: str
    load: Load
    tls: bool = False

    @property
    def named(self) -> str:
        return f"{self.interface}, {self.what}"


# -- clients -----------------------------------------------------------------------------------------------------------


async def at_once(count: int, clock: Clock, client: Callable[[int], Awaitable[None]]) -> None:
    """Run clients side by side; each repeats until the load ends. A refused or closed connection is fine."""

    async def one(number: int) -> None:
        while not clock.is_over:
            try:
                async with asyncio.timeout_at(asyncio.get_running_loop().time() + clock.end - time.monotonic() + 1):
                    await client(number)
            except (OSError, EOFError, TimeoutError):
                await asyncio.sleep(0.02)

    await asyncio.gather(*(one(number) for number in range(count)))


async def exchange(site: Site, request: bytes) -> bytes:
    """Send one HTTP/1.1 request on a new connection and return the whole answer. The request must ask for the close."""
    reader, writer = await asyncio.open_connection(site.host, site.port, ssl=site.tls)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.transport.abort()


def get(path: str, **headers: str) -> bytes:
    """A request that asks for the end of its connection."""
    more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{more}\r\n".encode()


def post(path: str, body: bytes, content_type: str = _JSON, coding: str = "") -> bytes:
    """The same with a body."""
    more = f"content-encoding: {coding}\r\n" if coding else ""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: {content_type}\r\n"
        f"content-length: {len(body)}\r\n{more}\r\n"
    )
    return head.encode() + body


def asking(count: int, *requests: bytes) -> Load:
    """Clients that send these requests in turn."""

    async def load(site: Site, clock: Clock) -> None:
        async def client(number: int) -> None:
            await exchange(site, requests[number % len(requests)])

        await at_once(count, clock, client)

    return load


def deaf(site: Site, port: int, data: bytes) -> socket.socket:
    """A connection that sends this and reads nothing."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
    made.settimeout(_PATIENCE_S)
    made.connect((site.host, port))
    made.sendall(data)
    return made


def unread(count: int, data: bytes, *, kafka: bool = False) -> Load:
    """Connections that send requests and never read the answers."""

    async def load(site: Site, clock: Clock) -> None:
        with contextlib.ExitStack() as stack:
            for _ in range(count):
                with contextlib.suppress(OSError):
                    stack.enter_context(deaf(site, site.kafka_port if kafka else site.port, data))
                await asyncio.sleep(0)
            await asyncio.sleep(max(0.0, clock.end - time.monotonic()))

    return load


def streams(count: int, path: str, each: int) -> Load:
    """HTTP/2 connections with a number of concurrent requests each."""

    async def client(site: Site) -> None:
        reader, writer = await asyncio.open_connection(site.host, site.port)
        try:
            config = h2.config.H2Configuration(client_side=True)
            peer = h2.connection.H2Connection(config)
            peer.local_settings = h2.settings.Settings(
                client=True, initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: _FULL_WINDOW}
            )
            peer.initiate_connection()
            peer.increment_flow_control_window(_FULL_WINDOW - 65_535)
            for number in range(each):
                head = [(":method", "GET"), (":path", path), (":scheme", "http"), (":authority", "localhost")]
                peer.send_headers(2 * number + 1, head, end_stream=True)
            writer.write(peer.data_to_send())
            left = each
            while left:
                data = await reader.read(1 << 18)
                if not data:
                    raise EOFError
                for event in peer.receive_data(data):
                    left -= isinstance(event, h2.events.StreamEnded | h2.events.StreamReset)
                writer.write(peer.data_to_send())
        finally:
            writer.transport.abort()

    async def load(site: Site, clock: Clock) -> None:
        await at_once(count, clock, lambda _: client(site))

    return load


def greeting() -> bytes:
    """How a client begins a TLS handshake."""
    out = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    return out.read()


def greetings(count: int, *, kafka: bool = False) -> Load:
    """Send many ClientHellos at once, and again when all are answered; no handshake is completed."""

    async def load(site: Site, clock: Clock) -> None:
        hello = greeting()

        async def client(_: int) -> None:
            reader, writer = await asyncio.open_connection(site.host, site.kafka_port if kafka else site.port)
            try:
                writer.write(hello)
                await reader.read(1)
            finally:
                writer.transport.abort()

        await at_once(count, clock, client)

    return load


async def websocket(site: Site) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """One whose handshake is over."""
    reader, writer = await asyncio.open_connection(site.host, site.port)
    key = base64.b64encode(os.urandom(16)).decode()
    writer.write(
        f"GET /v0/ws HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        f"sec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n\r\n".encode()
    )
    try:
        await reader.readuntil(b"\r\n\r\n")
    except BaseException:
        writer.transport.abort()
        raise
    return reader, writer


def framed(message: object) -> bytes:
    """A message of a WebSocket's client, masked with zeros."""
    text = json.dumps(message).encode()
    if len(text) < 126:
        return struct.pack(">BB4x", 0x81, 0x80 | len(text)) + text
    if len(text) < 1 << 16:
        return struct.pack(">BBH4x", 0x81, 0x80 | 126, len(text)) + text
    return struct.pack(">BBQ4x", 0x81, 0x80 | 127, len(text)) + text


def websockets(count: int, *messages: object, times: int = 1, reads: bool = True) -> Load:
    """WebSockets that each send these messages a number of times, and read all answers or none."""

    async def load(site: Site, clock: Clock) -> None:
        said = b"".join(map(framed, messages)) * times

        async def client(_: int) -> None:
            reader, writer = await websocket(site)
            try:
                writer.write(said)
                while reads:
                    if not await reader.read(1 << 18):
                        raise EOFError
                await asyncio.sleep(_PATIENCE_S)
            finally:
                writer.transport.abort()

        await at_once(count, clock, client)

    return load


def event_streams(count: int, topics: int) -> Load:
    """Event streams that each deliver everything in a number of topics."""

    async def load(site: Site, clock: Clock) -> None:
        wanted = {"large": {"from_seq": 0}, "small": {"from_seq": 0}}
        wanted |= {topic_name(number): {"from_seq": 0} for number in range(min(topics, site.topics))}
        request = post("/v0/watch", json.dumps({"topics": wanted, "limit": 1000}).encode())

        async def client(_: int) -> None:
            made = await exchange(site, request)
            url = json.loads(made.partition(b"\r\n\r\n")[2])["stream_url"]
            reader, writer = await asyncio.open_connection(site.host, site.port)
            try:
                writer.write(get(url, accept="text/event-stream"))
                for _ in range(50):
                    if not await reader.read(1 << 18):
                        raise EOFError
            finally:
                writer.transport.abort()

        await at_once(count, clock, client)

    return load


# -- Kafka -------------------------------------------------------------------------------------------------------------


def kafka(api_key: int, version: int, body: bytes) -> bytes:
    """A request with a header that is not flexible."""
    frame = struct.pack(">hhih", api_key, version, 1, 5) + b"loads" + body
    return struct.pack(">i", len(frame)) + frame


def metadata() -> bytes:
    """Of all topics."""
    return kafka(3, 1, struct.pack(">i", -1))


def fetch(topic: str, max_bytes: int) -> bytes:
    """All of a topic's partition 0."""
    name = topic.encode()
    body = struct.pack(">iiiib", -1, 1000, 1, max_bytes, 0)
    return kafka(1, 4, body + struct.pack(">ih", 1, len(name)) + name + struct.pack(">iiqi", 1, 0, 0, max_bytes))


def list_offsets(topics: int, stamp: int) -> bytes:
    """ListOffsets of partition 0 of a number of topics: -1 the end, -2 the beginning, or by time."""
    body = struct.pack(">ii", -1, topics)
    for number in range(topics):
        name = topic_name(number).encode()
        body += struct.pack(">h", len(name)) + name + struct.pack(">iiq", 1, 0, stamp)
    return kafka(2, 1, body)


def describe_configs(topics: int) -> bytes:
    """DescribeConfigs of all configs of a number of topics."""
    body = struct.pack(">i", topics)
    for number in range(topics):
        name = topic_name(number).encode()
        body += struct.pack(">bh", 2, len(name)) + name + struct.pack(">i", -1)
    return kafka(32, 1, body + b"\0")


def kafka_clients(count: int, request: Callable[[Site], bytes], times: int = 1) -> Load:
    """Kafka clients that each send the same request a number of times at once and read all answers."""

    async def load(site: Site, clock: Clock) -> None:
        data = request(site) * times

        async def client(_: int) -> None:
            reader, writer = await asyncio.open_connection(site.host, site.kafka_port)
            try:
                while not clock.is_over:
                    writer.write(data)
                    for _ in range(times):
                        left = int.from_bytes(await reader.readexactly(4), "big")
                        while left:
                            got = await reader.read(min(left, 1 << 18))
                            if not got:
                                raise EOFError
                            left -= len(got)
            finally:
                writer.transport.abort()

        await at_once(count, clock, client)

    return load


# -- the loads ---------------------------------------------------------------------------------------------------------


def topic_name(number: int) -> str:
    """Of one of the many."""
    return f"of-many-{number:06}"


async def nothing(_: Site, clock: Clock) -> None:
    """For comparison."""
    await asyncio.sleep(max(0.0, clock.end - time.monotonic()))


def _v3_records(count: int) -> Load:
    body = b'{"value":{"type":"BINARY","data":"QQ=="}}' * count

    async def load(site: Site, clock: Clock) -> None:
        found = json.loads(ask(site.host, site.port, "GET", "/v3/clusters")[1])
        path = f"/v3/clusters/{found['data'][0]['cluster_id']}/topics/written/records"
        requests = (post(path, gzip.compress(body, 1), coding="gzip"), post(path, body))
        await asking(8, *requests)(site, clock)

    return load


def _v3_lists(site_path: str, count: int) -> Load:
    async def load(site: Site, clock: Clock) -> None:
        found = json.loads(ask(site.host, site.port, "GET", "/v3/clusters")[1])
        await asking(count, get(f"/v3/clusters/{found['data'][0]['cluster_id']}{site_path}"))(site, clock)

    return load


def _cases() -> list[Case]:
    large = "/v0/topics/large/records?limit=100&max_batch_bytes=8388608"
    records = json.dumps({"records": [{"data": {"n": number}} for number in range(1000)]}).encode()
    padded = json.dumps({"records": [{"data": "x" * 1000}] * 20_000}).encode()
    v2 = json.dumps({"records": [{"value": {"n": number}} for number in range(10_000)]}).encode()
    publish = {"op": "publish", "topic": "written", "records": [{"data": 1}] * 100}
    every = {"op": "subscribe", "topics": {"large": {"from_seq": 0}, "small": {"from_seq": 0}}}
    return [
        Case("none", "nothing", nothing),
        Case("HTTP/1.1", "300 clients list 1,000 topics", asking(300, get("/v0/topics?page_size=1000"))),
        Case("HTTP/1.1", "300 clients read 1,000 small records",
             asking(300, get("/v0/topics/small/records?limit=1000"))),
        Case("HTTP/1.1", "100 clients read 8 MB", asking(100, get(large))),
        Case("HTTP/1.1", "1,000 clients do not read 8 MB", unread(1000, get(large))),
        Case("HTTP/1.1", "300 clients append 1,000 records", asking(300, post("/v0/topics/written", records))),
        Case("HTTP/1.1", "8 clients append 20 MB of JSON, half of them gzip",
             asking(8, post("/v0/topics/written", padded),
                    post("/v0/topics/written", gzip.compress(padded, 1), coding="gzip"))),
        Case("HTTP/1.1", "1,000 clients ask for health", asking(1000, get("/v0/health"))),
        Case("HTTP/1.1", "100 clients read the OpenAPI document and its pages",
             asking(100, get("/openapi.json"), get("/docs"))),
        Case("HTTP/2", "20 connections list 1,000 topics on 100 streams",
             streams(20, "/v0/topics?page_size=1000", 100)),
        Case("HTTP/2", "20 connections read 8 MB on 20 streams", streams(20, large, 20)),
        Case("TLS", "1,000 ClientHellos at once", greetings(1000), tls=True),
        Case("TLS", "100 clients read 8 MB", asking(100, get(large)), tls=True),
        Case("TLS", "100 clients append 1,000 records", asking(100, post("/v0/topics/written", records)), tls=True),
        Case("SSE", "300 streams of all records of 200 topics", event_streams(300, 200)),
        Case("WebSocket", "200 sockets publish 100 records 64 times", websockets(200, publish, times=64)),
        Case("WebSocket", "200 sockets subscribe to all records", websockets(200, every)),
        Case("WebSocket", "200 sockets do not read", websockets(200, every, reads=False)),
        Case("Kafka", "50 clients ask for Metadata of all topics 4 times", kafka_clients(50, lambda _: metadata(), 4)),
        Case("Kafka", "20 clients list offsets of all topics",
             kafka_clients(20, lambda site: list_offsets(site.topics, -1))),
        Case("Kafka", "20 clients list offsets of all topics by time",
             kafka_clients(20, lambda site: list_offsets(site.topics, 1))),
        Case("Kafka", "20 clients describe configs of all topics",
             kafka_clients(20, lambda site: describe_configs(site.topics))),
        Case("Kafka", "100 clients fetch 40 MB", kafka_clients(100, lambda _: fetch("large", 40 << 20))),
        Case("Kafka", "100 clients fetch 100,000 small records",
             kafka_clients(100, lambda _: fetch("small", 40 << 20))),
        Case("Kafka", "300 clients do not read", unread(300, fetch("large", 40 << 20) * 3, kafka=True)),
        Case("Kafka TLS", "1,000 ClientHellos at once", greetings(1000, kafka=True), tls=True),
        Case("REST Proxy", "8 clients produce 200,000 small records, v3", _v3_records(200_000)),
        Case("REST Proxy", "8 clients produce 10,000 small records, v2", asking(8, post("/topics/written", v2, _V2))),
        Case("REST Proxy", "100 clients list all topics, v2 and v3", asking(100, get("/topics"))),
        Case("REST Proxy", "100 clients list all topics, v3", _v3_lists("/topics", 100)),
        Case("REST Proxy", "100 clients read 100,000 small records",
             asking(100, get("/topics/small/partitions/0/records?offset=0&count=100000&max_bytes=8388608",
                             accept=_V2))),
        Case("metrics", "100 clients scrape, text and JSON",
             asking(100, get("/v0/metrics"), get("/v0/metrics", accept=_JSON))),
    ]  # fmt: skip


# -- the broker --------------------------------------------------------------------------------------------------------


class OpenBroker(OwnBroker):
    """A filled broker with all interfaces open; over TLS if there is a certificate."""

    def __init__(self, topics: int, settings: dict[str, str], parent: str, *, over_tls: bool) -> None:
        super().__init__(settings=settings | {"KAFKA_PORT": "0"}, parent=parent)
        self._topics = topics
        self._tls: ssl.SSLContext | None = None
        self._kafka_port_file = self.data_dir.parent / "kafka-port"
        self.settings["KAFKA_PORT_FILE"] = str(self._kafka_port_file)
        if over_tls:
            cert, key = _certificate(self.data_dir.parent)
            self.settings.update(TLS_CERT=str(cert), TLS_KEY=str(key))
            self._tls = ssl.create_default_context(cafile=str(cert))

    @property
    def site(self) -> Site:
        return Site(self.host, self.port, int(self._kafka_port_file.read_text()), self._topics, self._tls)

    def is_ready(self) -> bool:
        return _status(Site(self.host, self.port, 0, 0, self._tls), get("/v0/ready")) == 200

    def fill(self) -> None:
        """Many topics with a record each, one with large and one with many small records."""
        asyncio.run(self._fill())

    async def _fill(self) -> None:
        site = self.site
        reader, writer = await asyncio.open_connection(site.host, site.port, ssl=site.tls)

        async def write(topic: str, body: bytes) -> None:
            writer.write(
                f"POST /v0/topics/{topic} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {_JSON}\r\n"
                f"content-length: {len(body)}\r\n\r\n".encode()
                + body
            )
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 200 " in head or b" 201 " in head, head
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))

        for _ in range(_LARGE_RECORDS):
            await write("large", json.dumps({"records": [{"data": "x" * _RECORD_BYTES}]}).encode())
        small = json.dumps({"records": [{"data": {"n": number}} for number in range(1000)]}).encode()
        for _ in range(_SMALL_RECORDS // 1000):
            await write("small", small)
        await write("written", small)
        for number in range(self._topics):
            await write(topic_name(number), b'{"records":[{"data":1}]}')
        writer.close()


def _certificate(folder: Path) -> tuple[Path, Path]:
    """One for 127.0.0.1, made by openssl."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "1"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command, *names], check=True, capture_output=True)
    return cert, key


def _status(site: Site, request: bytes) -> int:
    try:
        return int(asyncio.run(exchange(site, request)).split(b" ", 2)[1])
    except (OSError, IndexError):
        return 0


# -- all of it ---------------------------------------------------------------------------------------------------------


def drawn(cases: list[Case], most: int) -> list[Case]:
    """At most so many of each interface, drawn at random, in their order."""
    chosen: set[Case] = set()
    for interface in {each.interface for each in cases}:
        here = [each for each in cases if each.interface == interface]
        chosen.update(random.sample(here, min(most, len(here))))
    return [each for each in cases if each in chosen]


class Row(NamedTuple):
    """The measurements of one load."""

    case: Case
    probed: Probed


def measure(cases: list[Case], options: argparse.Namespace) -> list[Row]:
    """Run each load against a broker that was idle before. Loads over TLS run last, with a second broker."""
    rows: list[Row] = []
    for over_tls in (False, True):
        chosen = [each for each in cases if each.tls is over_tls]
        if chosen:
            own = OpenBroker(options.topics, dict(options.set), options.dir, over_tls=over_tls)
            try:
                rows += _measured_all(own, chosen, options.seconds)
            finally:
                own.close()
    return rows


def _measured_all(own: OpenBroker, cases: list[Case], seconds: float) -> Iterator[Row]:
    own.start()
    own.fill()
    with Prober(own.host, own.port, own.serving_pid, own.settings.get("TLS_CERT", "")) as prober:
        for case in cases:
            row = _measured(own, prober, case, seconds)
            print(_line(row), flush=True)
            yield row


def _measured(own: OpenBroker, prober: Prober, case: Case, seconds: float) -> Row:
    begin = time.monotonic()
    uvloop.run(_awaited(case.load(own.site, Clock(begin + seconds))))
    end = time.monotonic()
    prober.until(end)
    return Row(case, prober.between(begin, end))


async def _awaited(load: Awaitable[None]) -> None:
    await load


def _line(row: Row) -> str:
    seen, case = row.probed, row.case
    times = f"{seen.median_ms:8.1f} {seen.worst_ms:8.1f} {seen.clock_ms:8.1f} {seen.answered:6}"
    return f"{case.interface:<11} {times}  {case.what}"


def main(arguments: list[str] | None = None) -> int:
    """0; 1 when health took longer than --most anywhere, or was not answered."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.interfaces", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--most", type=float, default=250.0, metavar="MS", help="how long health may take (250)")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long each load lasts")
    parser.add_argument("--topics", type=int, default=2000, help="how many topics there are")
    parser.add_argument(
        "--only",
        default="",
        metavar="WORDS",
        help="interfaces or loads whose names contain one of these words, separated by commas",
    )
    parser.add_argument(
        "--draw", type=int, default=0, metavar="N", help="at most so many loads of each interface, drawn at random"
    )
    parser.add_argument("--dir", default="", help="where the data directory is made")
    add_set(parser)
    options = parser.parse_args(arguments)
    words = [each.lower() for each in options.only.split(",") if each]
    cases = [
        each for each in _cases() if not words or any(word in f"{each.interface} {each.what}".lower() for word in words)
    ]
    if options.draw:
        cases = drawn(cases, options.draw)
    with contextlib.suppress(OSError):
        os.nice(5)  # clients stand for other machines
    print("interface     median    worst    clock  asked  load       (ms of health)")
    rows = measure(cases, options)
    slow = [row for row in rows if row.probed.worst_ms > options.most or not row.probed.answered]
    worst: dict[str, float] = {}
    for row in rows:
        worst[row.case.interface] = max(worst.get(row.case.interface, 0.0), row.probed.worst_ms)
    print("\n".join(["", "worst of each interface, ms:", *(f"{name:<11} {ms:8.1f}" for name, ms in worst.items())]))
    for row in slow:
        print(f"longer than {options.most:g} ms: {row.case.named}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
