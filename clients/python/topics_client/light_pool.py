"""Sends the requests of a command over connections of its own, and loads httpx for streams only."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from topics_client.plain_pool import PlainPool

if TYPE_CHECKING:
    from topics_client.cell_routes import Leg
    from topics_client.pool import Pool
    from topics_client.wire import NoReply, Reply, Request


class LightPool:
    """A `Sender`, for addresses with neither TLS nor a proxy (`one_connection.usable`). Threads may share it. `timeout`
    (seconds) limits one attempt."""

    def __init__(self, base: str, token: str | None, timeout: float) -> None:
        self._base = base
        self._token = token
        self._timeout = timeout
        self._plain = PlainPool(timeout)
        self._pool: Pool | None = None

    def send(self, request: Request) -> Reply | NoReply:
        """One attempt of a request."""
        return self._plain.send(self._base, self._token, request)

    def send_to(self, leg: Leg) -> Reply | NoReply:
        """One attempt of a request, to that address."""
        return self._plain.send(leg.base, None if leg.bare else self._token, leg.request)

    @contextmanager
    def stream(self, request: Request) -> Generator[Iterator[bytes]]:
        """The pieces of an endless answer, as they arrive. The first one loads httpx."""
        if self._pool is None:
            from topics_client.pool import Pool

            self._pool = Pool(self._base, self._token, self._timeout)
        with self._pool.stream(request) as pieces:
            yield pieces

    def close(self) -> None:
        """Closes the connections."""
        self._plain.close()
        if self._pool is not None:
            self._pool.close()
