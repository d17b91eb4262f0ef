"""Sends requests over one connection, without a proxy and from one thread, for the pool of connections that threads
share.

Importing httpx, or http.client, takes longer than everything else that a command does. `usable` says where it needs
neither.
"""

from __future__ import annotations

import os
import select
import socket
import time
from typing import TYPE_CHECKING

from topics_client import address
from topics_client.http1 import Answer, NotHttp, head_of
from topics_client.wire import NoReply, Reply, Request

if TYPE_CHECKING:
    import ssl

#: Like in the pool: shorter than the time after which servers close idle connections.
CONNECT_S, KEEPALIVE_S = 5.0, 3.0
#: A connection that was used so short a time ago is not looked at before its next request.
TRUSTED_S = 0.05
#: A body is sent along with its head up to this size, where they cannot be sent together without a copy.
SMALL_BODY = 16 << 10


def usable(base: str) -> bool:
    """Whether this address needs neither TLS nor a proxy."""
    return address.parts_of(base).scheme == "http" and not is_proxied(base)


def is_proxied(base: str) -> bool:
    """Whether the environment names a proxy that may be meant for this address."""
    names = (f"{address.parts_of(base).scheme}_proxy", "all_proxy")
    return not address.is_loopback(base) and any(os.environ.get(each) or os.environ.get(each.upper()) for each in names)


class OneConnection:
    """For one thread. `timeout` (seconds) limits one attempt. `tls`: for an address with https."""

    def __init__(self, base: str, token: str | None, timeout: float, tls: ssl.SSLContext | None = None) -> None:
        self._base = base
        self._token = token
        self._timeout = timeout
        self._tls = tls
        self._headers = address.headers(token)
        self._path = address.parts_of(base).path
        self._host = address.host_header(base)
        self._socket: socket.socket | None = None
        self._used_s = 0.0

    def send(self, request: Request) -> Reply | NoReply:
        """One attempt of a request."""
        head = head_of(request, self._host, self._path, self._headers)
        idle_s = time.monotonic() - self._used_s
        if self._socket is not None and (
            idle_s > KEEPALIVE_S or (idle_s > TRUSTED_S and is_ended(self._socket.fileno()))
        ):
            self._disconnect()
        limit_s = request.at_most(self._timeout + request.wait_s)
        if self._socket is None:
            try:
                self._socket = self._connect(request.at_most(min(self._timeout, CONNECT_S)))
            except OSError as error:
                return NoReply(reason=address.unreachable(self._base, cause_of(error)), sent=False)
        try:
            self._socket.settimeout(limit_s)
            answer = _exchange(self._socket, head, request.body)
        except TimeoutError:
            self._disconnect()
            return NoReply(reason=address.silent(self._base, request.at_most(self._timeout)), sent=True)
        except (OSError, NotHttp) as error:
            self._disconnect()
            return NoReply(reason=address.broken(self._base, cause_of(error)), sent=True)
        except BaseException:
            # Interrupted in the middle: the next bytes on this connection would be the answer of this request.
            self._disconnect()
            raise
        if answer.keeps:
            self._used_s = time.monotonic()
        else:
            self._disconnect()
        return answer.reply()

    def close(self) -> None:
        """Closes the connection."""
        self._disconnect()

    def _connect(self, limit_s: float) -> socket.socket:
        host, port = address.host_and_port(self._base)
        connection = socket.create_connection((host, port), limit_s)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._tls.wrap_socket(connection, server_hostname=host) if self._tls is not None else connection
        except BaseException:
            connection.close()
            raise

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _exchange(connection: socket.socket, head: bytes, body: bytes | None) -> Answer:
    refused = False
    try:
        _send(connection, head, body or b"")
    except ConnectionError:
        # The broker takes no more of it, and may have said why.
        refused = True
    answer = Answer()
    while not answer.feed(connection.recv(answer.wants)):
        pass
    if refused:
        answer.keeps = False
    return answer


def _send(connection: socket.socket, head: bytes, body: bytes) -> None:
    if len(body) <= SMALL_BODY:
        connection.sendall(head + body)
        return
    sent = 0
    # Both in one call, without a copy. Connections with TLS do not have it, nor does Windows.
    if type(connection) is socket.socket and hasattr(connection, "sendmsg"):
        sent = connection.sendmsg([head, body])
    if sent < len(head):
        connection.sendall(head[sent:])
        sent = len(head)
    if sent < len(head) + len(body):
        connection.sendall(memoryview(body)[sent - len(head) :])


def is_ended(descriptor: int) -> bool:
    """Whether the server has closed the idle connection, or has said something that nobody asked for."""
    try:
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            return bool(poll.poll(0))
        return bool(select.select([descriptor], [], [], 0)[0])
    except (OSError, ValueError):
        return True


def cause_of(error: Exception) -> str:
    """In words for people."""
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
