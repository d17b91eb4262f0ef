"""Transports that send only while the process may answer. Those of a cell in a bucket: everything that such a process
sends to clients goes through one, of whatever protocol.

It is looked at when bytes are handed to the connection, so behind the computing of the answer. Past its time the
process sends nothing, not even a part of an answer that was begun: the connection is aborted.

Source: docs/reference/bucket.md#time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


class GatedTransport:
    """A transport, with a look at `may_send` before each write."""

    __slots__ = ("_may_send", "_transport")

    def __init__(self, transport: Any, may_send: Callable[[], bool]) -> None:
        self._transport = transport
        self._may_send = may_send

    def write(self, data: bytes) -> None:
        """Send it, or abort the connection."""
        if self._may_send():
            self._transport.write(data)
        else:
            self._transport.abort()

    def writelines(self, data: Iterable[bytes]) -> None:
        """As `write`."""
        if self._may_send():
            self._transport.writelines(data)
        else:
            self._transport.abort()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def gated(transport: Any, may_send: Callable[[], bool] | None) -> Any:
    """The transport itself if nothing is to be looked at."""
    return transport if may_send is None else GatedTransport(transport, may_send)
