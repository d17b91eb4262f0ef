"""Requests that come at once begin over several rounds of the event loop; others are served in between.

The loop hands out everything that has come in one round: of a thousand clients, a thousand requests. So a connection
takes a turn for a request before it parses it, and until then it reads nothing more. Requests for health and readiness
have turns of their own: they never wait behind other requests, and many of them do not hold up others. So do TLS
handshakes (`broker.net.handshakes`).

Source: docs/adr/0068-bursts-and-claims.md.
"""

from __future__ import annotations

from typing import Any, Final

from broker.net.handshakes import HandshakeQueue
from broker.scheduler import DeliveryScheduler

#: The cost of the first request of a connection, in a round of 128: 16 of them. Its protocol is made with it.
FIRST_COST: Final = 8
#: The cost of a later one: 64 of them.
NEXT_COST: Final = 2
#: How requests for health and readiness begin.
PROBES: Final = tuple(
    b"%b %b " % (method, path)
    for method in (b"GET", b"HEAD")
    for path in (b"/v0/health", b"/healthz", b"/v0/ready", b"/readyz")
)


def same_priority() -> int:
    """The priority of all that waits for a turn here."""
    return 0


class Arrivals:
    """The turns of a broker, whichever port something comes in by."""

    __slots__ = ("handshakes", "probes", "requests")

    def __init__(self) -> None:
        self.requests = DeliveryScheduler()
        self.probes = DeliveryScheduler()
        self.handshakes = HandshakeQueue()


class Arriving:
    """Part of a protocol: it keeps what has come, and reads nothing more, until it is its turn."""

    arrivals: Arrivals
    transport: Any
    #: What came before its turn.
    early: bytes = b""

    def begin(self, data: bytes) -> None:
        """It is the turn of what has come. Each protocol has its own."""
        ...

    def begin_in_order(self, data: bytes, cost: int) -> None:
        """Now, or in a later round of the loop."""
        if self.early:  # something else has resumed reading
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
        """Begin what is kept, if there is any, and read on."""
        data, self.early = self.early, b""
        if data and not self.transport.is_closing():
            self.resume_arriving()
            self.begin(data)

    def pause_arriving(self) -> None:
        """Read nothing more."""
        self._flow_of().pause_reading()

    def resume_arriving(self) -> None:
        """Read on."""
        self._flow_of().resume_reading()

    def _flow_of(self) -> Any:
        """Pauses and resumes it. A protocol that does so itself, too, keeps account of it in its `flow`."""
        return getattr(self, "flow", self.transport)
