"""HTTP/1.1 as uvicorn's zttp has it, with a way past ASGI for the hottest request (see `broker.http.hot`).

A request that may be hot is collected here until its body is whole. If it is not taken after all, it is handed to
uvicorn as if it had just come.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

import zttp
from uvicorn.protocols.http.zttp_impl import ZttpProtocol

if TYPE_CHECKING:
    from broker.http.hot import HotWrites


class _Never:
    """Stands where uvicorn keeps the event that wakes a request's task: a hot request has none."""

    def set(self) -> None:
        pass


_never = _Never()


class HotCycle:
    """One hot request and its answer. The attributes are those that uvicorn's protocol looks at."""

    __slots__ = (
        "_protocol",
        "body",
        "disconnected",
        "event",
        "headers",
        "keep_alive",
        "message_event",
        "more_body",
        "response_complete",
        "started",
    )

    def __init__(self, protocol: Http1Protocol, event: zttp.Request, headers: dict[bytes, bytes]) -> None:
        self._protocol = protocol
        self.event = event
        self.headers = headers
        self.body = bytearray()
        self.started = perf_counter()
        self.disconnected = False
        self.response_complete = False
        self.keep_alive = True
        self.more_body = True
        self.message_event = _never

    def respond(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Send the whole answer, in one write, and go on with the connection's next request."""
        protocol = self._protocol
        self.response_complete = True
        if self.disconnected or protocol.transport.is_closing():
            return
        connection = protocol.conn
        connection.send_response(status, protocol.server_state.default_headers + headers)
        connection.send_data(body)
        connection.end_message()
        protocol.transport.write(connection.data_to_send())
        if not self.keep_alive or connection.should_close():
            protocol.transport.close()
        protocol.on_response_complete()


class Http1Protocol(ZttpProtocol):
    """uvicorn's protocol, asked only for what is not hot. `hot` is set by `broker.protocols`."""

    hot: ClassVar[HotWrites | None] = None
    _collecting: HotCycle | None = None

    def handle_events(self, event: Any) -> None:
        while event is not zttp.NEED_DATA:
            collecting = self._collecting
            if collecting is None:
                if not isinstance(event, zttp.Request) or not self._begin(event):
                    super().handle_events(event)
                    return
            elif isinstance(event, zttp.Data):
                collecting.body += event.data
            elif isinstance(event, zttp.EndOfMessage):
                self._collecting = None
                collecting.more_body = False
                if not self._taken(collecting):
                    self._hand_over(collecting)
                    return
            event = self.conn.next_event()

    def _begin(self, event: zttp.Request) -> bool:
        if self.hot is None or event.end_stream or event.expect_continue or self.root_path:
            return False
        assert isinstance(event.headers, zttp.HeaderBlock)
        headers = dict(event.headers.to_list(lowercase_names=True))
        if not self.hot.may_take(event.method, event.path, headers):
            return False
        self._unset_keepalive_if_required()
        self._collecting = self.cycle = HotCycle(self, event, headers)  # pyright: ignore[reportAttributeAccessIssue]
        return True

    def _taken(self, cycle: HotCycle) -> bool:
        assert self.hot is not None
        event = cycle.event
        return self.hot.take(event.path, event.query, cycle.headers, bytes(cycle.body), cycle.started, cycle.respond)

    def _hand_over(self, hot: HotCycle) -> None:
        super().handle_events(hot.event)
        cycle = self.cycle
        cycle.body = hot.body
        cycle.more_body = False
        cycle.keep_alive = hot.keep_alive
        cycle.message_event.set()
