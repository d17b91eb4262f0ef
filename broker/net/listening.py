"""Where connections come in: sockets, the certificate for all of them, and TLS handshakes that take turns."""

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

#: Connections accepted in one round of the loop. uvloop takes one of each listening socket: a client that comes alone
#: would wait for as many rounds as there are others in front of it. So a plain port has as many sockets. More of them
#: cost each new connection more: all of them are woken.
ACCEPTS: Final = 64
#: Connections whose clients have sent nothing yet; one more, and the one that has been silent for longest is closed.
MAX_SILENT: Final = 4096
#: Where nothing can be accepted, it is tried again after so long.
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


class _Newcomer:
    """An accepted connection whose handshake has not begun."""

    __slots__ = ("_listener", "_timer", "address", "connection")

    def __init__(self, listener: TlsListener, connection: socket.socket, address: bytes, patience_s: float) -> None:
        self._listener = listener
        self._timer = asyncio.get_running_loop().call_later(patience_s, self.give_up)
        self.connection = connection
        self.address = address

    def begin(self) -> None:
        """It is its turn."""
        self._timer.cancel()
        self._listener.start_handshake(self)

    def give_up(self) -> None:
        """Close it: it has been silent or has waited for too long, or too many others do."""
        self._timer.cancel()
        self._listener.give_up(self)


class TlsListener:
    """Accepts connections that speak TLS. Their handshakes take turns (`broker.net.handshakes`): each keeps the loop
    for about a millisecond, and what else comes in is served in between.

    A connection takes its turn when its client's first bytes are there, so that one that sends nothing keeps no other
    waiting. Until its turn it has `handshake_s`, and as much for the handshake. All that come are accepted: in the
    kernel's backlog they would wait in the order in which they came.
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
    ) -> None:
        self._listener = listener
        self._tls = tls
        self._connected = connected
        self._queue = queue
        self._handshake_s = handshake_s
        self._loop = asyncio.get_running_loop()
        #: Those whose first bytes have not come, the oldest first, and those that wait for their turn.
        self._silent: OrderedDict[socket.socket, _Newcomer] = OrderedDict()
        self._waiting: set[_Newcomer] = set()
        self._handshakes: dict[asyncio.Task[None], socket.socket] = {}
        self._is_closed = False
        listener.setblocking(False)
        listener.listen(backlog)
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Accept nothing more. Connections whose handshake has not ended are closed."""
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
        """Until no handshake is under way."""
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
            except OSError:  # there are no descriptors left
                self._loop.remove_reader(self._listener)
                self._loop.call_later(_RETRY_S, self._accept_on)
                return
            connection.setblocking(False)
            self._silent[connection] = _Newcomer(self, connection, address_of(peer), self._handshake_s)
            self._loop.add_reader(connection, self._speaks, connection)
        while len(self._silent) > MAX_SILENT:
            next(iter(self._silent.values())).give_up()

    def give_up(self, newcomer: _Newcomer) -> None:
        """Close a connection whose handshake has not begun."""
        if self._silent.pop(newcomer.connection, None) is None:
            self._waiting.discard(newcomer)
            self._queue.forget(newcomer)
        else:
            self._loop.remove_reader(newcomer.connection)
        newcomer.connection.close()

    def _speaks(self, connection: socket.socket) -> None:
        """Its first bytes are there, or its end."""
        self._loop.remove_reader(connection)
        newcomer = self._silent.pop(connection)
        self._waiting.add(newcomer)
        self._queue.wait(newcomer)

    def start_handshake(self, newcomer: _Newcomer) -> None:
        """It is its turn."""
        self._waiting.discard(newcomer)
        connection = newcomer.connection
        task = self._loop.create_task(self._handshake(connection))
        self._handshakes[task] = connection
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        connection = self._handshakes.pop(task)
        if task.cancelled():
            connection.close()

    async def _handshake(self, connection: socket.socket) -> None:
        try:
            async with asyncio.timeout(self._handshake_s + 1):  # what the transport itself does not notice
                await self._loop.connect_accepted_socket(
                    self._connected, connection, ssl=self._tls, ssl_handshake_timeout=self._handshake_s
                )
        except (OSError, TimeoutError):
            connection.close()  # what goes wrong in a handshake is the client's, and it has been told
