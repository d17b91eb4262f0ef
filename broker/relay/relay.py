"""The relay of a node. It takes two kinds of connections:

    from processes of this node   at a Unix socket: each goes to the node that owns the cell it names
    from relays of other nodes    at the cluster port, by mutual TLS: each goes to the socket of a cell of this node

A connection from another node never goes on to a third one, so there are no circles. Nothing is sent to a cell before
both ends are connected; what happens to a connection after that is passed on.

Source: docs/cells.md.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from broker.cells import CONNECTED, MAX_LINE_BYTES, Kind, Wanted, line_of, wanted_in
from broker.cluster import RENEW_S, Address, LinkError, LinkTls, Owner, OwnersFile
from broker.net import HandshakeQueue, TlsListener
from broker.relay.counts import Counts, write_counts
from broker.relay.pipe import END, Link, Local, pair
from broker.settings import is_loopback

if TYPE_CHECKING:
    from broker.cells import Role

_log = structlog.get_logger("broker.relay")

#: The most connections of processes of this node, and the most of other nodes. Further ones are closed.
MAX_CONNECTIONS: Final = 4096
#: The most connections of strangers: those that have sent nothing yet, and those whose handshake is under way. Above
#: that, the oldest is closed.
MAX_SILENT: Final = 256
MAX_HANDSHAKES: Final = 64
#: How long a handshake may take, and after it the first line.
HANDSHAKE_S: Final = 5.0
LINE_S: Final = 5.0
#: How long it may take to connect to another node, and to a cell of this one.
CONNECT_S: Final = 4.0
BACKLOG: Final = 1024
#: How often the owners are looked at, and the counts are written.
LOOK_S: Final = 0.2
WRITE_S: Final = 1.0
#: Refused connections are logged at most this often.
LOG_S: Final = 1.0


class Relay:
    """See the module. Used only on its event loop."""

    def __init__(
        self,
        role: Role,
        tls: LinkTls | None,
        local: socket.socket,
        port: socket.socket,
        *,
        handshake_s: float = HANDSHAKE_S,
    ) -> None:
        """`local`: the Unix socket for processes of this node. `port`: the socket for other nodes. `tls` None: their
        connections are not protected, which is accepted between loopback addresses alone. Raises LinkError."""
        host = port.getsockname()[0]
        if tls is None and not is_loopback(host):
            raise LinkError(
                f"TOPICS_CLUSTER_HOST is {host!r}, which other machines can reach: set TOPICS_CLUSTER_SECRET, or "
                "TOPICS_CLUSTER_CERT and TOPICS_CLUSTER_CA."
            )
        self.counts = Counts()
        self._role = role
        self._tls = tls
        self._local, self._port = local, port
        self._handshake_s = handshake_s
        self._owners = OwnersFile(Path(role.run))
        #: Connections to other nodes, with the cell of each and the node that owned it.
        self._out: dict[Link, tuple[int, str, Address]] = {}
        self._in: set[Accepted] = set()
        #: Work that is under way, so that it can be cancelled.
        self._tasks: set[asyncio.Task[None]] = set()
        self._refusals, self._failures = _LogLimit(), _LogLimit()

    async def run(self) -> None:
        """Serve until this is cancelled. Then all connections are broken off."""
        loop = asyncio.get_running_loop()
        self._local.setblocking(False)
        self._local.listen(BACKLOG)
        if self._tls is None:
            listener: Any = await loop.create_server(lambda: Accepted(self), sock=self._port, backlog=BACKLOG)
        else:
            listener = TlsListener(
                self._port,
                self._tls.server,
                lambda: Accepted(self),
                HandshakeQueue(),
                backlog=BACKLOG,
                handshake_s=self._handshake_s,
                max_silent=MAX_SILENT,
                max_handshakes=MAX_HANDSHAKES,
                refused=self._handshake_failed,
            )
        work = [self.start(each) for each in (self._accept(), self._watch(), self._write(), self._renew())]
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for task in work:
                if task.done():
                    task.result()
        finally:
            listener.close()
            self._local.close()
            for task in [*self._tasks]:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for link in (*self._out, *self._in):
                link.transport.abort()

    def start(self, work: Any) -> asyncio.Task[None]:
        """Run it in a task that ends with the relay at the latest."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- to other nodes ----------------------------------------------------------------------------------------------

    async def _accept(self) -> None:
        """Accept connections of processes of this node."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._local)
            except OSError:  # no file descriptors are left
                await asyncio.sleep(LOOK_S)
                continue
            if len(self._tasks) + len(self._out) >= MAX_CONNECTIONS:
                connection.close()
                self._count_failed("too_many")
                continue
            self.start(self._pass_on(connection))

    async def _pass_on(self, connection: socket.socket) -> None:
        """Connect a process of this node to the owner of the cell that it names. Closes the connection if that fails:
        nothing was sent to the cell."""
        try:
            connection.setblocking(False)
            async with asyncio.timeout(LINE_S):
                wanted = wanted_in(await _line(connection))
        except (OSError, TimeoutError, ValueError):
            connection.close()
            self._count_failed("first_line")
            return
        except BaseException:
            connection.close()
            raise
        owner = self._owner(wanted.cell)
        if owner is None:
            self._count_failed("no_owner")
            connection.close()
            return
        try:
            async with asyncio.timeout(CONNECT_S):
                link = await self._connect(owner)
        except BaseException as error:
            connection.close()
            if not isinstance(error, OSError | TimeoutError):
                raise
            self._connect_failed(owner, error)
            return
        now = self._owner(wanted.cell)
        if now is None or (now.node, now.cluster) != (owner.node, owner.cluster):
            # `_watch` has not seen this connection, and looks again only when the owners change again.
            link.transport.abort()
            self._count_failed("no_owner")
            connection.close()
            return
        self._out[link] = wanted.cell, owner.node, owner.cluster
        self.counts.connected += 1
        self.counts.outgoing = len(self._out)
        link.transport.write(line_of(Wanted(wanted.cell, wanted.kind, self._role.set_id)))
        try:
            _, local = await asyncio.get_running_loop().connect_accepted_socket(Local, connection)
        except BaseException:
            link.transport.abort()
            connection.close()
            raise
        if link.transport.is_closing():
            local.transport.abort()
        else:
            pair(local, link)

    def _owner(self, cell: int) -> Owner | None:
        """The other node that owns a cell. None: no other one is known."""
        known = self._owners.read()
        owner = None if known is None else known.owner(cell)
        return None if owner is None or known is None or owner.node == known.me else owner

    async def _connect(self, owner: Owner) -> Link:
        """A connection to the relay of another node. Raises OSError."""
        loop, (host, port) = asyncio.get_running_loop(), (owner.cluster.host, owner.cluster.port)
        tls: dict[str, Any] = {}
        if self._tls is not None:
            tls = {"ssl": self._tls.client, "server_hostname": "node", "ssl_handshake_timeout": CONNECT_S}
        _, link = await loop.create_connection(lambda: _Outgoing(self), host, port, **tls)
        if self._tls is None and not is_loopback(link.transport.get_extra_info("peername")[0]):
            link.transport.abort()
            raise ConnectionRefusedError("no plain connections to other machines")
        return link

    def forget_outgoing(self, link: Link) -> None:
        self._out.pop(link, None)
        self.counts.outgoing = len(self._out)

    async def _watch(self) -> None:
        """Break off connections to a node that does not own the cell any more."""
        seen: object = None
        while True:
            known = self._owners.read()
            if known is not None and known is not seen:
                seen = known
                for link, (cell, node, address) in [*self._out.items()]:
                    owner = known.owner(cell)
                    if owner is not None and (owner.node, owner.cluster) != (node, address):
                        link.transport.abort()
            await asyncio.sleep(LOOK_S)

    # -- from other nodes --------------------------------------------------------------------------------------------

    def accepted(self, link: Accepted) -> bool:
        """Whether another connection of another node is served."""
        if len(self._in) >= MAX_CONNECTIONS:
            self.refuse(link.peer, "too_many")
            return False
        self._in.add(link)
        self.counts.incoming = len(self._in)
        return True

    def forget_accepted(self, link: Accepted) -> None:
        self._in.discard(link)
        self.counts.incoming = len(self._in)

    async def serve(self, link: Accepted, line: bytes) -> None:
        """Connect a link of another node to the cell of this node that its first line names."""
        try:
            wanted = wanted_in(line)
        except ValueError:
            self.refuse(link.peer, "first_line")
            link.transport.abort()
            return
        if wanted.set_id != self._role.set_id or not 0 <= wanted.cell < self._role.count:
            self.refuse(link.peer, "other_cluster")
            link.transport.abort()
            return
        role = self._role
        path = role.http_socket(wanted.cell) if wanted.kind is Kind.HTTP else role.peer_socket(wanted.cell)
        try:
            async with asyncio.timeout(CONNECT_S):
                _, local = await asyncio.get_running_loop().create_unix_connection(Local, str(path))
        except (OSError, TimeoutError):
            # The cell is not here, or not yet. That is no fault of the other node.
            link.transport.abort()
            return
        if link.transport.is_closing():
            local.transport.abort()
            return
        self.counts.accepted += 1
        link.send(CONNECTED)
        pair(local, link)

    def _handshake_failed(self, peer: str, error: Exception) -> None:
        if isinstance(error, ConnectionResetError):
            return  # it has gone, as a check of an open port does
        self.refuse(
            peer, "slow_handshake" if isinstance(error, ConnectionAbortedError | TimeoutError) else "handshake", error
        )

    def refuse(self, peer: str, reason: str, error: Exception | None = None) -> None:
        """Count a connection from outside that was not accepted, and log it, not too often."""
        self.counts.refused[reason] = self.counts.refused.get(reason, 0) + 1
        if (others := self._refusals.take()) is not None:
            _log.warning("link_refused", peer=peer, reason=reason, error=str(error or ""), others=others)

    def _connect_failed(self, owner: Owner, error: BaseException) -> None:
        reason = "handshake" if isinstance(error, ssl.SSLError) else "unreachable"
        self._count_failed(reason)
        if (others := self._failures.take()) is not None:
            address, text = str(owner.cluster), str(error) or type(error).__name__
            _log.warning("link_failed", node=owner.node, address=address, reason=reason, error=text, others=others)

    def _count_failed(self, reason: str) -> None:
        self.counts.failed[reason] = self.counts.failed.get(reason, 0) + 1

    # -- all the time ------------------------------------------------------------------------------------------------

    def count_bytes(self, received: int, sent: int) -> None:
        self.counts.received_bytes += received
        self.counts.sent_bytes += sent

    async def _write(self) -> None:
        while True:
            with suppress(OSError):  # it is for information only
                write_counts(Path(self._role.run), self.counts)
            await asyncio.sleep(WRITE_S)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            if self._tls is not None:
                try:
                    self._tls.renew()
                except LinkError as error:
                    _log.error("link_certificate_not_renewed", reason=str(error))


class _Outgoing(Link):
    """A connection to another node."""

    __slots__ = ("_relay",)

    def __init__(self, relay: Relay) -> None:
        super().__init__(relay.count_bytes)
        self._relay = relay

    def lost(self) -> None:
        self._relay.forget_outgoing(self)


class Accepted(Link):
    """A connection from another node. It begins with a line."""

    __slots__ = ("_line", "_relay", "_timer", "peer")

    def __init__(self, relay: Relay) -> None:
        super().__init__(relay.count_bytes)
        self._relay = relay
        self._line: bytes | None = b""
        self._timer: asyncio.TimerHandle | None = None
        self.peer = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.peer = str(transport.get_extra_info("peername")[0])
        super().connection_made(transport)
        if not self._relay.accepted(self):
            self.transport.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(LINE_S, self._too_slow)
        self.go_on()

    def data_received(self, data: bytes) -> None:
        if self._line is None:
            super().data_received(data)
            return
        self._line += data
        if b"\n" in self._line[:MAX_LINE_BYTES]:
            line, _, rest = self._line.partition(b"\n")
            self._end_line()
            self.hold()
            if rest == END:
                # The process that wanted the cell has given up meanwhile. That is no fault of its node.
                self.transport.abort()
            elif rest:
                # Nothing else is sent before the answer to the line.
                self._refuse()
            else:
                self._relay.start(self._relay.serve(self, line))
        elif len(self._line) >= MAX_LINE_BYTES:
            self._refuse()

    def lost(self) -> None:
        self._end_line()
        self._relay.forget_accepted(self)

    def _too_slow(self) -> None:
        self._refuse()

    def _refuse(self) -> None:
        self._end_line()
        self._relay.refuse(self.peer, "first_line")
        self.transport.abort()

    def _end_line(self) -> None:
        self._line = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _LogLimit:
    """Allows a line of the log every `LOG_S`."""

    def __init__(self) -> None:
        self._at = -LOG_S
        self._skipped = 0

    def take(self) -> int | None:
        """How many lines were left out since the last one. None: leave this one out too."""
        now = asyncio.get_running_loop().time()
        if now - self._at < LOG_S:
            self._skipped += 1
            return None
        self._at, skipped, self._skipped = now, self._skipped, 0
        return skipped


async def _line(connection: socket.socket) -> bytes:
    """The first line, without its end. Raises OSError, ValueError."""
    loop, line = asyncio.get_running_loop(), b""
    while not line.endswith(b"\n"):
        if len(line) >= MAX_LINE_BYTES:
            raise ValueError("the first line is too long")
        data = await loop.sock_recv(connection, MAX_LINE_BYTES - len(line))
        if not data:
            raise ConnectionResetError
        line += data
    return line[:-1]
