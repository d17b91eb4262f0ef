"""Clients of every protocol that ask for much and read nothing, and measurements of the broker meanwhile.

with Unread(broker.port) as clients:      # sockets of this process: what they are sent stays in the kernel, or below
    clients.http1(100, target)
"""

from __future__ import annotations

import base64
import http.client
import os
import socket
import struct
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import h2.config
import h2.connection
import h2.settings

from tests.support.broker_process import BrokerProcess

#: The most that a client's connection has in the kernel. The rest stays in the broker.
RECEIVE_BYTES = 4096
RECORD_BYTES = 900_000


class UnreadClients:
    """Connections that are kept open until the block ends."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.leave()

    def leave(self) -> None:
        """Close all of them."""
        for each in self.sockets:
            each.close()
        self.sockets.clear()

    def connect(self) -> socket.socket:
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        made.settimeout(60)
        made.connect(("127.0.0.1", self._port))
        self.sockets.append(made)
        return made

    def http1(self, count: int, requests: bytes) -> None:
        """Open this many connections. Each sends these requests, pipelined if there are several."""
        for _ in range(count):
            self.connect().sendall(requests)

    def http2(self, count: int, target: str, streams: int, window: int = 0) -> None:
        """Open this many connections with this many streams each. None of them reads."""
        for _ in range(count):
            made = self.connect()
            config = h2.config.H2Configuration(client_side=True)
            peer = h2.connection.H2Connection(config)
            peer.local_settings = h2.settings.Settings(
                client=True, initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window}
            )
            peer.initiate_connection()
            for number in range(streams):
                head = [(":method", "GET"), (":path", target), (":scheme", "http"), (":authority", "localhost")]
                peer.send_headers(2 * number + 1, head, end_stream=True)
            made.sendall(peer.data_to_send())

    def websockets(self, count: int, message: bytes) -> None:
        """Open this many WebSockets. Each sends one message, which subscribes."""
        key = base64.b64encode(os.urandom(16))
        for _ in range(count):
            made = self.connect()
            made.sendall(
                b"GET /v0/ws HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
                b"sec-websocket-version: 13\r\nsec-websocket-key: %b\r\n\r\n" % key
            )
            got = b""
            while b"\r\n\r\n" not in got:
                got += made.recv(4096)
            made.sendall(struct.pack(">BBH4x", 0x81, 0x80 | 126, len(message)) + message)

    def kafka(self, count: int, topic: str, *, fetches: int = 1, max_bytes: int = 50 << 20) -> None:
        """Open this many connections. Each sends this many requests to fetch all of partition 0 of a topic."""
        for _ in range(count):
            self.connect().sendall(b"".join(fetch(topic, max_bytes, number) for number in range(fetches)))


def get(target: str) -> bytes:
    """One request of HTTP/1.1."""
    return f"GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()


def fetch(topic: str, max_bytes: int, number: int) -> bytes:
    """A Fetch of version 4, as sent."""
    name = topic.encode()
    body = struct.pack(">hhih", 1, 4, number, 1) + b"x"
    body += struct.pack(">iiiib", -1, 1000, 1, max_bytes, 0)
    body += struct.pack(">ih", 1, len(name)) + name + struct.pack(">iiqi", 1, 0, 0, max_bytes)
    return struct.pack(">i", len(body)) + body


class Seen(NamedTuple):
    """What was measured while a block ran."""

    peak_bytes: int
    #: The longest time of the probe, and how often it was answered.
    slowest_s: float
    answered: int


class Watch:
    """Measures a broker's memory and asks for its health, ten times a second. Kills the broker if it grows without
    limit."""

    def __init__(self, broker: BrokerProcess, *, kill_bytes: int = 1_500 << 20) -> None:
        self._broker = broker
        self._kill_bytes = kill_bytes
        self._over = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._look, self._ask)]
        self.peak_bytes = 0
        self.killed = False
        self.delays_s: list[float] = []

    def __enter__(self) -> Self:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        for each in self._threads:
            each.join()

    def seen(self) -> Seen:
        return Seen(self.peak_bytes, max(self.delays_s, default=0.0), len(self.delays_s))

    def _look(self) -> None:
        while not self._over.wait(0.02):
            self.peak_bytes = max(self.peak_bytes, resident(self._broker))
            if self.peak_bytes > self._kill_bytes:
                self.killed = True
                self._broker.process.kill()
                return

    def _ask(self) -> None:
        while not self._over.wait(0.1):
            began = time.monotonic()
            asking = http.client.HTTPConnection("127.0.0.1", self._broker.port, timeout=60)
            try:
                asking.request("GET", "/v0/health")
                assert asking.getresponse().status == 200
            except OSError:
                if self.killed:
                    return
                raise
            finally:
                asking.close()
            self.delays_s.append(time.monotonic() - began)


def resident(broker: BrokerProcess) -> int:
    """Bytes of the broker's own memory."""
    try:
        status = Path(f"/proc/{broker.process.pid}/status").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith(("RssAnon", "RssShmem")))
