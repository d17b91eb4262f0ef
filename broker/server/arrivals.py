"""Requests that come at once are begun over several rounds of the event loop, so that others are served in between.

The loop hands out everything that has come in one round: of a thousand clients, a thousand requests. Probes do not
wait, and a connection that comes behind a thousand others is accepted after a few short rounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from broker.server.server_context import ServerContext

#: What the first request of a connection counts with in a round of 128: 16 of them. Its protocol is made with it.
FIRST_COST: Final = 8
#: What a later one counts with: 64 of them.
NEXT_COST: Final = 2
#: How requests begin that do not wait.
PROBES: Final = tuple(
    b"%b %b " % (method, path)
    for method in (b"GET", b"HEAD")
    for path in (b"/v0/health", b"/healthz", b"/v0/ready", b"/readyz")
)


def _same() -> int:
    """The priority of all of them."""
    return 0


class Arriving:
    """Part of a protocol: what has come is kept, and nothing more is read, until it is its turn."""

    server_context: ClassVar[ServerContext]
    transport: Any
    #: What came before its turn.
    early: bytes = b""

    def begin(self, data: bytes) -> None:
        """It is the turn of what has come. Each protocol has its own."""
        ...

    def begin_in_order(self, data: bytes, cost: int) -> None:
        """Now, or in a later round of the loop."""
        if self.early:  # somebody else has let it be read on
            self.early += data
            self._reading().pause_reading()
        elif self.server_context.arrivals.try_take(cost) or data.startswith(PROBES):
            self.begin(data)
        else:
            self.early = data
            self._reading().pause_reading()
            self.server_context.arrivals.wait(cost, _same).add_done_callback(self.begin_early)

    def begin_early(self, _: object = None) -> None:
        """Begin what is kept, if there is any, and read on."""
        data, self.early = self.early, b""
        if data and not self.transport.is_closing():
            self._reading().resume_reading()
            self.begin(data)

    def _reading(self) -> Any:
        """Pauses and resumes it. A protocol that does so itself, too, keeps account of it in its `flow`."""
        return getattr(self, "flow", self.transport)
