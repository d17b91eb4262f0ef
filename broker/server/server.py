"""The HTTP server: uvicorn, without its handling of the socket, the signals and the exit."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any, Final

from uvicorn import Config, Server

from broker.api import Dispatcher, Hot, HotRequests
from broker.content import Receive, Scope, Send
from broker.net import ACCEPTS, CannotListen, Sweeper, TlsListener, tls_context
from broker.server.protocols import one_port, plain
from broker.server.server_context import ServerContext
from broker.server.sockets import websockets
from broker.settings import HttpServer, Settings

#: How long requests in flight may take after the sockets are closed.
GRACE_S: Final = 10
BACKLOG: Final = 2048


class BrokerServer(Server):
    """A uvicorn server that listens on a given socket, stops on request, and handles no signals."""

    def __init__(
        self,
        app: Dispatcher,
        settings: Settings,
        listener: socket.socket,
        *,
        hot: Hot | None = None,
        grace_s: float = GRACE_S,
        beside: BrokerServer | None = None,
    ) -> None:
        """`hot` answers the frequent requests; None: the handlers of `app`. `beside`: a server of the same `app` that
        stops no earlier. Each has its own limit of connections, so the clients of one port leave room at the other.

        Raises CannotListen if the certificate cannot be used.
        """
        super().__init__(_config(app, settings, hot))
        self.config.timeout_graceful_shutdown = grace_s  # pyright: ignore[reportAttributeAccessIssue]
        try:
            self.config.load()
        except CannotListen:
            listener.close()
            raise
        self._listener = listener
        self._patience_s = settings.header_timeout_s
        metrics = app.broker.http_metrics
        metrics.connections.append(self.server_state.connections)
        self._memory = app.broker.memory
        #: Whether this server does the work that is needed only once in a process.
        self._is_first = beside is None
        self._handshakes = app.broker.arrivals.handshakes
        self._sweeper = Sweeper(lambda: self.server_state.connections, settings, metrics.too_slow, self._memory)
        self._accepting = asyncio.Event()
        self._scheme = "https" if settings.tls_cert else "http"
        self._host = settings.host

    @property
    def port(self) -> int:
        return self._listener.getsockname()[1]

    @property
    def url(self) -> str:
        if self._listener.family is socket.AF_UNIX:
            return f"unix:{self._listener.getsockname()}"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{self._scheme}://{host}:{self.port}"

    async def serve_until_stopped(self) -> None:
        """Serve until `request_stop`; then close the sockets and give requests in flight `GRACE_S`."""
        tasks = [asyncio.create_task(self._sweeper.run())]
        if self._is_first:
            tasks.append(asyncio.create_task(self._memory.run()))
        try:
            await self.serve(sockets=[self._listener])
        finally:
            for task in tasks:
                task.cancel()

    async def listening(self) -> None:
        """Wait until connections are accepted."""
        await self._accepting.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # The same as in the base class, with TLS handshakes that take turns.
        await self.lifespan.startup()
        loop = asyncio.get_running_loop()
        config = self.config

        def connected() -> asyncio.Protocol:
            protocol: Any = config.http_protocol_class
            return protocol(config=config, server_state=self.server_state, app_state=self.lifespan.state)

        servers: list[Any] = []
        for given in sockets or ():
            if given.family is socket.AF_UNIX:
                servers.append(await loop.create_unix_server(connected, sock=given, backlog=config.backlog))
            elif config.ssl is None:
                listeners = (given, *(given.dup() for _ in range(ACCEPTS - 1)))
                servers += [
                    await loop.create_server(connected, sock=each, backlog=config.backlog) for each in listeners
                ]
            else:
                queue, patience_s = self._handshakes, self._patience_s
                servers.append(
                    TlsListener(given, config.ssl, connected, queue, backlog=config.backlog, handshake_s=patience_s)
                )
        self.servers = servers
        self.started = True
        self._accepting.set()

    def request_stop(self) -> None:
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        # The base class takes SIGINT and SIGTERM and would end serving at once, without a drain.
        yield


def _config(app: Dispatcher, settings: Settings, hot: Hot | None) -> Config:
    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, send)

    broker = app.broker
    server_context = ServerContext(settings, broker.http_metrics, broker.memory, broker.arrivals, broker.may_answer)
    if settings.http is HttpServer.ZTTP:
        http = one_port(HotRequests(app) if hot is None else hot, server_context)
    else:
        http = plain(server_context)
    return Config(
        run,  # pyright: ignore[reportArgumentType]
        loop="uvloop",
        http=http,
        ws=websockets(server_context),
        ws_max_size=settings.max_body_bytes,
        # Many connections get the same bytes of records. Compressing them for each connection would cost more than it
        # saves.
        ws_per_message_deflate=False,
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=True,
        headers=[] if broker.cells is None else [("topics-cell", str(broker.cells.me))],
        backlog=BACKLOG,
        timeout_keep_alive=settings.keep_alive_s,
        ssl_context_factory=None if settings.tls_cert is None else partial(_tls, settings.tls_cert, settings.tls_key),
    )


def _tls(cert: Path, key: Path | None, config: Config, _: object) -> ssl.SSLContext:
    context = tls_context(cert, key)
    alpn: list[str] | None = getattr(config.http_protocol_class, "alpn_protocols", None)
    context.set_alpn_protocols(alpn or ["http/1.1"])
    return context
