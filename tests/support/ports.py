"""Ports of loopback that processes can listen at again and again."""

from __future__ import annotations

import random
import socket

#: Below those of outgoing connections. Otherwise a client that keeps connecting to the port of a process that was
#: killed can get that very port for its own end, connect to itself, and keep the process from listening there again.
_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """A port at which nothing listens."""
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
