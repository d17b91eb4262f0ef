"""HTTP/1.1 by uvicorn's zttp protocol. The most frequent requests bypass ASGI (see `broker.api.hot`).

This module collects the body of a request that may be hot and answers the request itself. If the request must wait for
something, uvicorn runs it in a task, like any other request. A request that arrives complete, with a head that the
connection has sent before, is not even parsed (`KnownHeads`): the same bytes mean the same. Parsing and routing a head
costs more than the rest of a small request.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
import structlog
import zttp
from uvicorn.protocols.http.zttp_impl import ZttpProtocol

from broker.api import Application, Sent, by_name, has_hung_up, request_id
from broker.api.routes import WEBSOCKET_PATH
from broker.content import MIN_GZIP_BYTES, PROTECTION, Answer, HeadTooLarge, errors, headers_of
from broker.net import NEXT_COST, ConnectionState, PacedReceiver, Phase, look_at_http1
from storage import InvalidRequest

if TYPE_CHECKING:
    from broker.api import Hot, Request, Target
    from broker.server.server_context import ServerContext

_log = structlog.get_logger("broker.http")

#: zttp's error message for a head that is too large.
_TOO_LARGE: Final = "message exceeded configured size limit"

#: A connection remembers this many heads, each of at most this many bytes. At one more it forgets them all.
MAX_HEADS: Final = 8
MAX_HEAD_BYTES: Final = 2048
#: The content-length of a known head can grow by at most this many digits.
MAX_MORE_DIGITS: Final = 6
END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,7})\r\n", re.IGNORECASE)
#: Fields that give the length of a message in a form that `_LENGTH` does not read.
_OTHERWISE: Final = re.compile(rb"\r\n(?:transfer-encoding|content-length(?!:[ \t]*[0-9]{1,7}\r\n))", re.IGNORECASE)


def upgrade_with_body() -> InvalidRequest:
    """The refusal of a handshake with a body. RFC 6455 has none, and the handshake's reader would wait forever."""
    return InvalidRequest("request: a WebSocket handshake has no body (RFC 6455).", field="body")


def can_answer(cycle: Any, scheme: str | None) -> bool:
    """Whether a request is in flight that can still be answered after the client has half-closed the connection.

    Over TLS, closing one side closes both.
    """
    return scheme != "https" and cycle is not None and not cycle.more_body and not cycle.response_complete


def end_client_side(cycle: Any) -> None:
    """Tell the task of a request that its client has half-closed the connection (see `Request.unless_gone`)."""
    cycle.client_ended = True
    cycle.message_event.set()


