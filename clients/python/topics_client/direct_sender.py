"""Sends requests for topics of a set of cells directly to the cells that have them, over a pool of connections."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from topics_client.cell_routes import CellRoutes

if TYPE_CHECKING:
    from topics_client.cell_routes import Leg
    from topics_client.wire import NoReply, Reply, Request


class Reaching(Protocol):
    """Connections to any address."""

    def send_to(self, leg: Leg) -> Reply | NoReply:
        """One attempt of a request, to that address."""
        ...

    def stream(self, request: Request) -> AbstractContextManager[Iterator[bytes]]:
        """The pieces of an endless answer of the gateway, as they arrive."""
        ...

    def close(self) -> None:
        """Closes the connections."""
        ...


class DirectSender:
    """A `Sender`. Streams go through the gateway."""

    def __init__(self, pool: Reaching, base: str) -> None:
        self._pool = pool
        self._routes = CellRoutes(base, time.monotonic)

    def send(self, request: Request) -> Reply | NoReply:
        """One attempt of a request."""
        steps = self._routes.send(request)
        leg = next(steps)
        while True:
            outcome = self._pool.send_to(leg)
            try:
                leg = steps.send(outcome)
            except StopIteration as done:
                ended: Reply | NoReply = done.value
                return ended

    def stream(self, request: Request) -> AbstractContextManager[Iterator[bytes]]:
        """The pieces of an endless answer, as they arrive."""
        return self._pool.stream(request)

    def close(self) -> None:
        """Closes the connections."""
        self._pool.close()
