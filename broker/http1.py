"""HTTP/1.1 as uvicorn's zttp has it, with a way past ASGI for the hottest requests (see `broker.http.hot`).

A request that may be hot is collected here until its body is whole. If it is not taken after all, it is handed to
uvicorn as if it had just come.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Final

import structlog
import zttp
from uvicorn.protocols.http.zttp_impl import ZttpProtocol

from broker.http import errors
from broker.http.answers import with_protection
from broker.http.errors import HeadTooLarge
from broker.http.hot import Sent
from broker.http.request import by_name, request_id
from broker.slow import Look, Phase, look_at_http1
from storage.errors import InvalidRequest

if TYPE_CHECKING:
    from broker.auth.access import Flight
    from broker.door import Door
    from broker.http.hot import HotRequests

_log = structlog.get_logger("broker.http")

#: What zttp says of a head that it does not take.
_TOO_LARGE: Final = "message exceeded configured size limit"

#: Where a connection may become a WebSocket.
WEBSOCKET_PATH: Final = "/v0/ws"


class _Never:
    """Stands where uvicorn keeps the event that wakes a request's task: a hot request has none."""

    def set(self) -> None:
        pass


_never = _Never()


def head_bytes(target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> int:
    """The size of a head, each field with what stands around it."""
    return len(target) + sum(len(name) + len(value) + 4 for name, value in headers)


def refusal(error: Exception, door: Door) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Status, headers and body for what is no request, in the form of all refusals. It is counted."""
    door.metrics.refused(error)
    identity = request_id(None)
    answer = errors.answer(error, request_id=identity.decode())
    headers = [
        (b"x-request-id", identity),
        *with_protection(answer.headers),
        (b"content-type", answer.content_type),
        (b"content-length", b"%d" % len(answer.body)),
        (b"connection", b"close"),
    ]
    return answer.status, headers, answer.body


class HotCycle:
    """One hot request and its answer. The attributes are those that uvicorn's protocol looks at.

    It stands among the server's tasks as well, for as long as it is not answered: a server that stops waits for it,
    and cancels it at the end of its grace.
    """

    __slots__ = (
        "_protocol",
        "body",
        "disconnected",
        "event",
        "flight",
        "headers",
        "keep_alive",
        "message_event",
        "more_body",
        "response_complete",
        "started",
    )

    def __init__(
        self, protocol: Http1Protocol, event: zttp.Request, headers: dict[bytes, bytes], flight: Flight
    ) -> None:
        self._protocol = protocol
        self.flight = flight
        self.event = event
        self.headers = headers
        self.body = bytearray()
        self.started = perf_counter()
        self.disconnected = False
        self.response_complete = False
        self.keep_alive = True
        self.more_body = True
        self.message_event = _never

    def respond(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> Sent:
        """Send the whole answer, in one write, and go on with the connection's next request.

        Never raises: it is called by the engine, amid other requests' outcomes.
        """
        if self.response_complete:
            return Sent.LATE
        protocol = self._protocol
        self.response_complete = True
        protocol.forget(self)
        if self.disconnected or protocol.transport.is_closing():
            return Sent.GONE
        try:
            connection = protocol.conn
            connection.send_response(status, protocol.server_state.default_headers + headers)
            connection.send_data(body)
            connection.end_message()
            protocol.transport.write(connection.data_to_send())
            if not self.keep_alive or connection.should_close():
                protocol.transport.close()
            protocol.on_response_complete()
        except Exception:
            _log.exception("connection_failed")
            protocol.transport.close()
            return Sent.GONE
        return Sent.OUT

    def hand_over(self) -> None:
        """The request goes to uvicorn after all."""
        if self.response_complete:
            return
        self.response_complete = True
        if self.disconnected or self._protocol.transport.is_closing():
            self._protocol.forget(self)
        else:
            self._protocol.hand_over(self)

    def cancel(self, msg: object = None) -> None:
        """As of a task. Answers later: the server walks through its tasks while it calls this."""
        self._protocol.loop.call_soon(self._protocol.give_up, self)


class Http1Protocol(ZttpProtocol):
    """uvicorn's protocol, asked only for what is not hot. `hot` and `door` are set by `broker.protocols`."""

    hot: ClassVar[HotRequests | None] = None
    door: ClassVar[Door]
    received = resumed = 0
    _head_from = 0
    _collecting: HotCycle | None = None

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        super().data_received(data)

    def resume_writing(self) -> None:
        self.resumed += 1
        super().resume_writing()

    def look(self) -> Look | None:
        """See `broker.slow`."""
        return look_at_http1(self)

    def too_slow(self, phase: Phase) -> None:
        """As `look` has found it."""
        collecting = self._collecting
        if collecting is not None and phase is Phase.BODY:
            collecting.keep_alive = False
            assert self.hot is not None
            self.hot.too_slow(collecting.event.path, collecting.headers, collecting.started, collecting)
        self.transport.abort() if phase is Phase.ANSWER else self.transport.close()

    def handle_events(self, event: Any) -> None:
        while event is not zttp.NEED_DATA:
            if isinstance(event, zttp.Request) and self._head_is_too_long(event):
                return
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
                    self.hand_over(collecting)
                    return
            event = self.conn.next_event()

    def _head_is_too_long(self, event: zttp.Request) -> bool:
        """Whether it was refused for that."""
        limit = self.door.max_header_bytes
        before, self._head_from = self._head_from, self.received
        if self.received - before <= limit:
            return False  # the commonest case: all that came is less
        assert isinstance(event.headers, zttp.HeaderBlock)
        if head_bytes(event.target, event.headers.to_list()) <= limit:
            return False
        self._refuse(HeadTooLarge(limit))
        return True

    def send_400_response(self, msg: str) -> None:
        """In the form of all refusals; called where the parser gave up."""
        too_large = str(sys.exc_info()[1]) == _TOO_LARGE
        self._refuse(HeadTooLarge(self.door.max_header_bytes) if too_large else InvalidRequest(f"request: {msg}"))

    def _refuse(self, error: Exception) -> None:
        """Instead of a request; the connection ends."""
        status, headers, body = refusal(error, self.door)
        self.conn.send_response(status, self.server_state.default_headers + headers)
        self.conn.send_data(body)
        self.conn.end_message()
        self.transport.write(self.conn.data_to_send())
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        collecting = self._collecting
        if collecting is not None:
            assert self.hot is not None
            self.forget(collecting)
            self.hot.client_gone(collecting.event.path)
        super().connection_lost(exc)

    def handle_remote_protocol_error(self) -> None:
        cycle: Any = self.cycle
        if cycle is not None and not cycle.more_body and not cycle.response_complete:
            # More is pipelined behind a request under way than is kept: a 400 would be taken for that one's answer.
            self.transport.close()
            return
        super().handle_remote_protocol_error()

    def _should_upgrade(self) -> bool:
        # Elsewhere the header is ignored, as a server may (RFC 9110 §7.8).
        scope = self.scope
        return scope["path"] == WEBSOCKET_PATH and scope["method"] == "GET" and super()._should_upgrade()

    def forget(self, cycle: HotCycle) -> None:
        """It is answered, or is nobody's to answer here."""
        cycle.flight.end()
        self.tasks.discard(cycle)  # pyright: ignore[reportArgumentType]
        if self._collecting is cycle:
            self._collecting = None

    def give_up(self, cycle: HotCycle) -> None:
        """The server's patience is at its end."""
        pending: set[Any] = self.tasks
        if cycle in pending:
            assert self.hot is not None
            self.hot.give_up(cycle.event.path, cycle.headers, cycle.started, cycle)

    def _begin(self, event: zttp.Request) -> bool:
        if not event.path.isascii():
            raise zttp.RemoteProtocolError("a target is ASCII")  # uvicorn would end the connection without a word
        # A client that does not fetch its answers is left to uvicorn, which waits until it does.
        if self.hot is None or event.end_stream or event.expect_continue or self.root_path or self.flow.write_paused:
            return False
        assert isinstance(event.headers, zttp.HeaderBlock)
        headers = by_name(event.headers.to_list(lowercase_names=True))
        if not self.hot.may_take(event.method, event.path, headers):
            return False
        flight = self.hot.enter(event.path, headers)
        if flight is None:
            return False
        self._unset_keepalive_if_required()
        cycle = self._collecting = HotCycle(self, event, headers, flight)
        self.cycle = cycle  # pyright: ignore[reportAttributeAccessIssue]
        self.tasks.add(cycle)  # pyright: ignore[reportArgumentType]
        return True

    def _taken(self, cycle: HotCycle) -> bool:
        assert self.hot is not None
        event = cycle.event
        return self.hot.take(event.path, event.query, cycle.headers, bytes(cycle.body), cycle.started, cycle)

    def hand_over(self, hot: HotCycle) -> None:
        """To uvicorn, as if the request had just come, with its body."""
        self.forget(hot)
        super().handle_events(hot.event)
        cycle = self.cycle
        cycle.body = hot.body
        cycle.more_body = False
        cycle.keep_alive = hot.keep_alive
        cycle.message_event.set()
