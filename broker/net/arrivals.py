"""Spreads requests that arrive at once over several rounds of the event loop, so that other work runs in between.

In one round, the loop delivers everything that has arrived: a thousand requests of a thousand clients. So a connection
waits for its turn before it parses a request, and reads nothing more until then. Requests for health and readiness have
turns of their own: they never wait for other requests, and many of them do not delay others. TLS handshakes also have
their own (`broker.net.handshakes`).

Source: docs/adr/0068-bursts-and-claims.md.
"""

from __future__ import annotations

from typing import Any, Final

from broker.net.handshakes import HandshakeQueue
from broker.scheduling import DeliveryScheduler

#: The cost of the first request of a connection. A round has 128, so 16 of them begin in it.
FIRST_COST: Final = 8
#: The cost of a later request: 64 of them begin in a round.
NEXT_COST: Final = 2
#: How requests for health and readiness begin.
PROBES: Final = tuple(
    b"%b %b " % (method, path)
    for method in (b"GET", b"HEAD")
    for path in (b"/v0/health", b"/healthz", b"/v0/ready", b"/readyz")
)


def same_priority() -> int:
    """The priority of everything that waits here."""
    return 0


class Arrivals:
    """The turns of a broker, shared by all its ports."""

    __slots__ = ("handshakes", "probes", "requests")

    def __init__(self) -> None:
        self.requests = DeliveryScheduler()
        self.probes = DeliveryScheduler()
        self.handshakes = HandshakeQueue()


class PacedReceiver:
    """A mixin for protocols: keeps received data, and reads nothing more, until it is the connection's turn."""

    arrivals: Arrivals
    transport: Any
    #: Data that arrived before the turn.
    early: bytes = b""

    def begin(self, data: bytes) -> None:
        """Process received data: it is its turn. Each protocol implements it."""
        ...

    def begin_in_order(self, data: bytes, cost: int) -> None:
        """Process data now, or in a later round of the loop."""
        if self.early:  # the connection still waits, but something else has resumed reading
            self.early += data
            self.pause_arriving()
            return
        scheduler = self.arrivals.probes if data.startswith(PROBES) else self.arrivals.requests
        if scheduler.try_take(cost):
            self.begin(data)
        else:
            self.early = data
            self.pause_arriving()
            scheduler.wait(cost, same_priority).add_done_callback(self.begin_early)

    def begin_early(self, _: object = None) -> None:
        """Process the kept data, if there is any, and resume reading."""
        data, self.early = self.early, b""
        if data and not self.transport.is_closing():
            self.resume_arriving()
            self.begin(data)

    def pause_arriving(self) -> None:
        """Pause reading."""
        self._flow_of().pause_reading()

    def resume_arriving(self) -> None:
        """Resume reading."""
        self._flow_of().resume_reading()

    def _flow_of(self) -> Any:
        """The object that pauses and resumes reading: the protocol's `flow`, if it has one, which tracks that."""
        return getattr(self, "flow", self.transport)