def head_bytes(target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> int:
    """The size of a head; each field counts with its separators."""
    return len(target) + sum(len(name) + len(value) + 4 for name, value in headers)


def refusal(error: Exception, server_context: ServerContext) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """The error for bytes that are not a request: status, headers and body. Counts it."""
    server_context.metrics.refused(error)
    identity = request_id(None)
    answer = errors.answer(error, request_id=identity.decode())
    return answer.status, [*headers_of(answer, identity), (b"connection", b"close")], answer.body


class KnownHead(msgspec.Struct, frozen=True, eq=False):
    """A head, split at its content-length: `front` ends before the digits, `back` begins after them."""

    front: bytes
    back: bytes
    target: Target
    headers: dict[bytes, bytes]


class KnownHeads:
    """The heads that a connection has sent before, by their first line. Pure.

    A client that sends one small request after another sends the same head each time, except for the body's length. A
    `KnownHead` holds the bytes of a head that the parser accepted, without the digits of its content-length, and the
    target and headers that the parser found in them.
    """

    __slots__ = ("_by_line",)

    def __init__(self) -> None:
        self._by_line: dict[bytes, KnownHead] = {}

    def find(self, data: bytes) -> tuple[KnownHead, bytes] | None:
        """The known head and the body of `data`; None unless `data` is exactly one whole request with a known head."""
        known = self._by_line.get(data[: data.find(b"\r\n")])
        if known is None or not data.startswith(known.front):
            return None
        begin = len(known.front)
        end = data.find(b"\r", begin, begin + 8)
        digits = data[begin:end]
        if end < 0 or not digits.isdigit() or not data.startswith(known.back, end):
            return None
        body = data[end + len(known.back) :]
        return (known, body) if len(body) == int(digits) else None

    def learn(self, head: bytes, target: Target, headers: dict[bytes, bytes]) -> None:
        """Remember that `head`, which includes its empty line, was accepted and led to `target`."""
        length = _LENGTH.search(head)
        if length is None or len(head) > MAX_HEAD_BYTES or head.lower().count(b"\r\ncontent-length") > 1:
            return  # with two content-lengths, `find` would compare only one of them
        line = head[: head.find(b"\r\n")]
        if len(self._by_line) >= MAX_HEADS and line not in self._by_line:
            self._by_line.clear()
        self._by_line[line] = KnownHead(head[: length.start(1)], head[length.end(1) :], target, headers)


def parsed_head(head: bytes) -> tuple[int, list[tuple[bytes, bytes]]]:
    """Status and headers of an answer that this server has written; `head` ends with its empty line."""
    status, *lines = head[: -len(END)].split(b"\r\n")
    fields = [line.partition(b":") for line in lines]
    return int(status[9:12]), [(name.lower(), value.strip(b" ")) for name, _, value in fields]


def message_bytes(data: bytes) -> int | None:
    """The length of the message at the start of `data`; None if its head is incomplete or does not give it plainly."""
    end = data.find(END) + len(END)
    if end < len(END) or _OTHERWISE.search(data, 0, end):
        return None
    length = _LENGTH.search(data, 0, end)
    return end + (0 if length is None else int(length[1]))


class _Never:
    """Replaces the event by which uvicorn wakes a request's task: a hot request has no task."""

    def set(self) -> None:
        pass


_never = _Never()


@cache
def _status_line(status: int) -> bytes:
    """The status line of an answer, the same as zttp writes it."""
    connection = zttp.Connection(zttp.SERVER)
    connection.send_response(status, [(b"content-length", b"0")])
    line, end, _ = connection.data_to_send().partition(b"\r\n")
    return line + end


def _lines(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    return b"".join([b"%b: %b\r\n" % each for each in headers])


_PROTECTION_LINES: Final = _lines(PROTECTION)


class Cycle(ABC):
    """One hot request and its answer. Has the attributes that uvicorn's protocol reads.

    Until it is answered it is also in the server's set of tasks: a server that stops waits for it, and cancels it when
    the grace period ends.
    """

    __slots__ = (
        "_protocol",
        "body",
        "client_ended",
        "disconnected",
        "keep_alive",
        "message_event",
        "more_body",
        "request",
        "response_complete",
    )

    def __init__(self, protocol: Http1Protocol, request: Request) -> None:
        self._protocol = protocol
        self.request = request
        self.body: bytes | bytearray = b""
        self.disconnected = False
        #: The client has half-closed the connection and may have gone.
        self.client_ended = False
        self.response_complete = False
        self.keep_alive = True
        self.more_body = True
        self.message_event = _never

    def respond(self, answer: Answer, identity: bytes, headers: list[tuple[bytes, bytes]] | None = None) -> Sent:
        """Send the whole answer, in one write, and continue with the connection's next request.

        `identity` is the request's id. `headers` are all headers of the answer; without them, `headers_of` makes them.
        An answer that can be withdrawn is not sent to a client that has half-closed the connection: it may have gone.

        Never raises: the engine calls it between the outcomes of other requests.
        """
        if self.response_complete:
            return Sent.LATE
        protocol = self._protocol
        self.response_complete = True
        protocol.tasks.discard(self)  # pyright: ignore[reportArgumentType]
        if protocol.collecting is self:
            protocol.collecting = None
        self.request.end()
        if answer.withdraw is not None and (self.client_ended or has_hung_up(protocol.transport)):
            protocol.transport.close()
        if self.disconnected or protocol.transport.is_closing():
            return Sent.GONE
        try:
            self._send(answer, identity, headers)
        except Exception:
            _log.exception("connection_failed")
            protocol.transport.close()
            return Sent.GONE
        return Sent.OUT

    @abstractmethod
    def _send(self, answer: Answer, identity: bytes, headers: list[tuple[bytes, bytes]] | None) -> None: ...

    def relay(self, data: bytes, head: int) -> Sent:
        """Send an answer that another process of this server has made, and continue like `respond`. Never raises.

        `data` is the whole message, `head` the length of its head.
        """
        if self.response_complete:
            return Sent.LATE
        protocol = self._protocol
        self.response_complete = True
        protocol.tasks.discard(self)  # pyright: ignore[reportArgumentType]
        self.request.end()
        if self.disconnected or protocol.transport.is_closing():
            return Sent.GONE
        try:
            self._relay(data, head)
        except Exception:
            _log.exception("connection_failed")
            protocol.transport.close()
            return Sent.GONE
        return Sent.OUT

    @abstractmethod
    def _relay(self, data: bytes, head: int) -> None: ...

    def carry_out(self, application: Application) -> bool:
        """Have uvicorn run `application` in a task, because this request has to wait for something.

        Returns False if there is nobody left to answer. Never raises, like `respond`.
        """
        if self.response_complete:
            return False
        self.response_complete = True
        protocol = self._protocol
        protocol.forget(self)
        if self.disconnected or protocol.transport.is_closing():
            self.request.end()
            return False
        try:
            if self._carry_out(application):
                return True
        except Exception:
            _log.exception("connection_failed")
            protocol.transport.close()
        self.request.end()
        return False

    @abstractmethod
    def _carry_out(self, application: Application) -> bool: ...

    def cancel(self, msg: object = None) -> None:
        """Stand in for `Task.cancel`. Answers later: the server iterates over its tasks while it calls this."""
        self._protocol.loop.call_soon(self._protocol.give_up, self)


class HotCycle(Cycle):
    """The cycle of a request that the parser has parsed; collects its body."""

    __slots__ = ("event",)

    def __init__(self, protocol: Http1Protocol, request: Request, event: zttp.Request) -> None:
        super().__init__(protocol, request)
        self.body = bytearray()
        self.event = event

    def _send(self, answer: Answer, identity: bytes, headers: list[tuple[bytes, bytes]] | None) -> None:
        protocol = self._protocol
        connection = protocol.conn
        self.body = bytearray()  # an idle connection keeps its last cycle
        connection.send_response(
            answer.status, protocol.server_state.default_headers + (headers or headers_of(answer, identity))
        )
        connection.send_data(answer.body)
        connection.end_message()
        protocol.transport.write(connection.data_to_send())
        if not self.keep_alive or connection.should_close():
            protocol.transport.close()
        protocol.on_response_complete()

    def _relay(self, data: bytes, head: int) -> None:
        protocol = self._protocol
        connection = protocol.conn
        self.body = bytearray()
        status, headers = parsed_head(data[:head])
        connection.send_response(status, headers)
        connection.send_data(data[head:])
        connection.end_message()
        protocol.transport.write(connection.data_to_send())
        if not self.keep_alive or connection.should_close():
            protocol.transport.close()
        protocol.on_response_complete()

    def _carry_out(self, application: Application) -> bool:
        return self._protocol.carry_out(self, application)


class AgainCycle(Cycle):
    """The cycle of a request with a known head, which the parser has not seen. `data` is the whole request."""

    __slots__ = ("data",)

    def __init__(self, protocol: Http1Protocol, request: Request, data: bytes) -> None:
        # The same as `Cycle.__init__`, without one more call per request.
        self._protocol = protocol
        self.request = request
        self.body = b""
        self.disconnected = self.client_ended = self.response_complete = self.more_body = False
        self.keep_alive = True
        self.message_event = _never
        self.data = data

    def _send(self, answer: Answer, identity: bytes, headers: list[tuple[bytes, bytes]] | None) -> None:
        protocol = self._protocol
        self.data = b""  # an idle connection keeps its last cycle
        shared = protocol.server_state.default_headers
        known = Http1Protocol.shared_lines
        if known is None or known[0] is not shared:  # the date makes it a new list each second
            known = Http1Protocol.shared_lines = (shared, _lines(shared))
        if headers is None and not answer.headers and len(answer.body) < MIN_GZIP_BYTES:
            protocol.transport.write(
                b"%b%bx-request-id: %b\r\n%bcontent-type: %b\r\ncontent-length: %d\r\n\r\n%b"
                % (
                    _status_line(answer.status),
                    known[1],
                    identity,
                    _PROTECTION_LINES,
                    answer.content_type,
                    len(answer.body),
                    answer.body,
                )
            )
        else:
            lines = _lines(headers or headers_of(answer, identity))
            protocol.transport.write(b"%b%b%b\r\n%b" % (_status_line(answer.status), known[1], lines, answer.body))
        if not self.keep_alive:
            protocol.transport.close()
        protocol.on_again_complete()

    def _relay(self, data: bytes, head: int) -> None:
        protocol = self._protocol
        self.data = b""
        protocol.transport.write(data)
        if not self.keep_alive:
            protocol.transport.close()
        protocol.on_again_complete()

    def _carry_out(self, application: Application) -> bool:
        return self._protocol.carry_out_again(self, application)


class Http1Protocol(PacedReceiver, ZttpProtocol):
    """uvicorn's protocol, which serves only requests that are not hot.

    `broker.server.protocols` sets `hot` and `server_context`.
    """

    hot: ClassVar[Hot | None] = None
    server_context: ClassVar[ServerContext]
    #: The headers that all answers have, and the same headers as bytes.
    shared_lines: ClassVar[tuple[list[tuple[bytes, bytes]], bytes] | None] = None
    received = resumed = 0
    _head_from = 0
    #: The head that was parsed last, if the data received held its message and nothing else.
    _head: bytes | None = None
    collecting: HotCycle | None = None
    #: All bytes received up to this position belong to complete messages; None: unknown.
    _boundary: int | None = 0
    #: The data that is being parsed, if it begins with a message.
    _fresh: bytes | None = None
    #: The next head that is parsed is left to uvicorn.
    _is_past_hot = False
    #: Data that arrived after a request that the parser has not seen, and before its answer.
    _held: list[bytes]
    _idle_since = 0.0
    #: The client has half-closed the connection and still gets the answers to its requests.
    _client_ended = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._heads = KnownHeads()
        self._held = []

    def eof_received(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return True to keep the connection open until every complete request is answered."""
        self.begin_early()
        self._client_ended = can_answer(self.cycle, self.scheme)
        if self._client_ended:
            end_client_side(self.cycle)
        return self._client_ended

    def _close_if_client_ended(self) -> None:
        """Called after an answer, and when the next request has begun."""
        if not self._client_ended:
            return
        if can_answer(self.cycle, self.scheme):
            end_client_side(self.cycle)
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._close_if_client_ended()

    def data_received(self, data: bytes) -> None:
        cycle: Any = self.cycle
        if self.collecting is not None or (cycle is not None and not cycle.response_complete):
            self.begin(data)  # it belongs to a request under way, or follows one
        elif not self.early and self.arrivals.requests.try_take(NEXT_COST):
            self.begin(data)
        else:
            self.begin_in_order(data, NEXT_COST)

    def begin(self, data: bytes) -> None:
        start = self.received
        self.received = start + len(data)
        is_at_boundary = start == self._boundary
        hot = self.hot
        cycle: Any = self.cycle
        # A request may be answered before its body has come: the data is then that body, whatever it looks like.
        if is_at_boundary and hot is not None and (cycle is None or (cycle.response_complete and not cycle.more_body)):
            found = self._heads.find(data)
            if found is not None and not self.flow.write_paused and not self.transport.is_closing():
                known, body = found
                request = hot.begin(known.target, known.headers) if len(body) <= hot.max_body_bytes else None
                if request is not None:  # a whole request with a known head: the parser does not see it
                    again = AgainCycle(self, request, data)
                    self.cycle = again  # pyright: ignore[reportAttributeAccessIssue]
                    self.tasks.add(again)  # pyright: ignore[reportArgumentType]
                    self._boundary = self.received
                    hot.take(request, body, again)
                    return
        if isinstance(cycle, AgainCycle) and not cycle.response_complete:
            self._held.append(data)
            self.flow.pause_reading()
            return
        self._fresh = data if is_at_boundary else None
        super().data_received(data)
        self._fresh = None

    def on_again_complete(self) -> None:
        """Do the work of `on_response_complete` for a request that the parser has not seen.

        The timer that closes idle connections keeps running; when it fires it checks when the last request was
        answered.
        """
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._wait_idle(self.timeout_keep_alive)
        if self._held:
            self._release()
        if self._client_ended:
            self._close_if_client_ended()

    def carry_out_again(self, again: AgainCycle, application: Application) -> bool:
        """Have uvicorn parse the request, for the first time, and run it. Returns whether it does."""
        boundary, self._is_past_hot = self._boundary, True
        own: Any = self
        app, own.app = own.app, application
        super().data_received(again.data)
        own.app = app
        self._boundary, self._is_past_hot = boundary, False
        cycle: Any = self.cycle
        if cycle is not again:
            self._has_read_body(again)
        if self._held:
            self._release()
        self._close_if_client_ended()
        return cycle is not again

    def _release(self) -> None:
        data = b"".join(self._held)
        self._held.clear()
        self.flow.resume_reading()
        self.received -= len(data)
        self.begin(data)

    def _wait_idle(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._wait_idle(self.timeout_keep_alive)
            return
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._wait_idle(left)
        else:
            super().timeout_keep_alive_handler()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.server_context.memory.paused(self.transport)

    def resume_writing(self) -> None:
        self.resumed += 1
        self.server_context.memory.resumed(self.transport)
        super().resume_writing()

    def shutdown(self) -> None:
        """The server stops: answer the requests that have arrived."""
        self.begin_early()
        super().shutdown()

    def look(self) -> ConnectionState | None:
        """See `broker.net.slow`."""
        return None if self.early else look_at_http1(self)

    def too_slow(self, phase: Phase) -> None:
        """End the request that `look` found too slow."""
        collecting = self.collecting
        if collecting is not None and phase is Phase.BODY:
            collecting.keep_alive = False
            assert self.hot is not None
            self.hot.too_slow(collecting.request, collecting)
        self.transport.abort() if phase is Phase.ANSWER else self.transport.close()

    def handle_events(self, event: Any) -> None:
        while event is not zttp.NEED_DATA:
            if isinstance(event, zttp.Request):
                if self._head_is_too_long(event):
                    return
                self._note_message()
            is_whole = isinstance(event, zttp.EndOfMessage)
            collecting = self.collecting
            if collecting is None:
                if not isinstance(event, zttp.Request) or not self._begin(event):
                    super().handle_events(event)
                    return
                collecting, is_whole = self.collecting, event.end_stream
            elif isinstance(event, zttp.Data):
                collecting.body += event.data
            if collecting is not None and is_whole:
                self.collecting = None
                collecting.more_body = False
                assert self.hot is not None
                self.hot.take(collecting.request, bytes(collecting.body), collecting)
                cycle: Any = self.cycle
                if cycle is not collecting:
                    return  # uvicorn runs it, and has handled the events after it
            event = self.conn.next_event()

    def _head_is_too_long(self, event: zttp.Request) -> bool:
        """Refuse the request if its head is too long. Returns whether it did."""
        limit = self.server_context.max_header_bytes
        before, self._head_from = self._head_from, self.received
        if self.received - before <= limit:
            return False  # the commonest case: all the data is less than the limit
        assert isinstance(event.headers, zttp.HeaderBlock)
        if head_bytes(event.target, event.headers.to_list()) <= limit:
            return False
        self._refuse(HeadTooLarge(limit))
        return True

    def send_400_response(self, msg: str) -> None:
        """Answer with an error; called when the parser has failed."""
        too_large = str(sys.exc_info()[1]) == _TOO_LARGE
        self._refuse(
            HeadTooLarge(self.server_context.max_header_bytes) if too_large else InvalidRequest(f"request: {msg}")
        )

    def _refuse(self, error: Exception) -> None:
        """Answer with a refusal and close the connection."""
        status, headers, body = refusal(error, self.server_context)
        self.conn.send_response(status, self.server_state.default_headers + headers)
        self.conn.send_data(body)
        self.conn.end_message()
        self.transport.write(self.conn.data_to_send())
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        collecting = self.collecting
        if collecting is not None:
            assert self.hot is not None
            self.forget(collecting)
            collecting.request.end()
            self.hot.client_gone(collecting.request)
        self.server_context.memory.resumed(self.transport)
        super().connection_lost(exc)

    def handle_remote_protocol_error(self) -> None:
        cycle: Any = self.cycle
        if cycle is not None and not cycle.more_body and not cycle.response_complete:
            # More data is pipelined after a request under way than is buffered. The client would take a 400 for the
            # answer to that request.
            self.transport.close()
            return
        super().handle_remote_protocol_error()

    def _should_upgrade(self) -> bool:
        # On other paths the header is ignored, as a server may do (RFC 9110 §7.8).
        scope = self.scope
        return scope["path"] == WEBSOCKET_PATH and scope["method"] == "GET" and super()._should_upgrade()

    def handle_websocket_upgrade(self, event: zttp.Request) -> None:
        if not event.end_stream:
            self._refuse(upgrade_with_body())
            return
        super().handle_websocket_upgrade(event)

    def forget(self, cycle: Cycle) -> None:
        """The request is answered, or is not answered here."""
        self.tasks.discard(cycle)  # pyright: ignore[reportArgumentType]
        if self.collecting is cycle:
            self.collecting = None

    def give_up(self, cycle: Cycle) -> None:
        """The grace period of a shutdown has ended: answer the request if it is still pending."""
        pending: set[Any] = self.tasks
        if cycle in pending:
            assert self.hot is not None
            self.hot.give_up(cycle.request, cycle)

    def _begin(self, event: zttp.Request) -> bool:
        if not event.path.isascii():
            raise zttp.RemoteProtocolError("a target is ASCII")  # uvicorn would close the connection without an answer
        # uvicorn handles a client that does not read its answers: it waits until the client does.
        if self.hot is None or event.expect_continue or self.root_path or self.flow.write_paused:
            return False
        if event.end_stream and event.method != b"GET":
            return False
        if self._is_past_hot:
            self._is_past_hot = False
            return False
        assert isinstance(event.headers, zttp.HeaderBlock)
        headers = by_name(event.headers.to_list(lowercase_names=True))
        target = self.hot.target(event.method, event.path, event.query, headers)
        request = None if target is None else self.hot.begin(target, headers)
        if target is None or request is None:
            return False
        self._unset_keepalive_if_required()
        cycle = self.collecting = HotCycle(self, request, event)
        self.cycle = cycle  # pyright: ignore[reportAttributeAccessIssue]
        self.tasks.add(cycle)  # pyright: ignore[reportArgumentType]
        head, self._head = self._head, None
        if head is not None and not self.conn.should_close():
            self._heads.learn(head, target, headers)
        return True

    def _note_message(self) -> None:
        """After a head was parsed: note where its message ends, and the head if the data held only this message."""
        data, self._fresh = self._fresh, None
        size = None if data is None else message_bytes(data)
        self._head = None
        if data is None or size is None or self._boundary is None:
            self._boundary = None
            return
        self._boundary += size
        head_size = data.find(END) + len(END)
        if size == len(data) and head_size + MAX_MORE_DIGITS <= min(
            MAX_HEAD_BYTES, self.server_context.max_header_bytes
        ):
            self._head = data[:head_size]

    def carry_out(self, hot: HotCycle, application: Application) -> bool:
        """Have uvicorn run the request, from the head that was parsed. Returns whether it does."""
        own: Any = self
        app, own.app = own.app, application
        super().handle_events(hot.event)
        own.app = app
        self._has_read_body(hot)
        self._close_if_client_ended()
        return True

    def _has_read_body(self, before: Cycle) -> None:
        """Mark the body as read: the next message to the application says that the client has gone."""
        cycle: Any = self.cycle
        cycle.body = bytearray()
        cycle.more_body = False
        cycle.keep_alive = before.keep_alive
        cycle.message_event.clear()
