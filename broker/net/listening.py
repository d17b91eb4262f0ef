"""Where connections come in: sockets, the certificate for all of them, and TLS handshakes that take turns."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.net.arrivals import HANDSHAKE_COST, same_priority

if TYPE_CHECKING:
    from broker.scheduler import DeliveryScheduler

#: Connections accepted in one round of the loop. uvloop takes one of each listening socket: a client that comes alone
#: would wait for as many rounds as there are others in front of it. So a plain port has as many sockets. More of them
#: cost each new connection more: all of them are woken.
ACCEPTS: Final = 64
#: Handshakes that wait for their turn; while there are so many, further connections stay in the kernel's backlog.
MAX_WAITING: Final = 256
#: Connections whose clients have sent nothing yet; one more, and the one that has been silent for longest is closed.
MAX_SILENT: Final = 4096
#: Where nothing can be accepted, it is tried again after so long.
_RETRY_S: Final = 0.1


class CannotListen(Exception):
    """The address cannot be listened on."""


def listen(host: str, port: int, *, host_from: str = "TOPICS_HOST", port_from: str = "TOPICS_PORT") -> socket.socket:
    """A bound socket. Raises CannotListen with a sentence naming the address and the settings that it is from."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CannotListen(f"{host_from} is {host!r}, which is no address of this machine: {error}.") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise CannotListen(f"Cannot listen on {host} port {port} ({host_from}, {port_from}): {error}.") from None
    return listener


def tls_context(cert: Path, key: Path | None) -> ssl.SSLContext:
    """TLS 1.2 and later. Raises CannotListen with a sentence naming the setting."""
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
        # Else the terminal would be asked.
        raise CannotListen(f"The private key in {where} is encrypted; it has to be there in plain.")

    try:
        context.load_cert_chain(cert, key, passphrase)
    except OSError as error:  # those of ssl are OSErrors too
        lacking = " and TOPICS_TLS_KEY is not set" if key is None else ""
        both = "TOPICS_TLS_CERT" if key is None else "TOPICS_TLS_CERT and TOPICS_TLS_KEY"
        raise CannotListen(f"{both} cannot be used{lacking}: {error}.") from None
    return context


def write_port_file(path: Path, port: int) -> None:
    """The port as text, appearing at once and whole."""
    draft = path.with_name(f".{path.name}.{port}")
    draft.write_text(f"{port}\n")
    draft.replace(path)


class TlsListener:
    """Accepts connections that speak TLS. Their handshakes take turns (`broker.net.arrivals`): each keeps the loop
    for about a millisecond, and what else comes in is served in between.

    A connection takes its turn when its client's first bytes are there, so that one that sends nothing keeps no other
    waiting. It has `handshake_s` for that, and as much for the handshake.
    """

    def __init__(
        self,
        listener: socket.socket,
        tls: ssl.SSLContext,
        connected: Callable[[], asyncio.BaseProtocol],
        scheduler: DeliveryScheduler,
        *,
        backlog: int,
        handshake_s: float,
    ) -> None:
        self._listener = listener
        self._tls = tls
        self._connected = connected
        self._scheduler = scheduler
        self._handshake_s = handshake_s
        self._loop = asyncio.get_running_loop()
        #: Those whose first bytes have not come, with what gives them up.
        self._silent: dict[socket.socket, asyncio.TimerHandle] = {}
        self._handshakes: dict[asyncio.Task[None], socket.socket] = {}
        self._is_accepting = False
        self._is_closed = False
        listener.setblocking(False)
        listener.listen(backlog)
        self._accept_on()

    def close(self) -> None:
        """Accept nothing more. Connections whose handshake has not ended are closed."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._is_accepting:
            self._loop.remove_reader(self._listener)
        self._listener.close()
        for each in list(self._silent):
            self._give_up(each)
        for task in self._handshakes:
            task.cancel()

    async def wait_closed(self) -> None:
        """Until no handshake is under way."""
        if self._handshakes:
            await asyncio.wait(self._handshakes)

    def _accept_on(self) -> None:
        """Accept, or leave what comes in the kernel's backlog while many wait for their turn."""
        may_accept = not self._is_closed and self._scheduler.waiting < MAX_WAITING
        if may_accept and not self._is_accepting:
            self._loop.add_reader(self._listener, self._accept)
        elif self._is_accepting and not may_accept:
            self._loop.remove_reader(self._listener)
        self._is_accepting = may_accept

    def _accept(self) -> None:
        for _ in range(ACCEPTS):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError:  # there are no descriptors left
                self._loop.remove_reader(self._listener)
                self._is_accepting = False
                self._loop.call_later(_RETRY_S, self._accept_on)
                return
            connection.setblocking(False)
            self._silent[connection] = self._loop.call_later(self._handshake_s, self._give_up, connection)
            self._loop.add_reader(connection, self._speaks, connection)
        while len(self._silent) > MAX_SILENT:
            self._give_up(next(iter(self._silent)))
        self._accept_on()

    def _give_up(self, connection: socket.socket) -> None:
        self._silent.pop(connection).cancel()
        self._loop.remove_reader(connection)
        connection.close()

    def _speaks(self, connection: socket.socket) -> None:
        """Its first bytes are there, or its end."""
        self._silent.pop(connection).cancel()
        self._loop.remove_reader(connection)
        task = self._loop.create_task(self._handshake(connection))
        self._handshakes[task] = connection
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        connection = self._handshakes.pop(task)
        if task.cancelled():
            connection.close()

    async def _handshake(self, connection: socket.socket) -> None:
        try:
            if not self._scheduler.try_take(HANDSHAKE_COST):
                waiter = self._scheduler.wait(HANDSHAKE_COST, same_priority)
                self._accept_on()
                await waiter
                self._accept_on()
            async with asyncio.timeout(self._handshake_s + 1):  # what the transport itself does not notice
                await self._loop.connect_accepted_socket(
                    self._connected, connection, ssl=self._tls, ssl_handshake_timeout=self._handshake_s
                )
        except (OSError, TimeoutError):
            connection.close()  # what goes wrong in a handshake is the client's, and it has been told
