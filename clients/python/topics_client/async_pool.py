"""Sends requests of the asyncio client: streams and what goes through a proxy over httpx, all else over light
connections."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import httpx

from topics_client import address, transport
from topics_client.answers import refusal
from topics_client.async_connection import AsyncSender
from topics_client.cell_routes import Leg
from topics_client.errors import ConnectionFailed
from topics_client.identity import NOBODY, Identity
from topics_client.one_connection import is_proxied
from topics_client.wire import NoReply, Reply, Request
from topics_client.working import SILENCE_S


class AsyncPool:
    """For the tasks of one event loop. `http` replaces the network. `timeout` (seconds) limits one attempt."""

    def __init__(
        self,
        base: str,
        token: str | None,
        timeout: float,
        http: httpx.AsyncBaseTransport | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        identity: Identity = NOBODY,
    ) -> None:
        self._base = base
        self._token = token
        self._timeout = timeout
        self._http = transport.opened(httpx.AsyncClient, base, token, timeout, http, ca_file, identity)
        self._tls = transport.tls_of(base, ca_file, identity) if http is None else None
        self._is_replaced = http is not None
        #: By address, and whether the key is sent. None: httpx sends to that address.
        self._senders: dict[tuple[str, bool], AsyncSender | None] = {}

    async def send_to(self, leg: Leg) -> Reply | NoReply:
        """One attempt of a request, to that address."""
        if not self._http.is_closed and (sender := self._sender(leg.base, leg.bare)) is not None:
            return await sender.send(leg.request)
        try:
            response = await self._http.send(transport.built(self._http, leg, self._timeout))
        except (httpx.HTTPError, ssl.SSLError) as error:
            return transport.no_reply(error, leg.base, leg.request.at_most(self._timeout))
        return transport.reply(response)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[bytes]]:
        """The pieces of an endless answer, as they arrive. Every failure is an error of `topics_client.errors`."""
        limits = transport.stream_limits(request, self._timeout, SILENCE_S)
        try:
            async with self._http.stream(
                request.method, self._base + request.target, headers=dict(request.headers), timeout=limits
            ) as response:
                if response.status_code != 200:
                    await response.aread()
                    raise refusal(transport.reply(response))
                yield response.aiter_bytes()
        except (httpx.HTTPError, ssl.SSLError) as error:
            raise ConnectionFailed(transport.no_reply(error, self._base, limits.read or 0.0).reason) from error

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()
        for sender in self._senders.values():
            if sender is not None:
                await sender.close()

    def _sender(self, base: str, bare: bool) -> AsyncSender | None:
        try:
            return self._senders[base, bare]
        except KeyError:
            pass
        sender = None
        if not self._is_replaced and not is_proxied(base):
            tls = self._tls if address.parts_of(base).scheme == "https" else None
            sender = AsyncSender(base, None if bare else self._token, self._timeout, tls)
        self._senders[base, bare] = sender
        return sender
