"""Sends requests without a proxy, over connections that threads share, by address.

A request needs a fraction of the processor time that it needs with httpx, and other threads of the program wait during
that time.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from topics_client import address
from topics_client.one_connection import OneConnection, is_proxied
from topics_client.wire import NoReply, Reply, Request

if TYPE_CHECKING:
    import ssl

#: The most idle connections to an address.
_MOST_IDLE = 64


class PlainPool:
    """For any number of threads. `timeout` (seconds) limits one attempt. `tls`: for addresses with https."""

    def __init__(self, timeout: float, tls: ssl.SSLContext | None = None) -> None:
        self._timeout = timeout
        self._tls = tls
        #: By address and key. The connection that was used last is taken first.
        self._idle: dict[tuple[str, str | None], deque[OneConnection]] = {}
        self._reached: dict[str, bool] = {}

    def reaches(self, base: str) -> bool:
        """Whether requests for this address can be sent here."""
        found = self._reached.get(base)
        if found is None:
            found = (self._tls is not None or address.parts_of(base).scheme == "http") and not is_proxied(base)
            self._reached[base] = found
        return found

    def send(self, base: str, token: str | None, request: Request) -> Reply | NoReply:
        """One attempt of a request."""
        idle = self._idle.get((base, token))
        if idle is None:
            idle = self._idle.setdefault((base, token), deque())
        try:
            connection = idle.pop()
        except IndexError:
            connection = OneConnection(base, token, self._timeout, self._tls_of(base))
        outcome = connection.send(request)
        # What a `close` or another thread does meanwhile leaves one more or less open, until it is garbage.
        if len(idle) < _MOST_IDLE:
            idle.append(connection)
        else:
            connection.close()
        return outcome

    def _tls_of(self, base: str) -> ssl.SSLContext | None:
        return self._tls if address.parts_of(base).scheme == "https" else None

    def close(self) -> None:
        """Closes the connections that no thread uses."""
        for idle in self._idle.values():
            while idle:
                idle.pop().close()
