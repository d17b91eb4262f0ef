"""Sends requests over plain HTTP, with connections of http.client that threads share, by address.

A request needs a third of the processor time that it needs with httpx, and other threads of the program wait during
that time.
"""

from __future__ import annotations

from collections import deque

from topics_client.one_connection import OneConnection, usable
from topics_client.wire import NoReply, Reply, Request

#: The most idle connections to an address.
_MOST_IDLE = 64


class PlainPool:
    """For any number of threads. `timeout` (seconds) limits one attempt."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        #: By address and key. The connection that was used last is taken first.
        self._idle: dict[tuple[str, str | None], deque[OneConnection]] = {}
        self._reached: dict[str, bool] = {}

    def reaches(self, base: str) -> bool:
        """Whether this address needs neither TLS nor a proxy."""
        found = self._reached.get(base)
        if found is None:
            found = self._reached[base] = usable(base)
        return found

    def send(self, base: str, token: str | None, request: Request) -> Reply | NoReply:
        """One attempt of a request."""
        idle = self._idle.get((base, token))
        if idle is None:
            idle = self._idle.setdefault((base, token), deque())
        try:
            connection = idle.pop()
        except IndexError:
            connection = OneConnection(base, token, self._timeout)
        outcome = connection.send(request)
        # What a `close` or another thread does meanwhile leaves one more or less open, until it is garbage.
        if len(idle) < _MOST_IDLE:
            idle.append(connection)
        else:
            connection.close()
        return outcome

    def close(self) -> None:
        """Closes the connections that no thread uses."""
        for idle in self._idle.values():
            while idle:
                idle.pop().close()
