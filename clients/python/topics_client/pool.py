"""Sends requests over connections that threads share: those of httpx for streams and the proxies that the environment
names, light ones for all else."""

from __future__ import annotations

import os
import ssl
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import httpx

from topics_client import transport
from topics_client.answers import refusal
from topics_client.cell_routes import Leg
from topics_client.errors import ConnectionFailed
from topics_client.identity import NOBODY, Identity
from topics_client.plain_pool import PlainPool
from topics_client.wire import NoReply, Reply, Request
from topics_client.working import SILENCE_S


class Pool:
    """A `Sender`. `http` replaces the network. `timeout` (seconds) limits one try."""

    def __init__(
        self,
        base: str,
        token: str | None,
        timeout: float,
        http: httpx.BaseTransport | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        identity: Identity = NOBODY,
    ) -> None:
        self._base = base
        self._token = token
        self._timeout = timeout
        self._http = transport.opened(httpx.Client, base, token, timeout, http, ca_file, identity)
        self._plain = PlainPool(timeout, transport.tls_of(base, ca_file, identity)) if http is None else None

    def send(self, request: Request) -> Reply | NoReply:
        """One try of a request."""
        return self.send_to(Leg(base=self._base, request=request))

    def send_to(self, leg: Leg) -> Reply | NoReply:
        """One try of a request, to that address."""
        if self._plain is not None and not self._http.is_closed and self._plain.reaches(leg.base):
            return self._plain.send(leg.base, None if leg.bare else self._token, leg.request)
        try:
            response = self._http.send(transport.built(self._http, leg, self._timeout))
        except (httpx.HTTPError, ssl.SSLError) as error:
            return transport.no_reply(error, leg.base, leg.request.at_most(self._timeout))
        return transport.reply(response)

    @contextmanager
    def stream(self, request: Request) -> Generator[Iterator[bytes]]:
        """The pieces of an endless answer, as they arrive; every failure is an error of `topics_client.errors`."""
        limits = transport.stream_limits(request, self._timeout, SILENCE_S)
        try:
            with self._http.stream(
                request.method, self._base + request.target, headers=dict(request.headers), timeout=limits
            ) as response:
                if response.status_code != 200:
                    response.read()
                    raise refusal(transport.reply(response))
                yield response.iter_bytes()
        except (httpx.HTTPError, ssl.SSLError) as error:
            raise ConnectionFailed(transport.no_reply(error, self._base, limits.read or 0.0).reason) from error

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()
        if self._plain is not None:
            self._plain.close()
