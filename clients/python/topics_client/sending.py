"""How a blocking client sends its requests: over a pool of connections, or over one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from topics_client.wire import NoReply, Reply, Request


class Sender(Protocol):
    """Sends requests of a `Client`. What it raises are errors of `topics_client.errors`."""

    def send(self, request: Request) -> Reply | NoReply:
        """One try of a request."""
        ...

    def stream(self, request: Request) -> AbstractContextManager[Iterator[bytes]]:
        """The pieces of an endless answer, as they arrive."""
        ...

    def close(self) -> None:
        """Closes the connections."""
        ...
