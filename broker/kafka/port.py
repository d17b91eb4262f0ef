"""The Kafka port: opens when the broker is ready, and closes with the HTTP port.

Source: docs/guides/kafka.md#protocol-versions.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import structlog

from broker.auth import ANYBODY, Access
from broker.kafka.call import Handler
from broker.kafka.connection import Connection
from broker.kafka.spread import METHOD, receiving
from broker.kafka.table import HANDLERS
from broker.net import Sweeper, TlsListener, write_port_file

if TYPE_CHECKING:
    import socket

    from broker.kafka.node import Node

_log = structlog.get_logger("broker.kafka")

BACKLOG: Final = 1024
#: How long requests in flight may take after the port is closed.
GRACE_S: Final = 10
_LOG_INTERVAL_S: Final = 1.0


class Port:
    """The listening socket and its connections."""

    def __init__(
        self,
        broker: Node,
        listener: socket.socket,
        tls: ssl.SSLContext | None = None,
        handlers: Mapping[int, Handler] = HANDLERS,
    ) -> None:
        settings = broker.settings
        self.broker = broker
        self.handlers = handlers
        self.metrics = broker.kafka_metrics
        self.max_request_bytes = settings.kafka_max_request_bytes
        #: The permissions of a new connection; None: it must authenticate first.
        self.access: Access | None = ANYBODY if broker.gate is None else None
        self._listener = listener
        self._tls = tls
        self._connections: set[Connection] = set()
        self.metrics.connections = self._connections
        self._max_connections = settings.kafka_max_connections
        self._handshake_s = settings.header_timeout_s
        # As for HTTP, except that Kafka clients keep idle connections for minutes.
        patience = settings.model_copy(update={"keep_alive_s": settings.kafka_idle_s})
        self._sweeper = Sweeper(lambda: self._connections, patience, self.metrics.too_slow, broker.memory)
        self._sweeping: asyncio.Task[None] | None = None
        self._server: asyncio.Server | TlsListener | None = None
        self._empty = asyncio.Event()
        self._logged_at: dict[str, float] = {}
        if broker.cells is not None:
            broker.cells.handlers[METHOD] = receiving(broker)

    @property
    def number(self) -> int:
        """The bound port number."""
        return self._listener.getsockname()[1]

    async def open(self) -> None:
        """Start to accept connections. Writes the port file."""
        self.broker.kafka_groups.start()
        self.broker.kafka_shares.start()
        if self._tls is None:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: Connection(self), sock=self._listener, backlog=BACKLOG
            )
        else:
            self._server = TlsListener(
                self._listener,
                self._tls,
                lambda: Connection(self),
                self.broker.arrivals.handshakes,
                backlog=BACKLOG,
                handshake_s=self._handshake_s,
            )
        self._sweeping = asyncio.create_task(self._sweeper.run())
        settings = self.broker.settings
        if settings.kafka_port_file is not None:
            write_port_file(settings.kafka_port_file, self.number)
        _log.info("kafka_listening", host=self._listener.getsockname()[0], port=self.number)

    async def close(self, grace_s: float = GRACE_S) -> None:
        """Accept no new connections and requests; answer those in flight within `grace_s`. `open` may not have run."""
        if self._server is None:
            self._listener.close()
            return
        self._server.close()
        await self.broker.kafka_groups.close()  # answers the requests that wait for other members
        for connection in list(self._connections):
            connection.shut_down()
        if self._connections:
            self._empty.clear()
            try:
                await asyncio.wait_for(self._empty.wait(), grace_s)
            except TimeoutError:
                for connection in list(self._connections):
                    connection.transport.abort()
        await self.broker.kafka_shares.close()
        if self._sweeping is not None:
            self._sweeping.cancel()

    # -- for connections -----------------------------------------------------------------------------------------------

    def enter(self, connection: Connection) -> bool:
        """Register a connection; False if there are too many."""
        if self._max_connections and len(self._connections) >= self._max_connections:
            self.metrics.refused("connections")
            return False
        self._connections.add(connection)
        return True

    def may_log(self, why: str) -> bool:
        """Whether to log a refusal: at most one of each kind per second, whatever clients send."""
        now = asyncio.get_running_loop().time()
        if now - self._logged_at.get(why, -_LOG_INTERVAL_S) < _LOG_INTERVAL_S:
            return False
        self._logged_at[why] = now
        return True

    def leave(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()
