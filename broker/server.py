"""The HTTP server: uvicorn, with the socket, the signals and the exit taken into our own hands."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Final

from uvicorn import Config, Server

from broker.http.answers import Receive, Scope, Send
from broker.http.dispatch import Dispatcher
from broker.http.hot import HotRequests
from broker.protocols import one_port
from broker.settings import HttpServer, Settings

#: How long requests in flight may take to end once the sockets are closed.
GRACE_S: Final = 10
BACKLOG: Final = 2048


class CannotListen(Exception):
    """The address cannot be listened on."""


class BrokerServer(Server):
    """A uvicorn server that listens on a given socket and stops when told, leaving signals alone."""

    def __init__(
        self, app: Dispatcher, settings: Settings, listener: socket.socket, *, grace_s: float = GRACE_S
    ) -> None:
        """Raises CannotListen when the certificate cannot be used."""
        super().__init__(_config(app, settings))
        self.config.timeout_graceful_shutdown = grace_s  # pyright: ignore[reportAttributeAccessIssue]
        try:
            self.config.load()
        except OSError as error:  # those of ssl are OSErrors too
            listener.close()
            raise CannotListen(f"TOPICS_TLS_CERT or TOPICS_TLS_KEY cannot be used: {error}.") from None
        self._listener = listener
        self._accepting = asyncio.Event()
        self._scheme = "https" if settings.tls_cert else "http"
        self._host = settings.host

    @property
    def port(self) -> int:
        return self._listener.getsockname()[1]

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{self._scheme}://{host}:{self.port}"

    async def serve_until_told(self) -> None:
        """Serve until `tell_to_stop`; then close the sockets and give requests in flight `GRACE_S`."""
        await self.serve(sockets=[self._listener])

    async def listening(self) -> None:
        """Until connections are accepted."""
        await self._accepting.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._accepting.set()

    def tell_to_stop(self) -> None:
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        # The base class takes SIGINT and SIGTERM and would end serving at once, without a drain.
        yield


def listen(host: str, port: int) -> socket.socket:
    """A bound socket. Raises CannotListen with a sentence naming the address."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CannotListen(f"TOPICS_HOST is {host!r}, which is no address of this machine: {error}.") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise CannotListen(f"Cannot listen on {host} port {port} (TOPICS_HOST, TOPICS_PORT): {error}.") from None
    return listener


def write_port_file(path: Path, port: int) -> None:
    """The port as text, appearing at once and whole."""
    draft = path.with_name(f".{path.name}.{port}")
    draft.write_text(f"{port}\n")
    draft.replace(path)


def _config(app: Dispatcher, settings: Settings) -> Config:
    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, send)

    return Config(
        run,  # pyright: ignore[reportArgumentType]
        loop="uvloop",
        http=one_port(HotRequests(app.broker)) if settings.http is HttpServer.ZTTP else settings.http.value,
        ws="websockets-sansio",
        ws_max_size=settings.max_body_bytes,
        # Records go to many connections as the same bytes; compressing them for each would cost more than it saves.
        ws_per_message_deflate=False,
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=True,
        backlog=BACKLOG,
        timeout_keep_alive=settings.keep_alive_s,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )
