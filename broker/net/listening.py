"""Listening sockets, the TLS certificate, and a listener for TLS connections, whose handshakes take turns."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.net.handshakes import address_of

if TYPE_CHECKING:
    from broker.net.handshakes import HandshakeQueue

#: Connections that are accepted in one round of the loop. uvloop accepts one for each listening socket, so a client
#: after others would wait for as many rounds. Therefore a plain port has this many sockets. More of them would make
#: each new connection more expensive, because it wakes them all.
ACCEPTS: Final = 64
#: The most connections that have sent nothing yet. Above that, the one that has been silent longest is closed.
MAX_SILENT: Final = 4096
#: Time until the next try, if no connection can be accepted.
_RETRY_S: Final = 0.1


class CannotListen(Exception):
    """The broker cannot listen on the address. The message says why, and which setting to change."""


def listen(host: str, port: int, *, host_from: str = "TOPICS_HOST", port_from: str = "TOPICS_PORT") -> socket.socket:
    """Bind a socket. `host_from` and `port_from` are the settings to name in an error. Raises CannotListen."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CannotListen(f"{host_from} is {host!r}, which is not a known host: {error.strerror}.") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise CannotListen(_reason(error, host, port, host_from, port_from)) from None
    return listener


def _reason(error: OSError, host: str, port: int, host_from: str, port_from: str) -> str:
    """Why `bind` has failed, and which setting to change."""
    match error.errno:
        case errno.EADDRINUSE:
            return f"Port {port} on {host} is in use by another program: stop it, or set {port_from} to another port."
        case errno.EADDRNOTAVAIL:
            return f"{host_from} is {host!r}, which is not an address of this machine."
        case errno.EACCES:
            return f"This user may not listen on port {port}: set {port_from} to a port above 1023."
        case _:
            return f"Cannot listen on {host} port {port} ({host_from}, {port_from}): {error.strerror}."


def tls_context(cert: Path, key: Path | None) -> ssl.SSLContext:
    """The context for TLS 1.2 and later. Raises CannotListen, which names the setting."""
    for variable, path in (("TOPICS_TLS_CERT", cert), ("TOPICS_TLS_KEY", key)):
        try:
            if path is not None:
                path.read_bytes()
        except OSError as error:
            raise CannotListen(f"{variable} is {str(path)!r}, which cannot be read: {error.strerror}.") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    where = "TOPICS_TLS_CERT" if key is None else "TOPICS_TLS_KEY"

    def passphrase() -> str:
        # Without this, OpenSSL would ask on the terminal.
        raise CannotListen(f"The private key in {where} is encrypted; use one without a passphrase.")

    try:
        context.load_cert_chain(cert, key, passphrase)
    except OSError as error:  # SSLError is an OSError
        lacking = " and TOPICS_TLS_KEY is not set" if key is None else ""
        both = "TOPICS_TLS_CERT" if key is None else "TOPICS_TLS_CERT and TOPICS_TLS_KEY"
        raise CannotListen(f"{both} cannot be used{lacking}: {error}.") from None
    return context


def write_port_file(path: Path, port: int) -> None:
    """Write the port as text. The file appears complete: it is renamed into place."""
    draft = path.with_name(f".{path.name}.{port}")
    draft.write_text(f"{port}\n")
    draft.replace(path)


class _PendingHandshake:
    """An accepted connection whose handshake has not begun."""

    __slots__ = ("_listener", "_timer", "address", "connection")

    def __init__(self, listener: TlsListener, connection: socket.socket, address: bytes, patience_s: float) -> None:
        self._listener = listener
        self._timer = asyncio.get_running_loop().call_later(patience_s, self.give_up)
        self.connection = connection
        self.address = address

    def begin(self) -> None:
        """Begin the handshake: it is its turn."""
        self._timer.cancel()
        self._listener.start_handshake(self)

    def give_up(self) -> None:
        """Close the connection: it was silent or has waited for too long, or too many others wait."""
        self._timer.cancel()
        self._listener.give_up(self)


class TlsListener:
    """Accepts TLS connections. Their handshakes take turns (`broker.net.handshakes`), because each blocks the loop for
    about a millisecond: other work runs in between.

    A connection waits for its turn from its client's first bytes on, so a silent one delays no other. It has
    `handshake_s` until its turn, and again for the handshake. All connections are accepted at once: in the kernel's
    backlog they would wait in order of arrival.
    """

    def __init__(
        self,
        listener: socket.socket,
        tls: ssl.SSLContext,
        connected: Callable[[], asyncio.BaseProtocol],
        queue: HandshakeQueue,
        *,
        backlog: int,
        handshake_s: float,
        max_silent: int = MAX_SILENT,
        max_handshakes: int | None = None,
        refused: Callable[[str, Exception], None] | None = None,
    ) -> None:
        """`max_handshakes`: the most that may be under way; above that, the oldest ends. `refused` is called with the
        address of a client whose handshake failed, and the error."""
        self._listener = listener
        self._max_silent = max_silent
        self._max_handshakes = max_handshakes
        self._refused = refused
        self._tls = tls
        self._connected = connected
        self._queue = queue
        self._handshake_s = handshake_s
        self._loop = asyncio.get_running_loop()
        #: Connections that have sent nothing yet, the oldest first, and those that wait for their turn.
        self._silent: OrderedDict[socket.socket, _PendingHandshake] = OrderedDict()
        self._waiting: set[_PendingHandshake] = set()
        self._handshakes: dict[asyncio.Task[None], socket.socket] = {}
        self._is_closed = False
        listener.setblocking(False)
        listener.listen(backlog)
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Accept no more connections. Close those whose handshake has not ended."""
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for each in [*self._silent.values(), *self._waiting]:
            each.give_up()
        for task in self._handshakes:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until all handshakes have ended."""
        if self._handshakes:
            await asyncio.wait(self._handshakes)

    def _accept_on(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS):
            try:
                connection, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError:  # no file descriptors are left
                self._loop.remove_reader(self._listener)
                self._loop.call_later(_RETRY_S, self._accept_on)
                return
            connection.setblocking(False)
            self._silent[connection] = _PendingHandshake(self, connection, address_of(peer), self._handshake_s)
            self._loop.add_reader(connection, self._on_first_bytes, connection)
        while len(self._silent) > self._max_silent:
            next(iter(self._silent.values())).give_up()

    def give_up(self, handshake: _PendingHandshake) -> None:
        """Close a connection whose handshake has not begun."""
        if self._silent.pop(handshake.connection, None) is None:
            self._waiting.discard(handshake)
            self._queue.forget(handshake)
        else:
            self._loop.remove_reader(handshake.connection)
        handshake.connection.close()

    def _on_first_bytes(self, connection: socket.socket) -> None:
        """A connection has sent its first bytes, or was closed."""
        self._loop.remove_reader(connection)
        handshake = self._silent.pop(connection)
        self._waiting.add(handshake)
        self._queue.wait(handshake)

    def start_handshake(self, handshake: _PendingHandshake) -> None:
        """Start the handshake of a connection: it is its turn."""
        self._waiting.discard(handshake)
        connection = handshake.connection
        if self._max_handshakes is not None and len(self._handshakes) >= self._max_handshakes:
            next(iter(self._handshakes)).cancel()
        task = self._loop.create_task(self._handshake(connection))
        self._handshakes[task] = connection
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        connection = self._handshakes.pop(task)
        if task.cancelled():
            connection.close()

    async def _handshake(self, connection: socket.socket) -> None:
        try:
            peer = connection.getpeername()
        except OSError:  # the client has gone
            connection.close()
            return
        try:
            async with asyncio.timeout(self._handshake_s + 1):  # for cases that the transport does not detect
                await self._loop.connect_accepted_socket(
                    self._connected, connection, ssl=self._tls, ssl_handshake_timeout=self._handshake_s
                )
        except (OSError, TimeoutError) as error:
            connection.close()  # the client is at fault, and OpenSSL has sent it an alert
            if self._refused is not None:
                self._refused(str(peer[0]), error)
