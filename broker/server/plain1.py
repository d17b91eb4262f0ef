"""HTTP/1.1 by uvicorn's httptools protocol, with the rules of the zttp server: the same limit for heads, one Host, the
same form of errors. A client cannot mistake an error for the answer to an earlier request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from broker.api.routes import WEBSOCKET_PATH
from broker.content import HeadTooLarge
from broker.net import FIRST_COST, NEXT_COST, ConnectionState, PacedReceiver, Phase, gated, look_at_http1
from broker.server.http1 import can_answer, end_client_side, refusal, upgrade_with_body
from storage import InvalidRequest

if TYPE_CHECKING:
    from broker.server.server_context import ServerContext

#: The same as in the zttp server.
MAX_FIELDS: Final = 100
_VERSIONS: Final = ("1.0", "1.1")


class PlainProtocol(PacedReceiver, HttpToolsProtocol):
    """HTTP/1.1 alone. `broker.server.protocols` sets `server_context`."""

    server_context: ClassVar[ServerContext]
    received = resumed = 0
    _head = _fields = 0
    #: Heads so far; and, of a head that is incomplete, the bytes that arrived after the piece in which it began.
    _heads = _open_bytes = 0
    _head_is_open = False
    #: Further data is ignored: the connection ends after the answers to requests in flight.
    _is_deaf = False
    _refusal: Exception | None = None
    #: The client has half-closed the connection and still gets the answers to its requests.
    _client_ended = False

    def connection_made(self, transport: Any) -> None:
        transport = gated(transport, self.server_context.may_answer)
        if self.server_context.refuses(self.connections, transport):
            self.transport = transport
        else:
            super().connection_made(transport)

    def eof_received(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return True to keep the connection open until every complete request is answered."""
        self.begin_early()
        self._client_ended = can_answer(self.cycle, self.scheme) or bool(self.pipeline)
        self._end_client_side()
        return self._client_ended

    def _end_client_side(self) -> None:
        for cycle in (self.cycle, *(each for each, _ in self.pipeline)):
            if self._client_ended and can_answer(cycle, self.scheme):
                end_client_side(cycle)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._client_ended and not self.pipeline and not can_answer(self.cycle, self.scheme):
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        cycle: Any = self.cycle
        if self._head_is_open or (cycle is not None and not cycle.response_complete):
            self.begin(data)
        else:
            self.begin_in_order(data, NEXT_COST if self.received else FIRST_COST)

    def begin(self, data: bytes) -> None:
        self.received += len(data)
        if self._is_deaf:
            return
        was_open, heads = self._head_is_open, self._heads
        super().data_received(data)
        # The parser reports a field when it is complete: until then it buffers whatever comes.
        if was_open and self._head_is_open and self._heads == heads:
            self._open_bytes += len(data)
            if self._open_bytes > self.server_context.max_header_bytes:
                self._refusal = HeadTooLarge(self.server_context.max_header_bytes)
                self.send_400_response("")

    def shutdown(self) -> None:
        """The server stops: answer the requests that have arrived."""
        self.begin_early()
        super().shutdown()

    def look(self) -> ConnectionState | None:
        """See `broker.net.slow`."""
        return None if self.early else look_at_http1(self)

    def too_slow(self, phase: Phase) -> None:
        """End the request that `look` found too slow."""
        self.transport.abort() if phase is Phase.ANSWER else self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.server_context.memory.paused(self.transport)

    def resume_writing(self) -> None:
        self.resumed += 1
        self.server_context.memory.resumed(self.transport)
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server_context.memory.resumed(self.transport)
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._head = self._fields = 0
        self._open_bytes = 0
        self._heads += 1
        self._head_is_open = True
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields += 1
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head_is_open = False
        parser: Any = self.parser
        version: str = parser.get_http_version()
        hosts = sum(name == b"host" for name, _ in self.headers)
        if version not in _VERSIONS or hosts > 1 or (version == "1.1" and not hosts):
            self._fail(InvalidRequest("request: HTTP/1.1 needs exactly one Host (RFC 9112 §3.2)."))
        if self._should_upgrade() and any(self._is_of_body(*each) for each in self.headers):
            self._fail(upgrade_with_body())
        super().on_headers_complete()

    @staticmethod
    def _is_of_body(name: bytes, value: bytes) -> bool:
        return name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0")

    def send_400_response(self, msg: str) -> None:
        """Called when the parser gave up, because of `_refusal` if there is one."""
        if self.transport.is_closing():
            return
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:
                # The client would mistake an error for the answer to a request in flight.
                cycle.keep_alive = False
                self._is_deaf = True
                return
            if self.pipeline or cycle.response_started:
                self.transport.close()
                return
        status, headers, body = refusal(self._refusal or InvalidRequest(f"request: {msg}"), self.server_context)
        lines = [b"%b: %b\r\n" % each for each in (*self.server_state.default_headers, *headers)]
        self.transport.write(b"".join((STATUS_LINE[status], *lines, b"\r\n", body)))
        self.transport.close()

    def _should_upgrade(self) -> bool:
        # On other paths the header is ignored, as a server may do (RFC 9110 §7.8).
        parser: Any = self.parser
        path = self.url.partition(b"?")[0].decode("ascii", "replace")
        return path == WEBSOCKET_PATH and parser.get_method() == b"GET" and super()._should_upgrade()

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > self.server_context.max_header_bytes or self._fields > MAX_FIELDS:
            self._fail(HeadTooLarge(self.server_context.max_header_bytes))

    def _fail(self, error: Exception) -> None:
        self._refusal = error
        raise error  # the parser turns it into an error of its own
