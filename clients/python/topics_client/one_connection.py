"""Sends requests over one connection of http.client, for programs that start, make a call or two, and end, and for the
pool of plain connections.

Importing httpx takes longer than everything else that such a program does. This module speaks plain HTTP to one broker,
without a proxy, from one thread. `usable` says where that is enough.
"""

from __future__ import annotations

import http.client
import os
import socket
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from topics_client import address
from topics_client.wire import NoReply, Reply, Request

if TYPE_CHECKING:
    from topics_client.pool import Pool

#: Like in the pool: shorter than the time after which servers close idle connections.
_CONNECT_S, _KEEPALIVE_S = 5.0, 3.0
#: A connection that was used so short a time ago is not looked at before its next request.
_TRUSTED_S = 0.05
_PROXIES = ("http_proxy", "all_proxy")


def usable(base: str) -> bool:
    """Whether this address needs neither TLS nor a proxy."""
    if address.parts_of(base).scheme != "http":
        return False
    return address.is_loopback(base) or not any(
        os.environ.get(each) or os.environ.get(each.upper()) for each in _PROXIES
    )


class OneConnection:
    """A `Sender` for one thread. `timeout` (seconds) limits one attempt."""

    def __init__(self, base: str, token: str | None, timeout: float) -> None:
        self._base = base
        self._token = token
        self._timeout = timeout
        self._headers = address.headers(token)
        parts = address.parts_of(base)
        self._path = parts.path
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80)
        self._used_s = 0.0
        self._pool: Pool | None = None

    def send(self, request: Request) -> Reply | NoReply:
        """One attempt of a request."""
        connection = self._connection
        idle_s = time.monotonic() - self._used_s
        if connection.sock is not None and (
            idle_s > _KEEPALIVE_S or (idle_s > _TRUSTED_S and _is_ended(connection.sock))
        ):
            connection.close()
        limit_s = request.at_most(self._timeout + request.wait_s)
        if connection.sock is None:
            try:
                connection.timeout = request.at_most(min(self._timeout, _CONNECT_S))
                connection.connect()
            except OSError as error:
                return NoReply(reason=address.unreachable(self._base, _cause(error)), sent=False)
        try:
            # `connect` has set the timeout of the connection.
            cast("socket.socket", connection.sock).settimeout(limit_s)
            headers = {**self._headers, **request.headers}
            refused = False
            try:
                connection.request(request.method, self._path + request.target, request.body, headers)
            except ConnectionError:
                # The broker takes no more of it, and may have said why.
                refused = True
            answer = connection.getresponse()
            body = answer.read()
            if refused:
                connection.close()
        except TimeoutError:
            connection.close()
            return NoReply(reason=address.silent(self._base, request.at_most(self._timeout)), sent=True)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return NoReply(reason=address.broken(self._base, _cause(error)), sent=True)
        except BaseException:
            # Interrupted in the middle: the next bytes on this connection would be the answer of this request.
            connection.close()
            raise
        self._used_s = time.monotonic()
        return Reply(status=answer.status, headers={k.lower(): v for k, v in answer.getheaders()}, body=body)

    @contextmanager
    def stream(self, request: Request) -> Generator[Iterator[bytes]]:
        """An endless answer comes over a pool, which is created for the first one."""
        if self._pool is None:
            from topics_client.pool import Pool

            self._pool = Pool(self._base, self._token, self._timeout)
        with self._pool.stream(request) as pieces:
            yield pieces

    def close(self) -> None:
        """Closes the connections."""
        self._connection.close()
        if self._pool is not None:
            self._pool.close()


def _is_ended(sock: socket.socket) -> bool:
    """Whether the server has closed the connection, or has said something that nobody asked for."""
    try:
        sock.settimeout(0)
        sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _cause(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
