"""One connection of the asyncio client, without a proxy: an asyncio protocol that sends a request and reads its answer.

A request needs a fraction of the processor time that it needs with httpx.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from typing import cast

from topics_client import address
from topics_client.http1 import Answer, NotHttp, head_of
from topics_client.one_connection import CONNECT_S, KEEPALIVE_S, SMALL_BODY, TRUSTED_S, cause_of, is_ended
from topics_client.wire import NoReply, Reply, Request

_NUMBER = re.compile(r"\[Errno (\d+)\]")


class AsyncConnection(asyncio.Protocol):
    """For one request at a time, in the event loop in which it was opened."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        #: The answer that is awaited.
        self._answer: Answer | None = None
        self._done: asyncio.Future[Answer] | None = None
        #: The next look at the time.
        self._watch: asyncio.TimerHandle | None = None
        #: When something last arrived or was sent, in the time of the loop.
        self._active_s = self.loop.time()

    @property
    def is_usable(self) -> bool:
        """Whether another request may be sent. Nothing is being sent."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        idle_s = self.loop.time() - self._active_s
        if idle_s <= TRUSTED_S:
            return True
        # The loop may have been busy with other things than to see the end of the connection.
        connection = transport.get_extra_info("socket")
        return idle_s <= KEEPALIVE_S and (connection is None or not is_ended(connection.fileno()))

    async def exchange(self, head: bytes, body: bytes, limit_s: float) -> Answer:
        """Send a request, and wait for its answer. Afterwards the connection is closed unless the answer keeps it.
        Raises TimeoutError when nothing happens for that many seconds, OSError, NotHttp."""
        transport = self._transport
        if transport is None:
            raise ConnectionResetError("the connection was closed")
        self._answer = Answer()
        done: asyncio.Future[Answer] = self.loop.create_future()
        self._done = done
        self._active_s = self.loop.time()
        self._watch = self.loop.call_later(limit_s, self._look, limit_s)
        stays_open = False
        try:
            if len(body) <= SMALL_BODY:
                transport.write(head + body)
            else:
                transport.write(head)
                transport.write(body)
            answer = await done
            # What is not yet sent of the request would come before the next one.
            stays_open = answer.keeps and not transport.get_write_buffer_size()
            return answer
        finally:
            self._watch.cancel()
            self._answer = self._done = self._watch = None
            if not stays_open:
                transport.abort()

    def _look(self, limit_s: float) -> None:
        """Ends the exchange when nothing has happened for so long."""
        left_s = self._active_s + limit_s - self.loop.time()
        if left_s > 0:
            self._watch = self.loop.call_later(left_s, self._look, limit_s)
        elif self._done is not None and not self._done.done():
            self._done.set_exception(TimeoutError())

    def close(self) -> None:
        """Closes the connection, and ends the exchange that is running."""
        if self._transport is not None:
            self._transport.abort()

    # -- what asyncio calls --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        # Some event loops have transports of their own.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Something has arrived."""
        self._active_s = self.loop.time()
        self._feed(data)

    def eof_received(self) -> None:
        """The server sends no more."""
        self._feed(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._transport = None
        if exc is not None and self._done is not None and not self._done.done():
            self._done.set_exception(exc)
        self._feed(b"")

    def _feed(self, data: bytes) -> None:
        answer, done = self._answer, self._done
        if answer is None or done is None or done.done():
            # Nobody has asked for it.
            self.close()
            return
        try:
            if answer.feed(data):
                done.set_result(answer)
        except NotHttp as error:
            done.set_exception(error)


async def opened(base: str, limit_s: float, tls: ssl.SSLContext | None) -> AsyncConnection:
    """A connection to this address. Raises TimeoutError, OSError."""
    host, port = address.host_and_port(base)
    opening = asyncio.get_running_loop().create_connection(
        AsyncConnection, host, port, ssl=tls, server_hostname=host if tls is not None else None
    )
    _, connection = await asyncio.wait_for(opening, limit_s)
    return connection


class AsyncSender:
    """The requests of a client to one address, with one key. `timeout` (seconds) limits one attempt. Not more than
    `most_idle` connections wait for requests."""

    def __init__(
        self, base: str, token: str | None, timeout: float, tls: ssl.SSLContext | None, most_idle: int = 64
    ) -> None:
        self._base = base
        self._timeout = timeout
        self._tls = tls
        self._most_idle = most_idle
        self._headers = address.headers(token)
        self._path = address.parts_of(base).path
        self._host = address.host_header(base)
        #: The one that was used last is the last one.
        self._idle: list[AsyncConnection] = []

    async def send(self, request: Request) -> Reply | NoReply:
        """One attempt of a request."""
        head = head_of(request, self._host, self._path, self._headers)
        connection = self._usable()
        if connection is None:
            try:
                limit_s = request.at_most(min(self._timeout, CONNECT_S))
                connection = await opened(self._base, limit_s, self._tls)
            except (OSError, asyncio.TimeoutError) as error:
                return NoReply(reason=address.unreachable(self._base, _why_not_opened(error)), sent=False)
        try:
            limit_s = request.at_most(self._timeout + request.wait_s)
            answer = await connection.exchange(head, request.body or b"", limit_s)
        except TimeoutError:
            return NoReply(reason=address.silent(self._base, request.at_most(self._timeout)), sent=True)
        except (OSError, NotHttp) as error:
            return NoReply(reason=address.broken(self._base, cause_of(error)), sent=True)
        if answer.keeps and len(self._idle) < self._most_idle:
            self._idle.append(connection)
        else:
            connection.close()
        return answer.reply()

    async def close(self) -> None:
        """Closes the connections that no request uses."""
        while (connection := self._last()) is not None:
            connection.close()
        # The event loop closes their sockets in its next turn.
        await asyncio.sleep(0)

    def _usable(self) -> AsyncConnection | None:
        while (connection := self._last()) is not None and not connection.is_usable:
            connection.close()
        return connection

    def _last(self) -> AsyncConnection | None:
        """An idle connection. Those of an event loop that has ended are left out, and closed as garbage."""
        loop = asyncio.get_running_loop()
        while self._idle:
            connection = self._idle.pop()
            if connection.loop is loop:
                return connection
        return None


def _why_not_opened(error: Exception) -> str:
    """In words for people. asyncio names the addresses that it has tried, and the number of the error."""
    if isinstance(error, asyncio.TimeoutError):
        return "timed out"
    if (isinstance(error, OSError) and "Connect call failed" in str(error)) and (found := _NUMBER.search(str(error))):
        return os.strerror(int(found[1]))
    return cause_of(error)
