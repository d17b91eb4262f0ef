"""One hot request and its answer, as the protocol has them (see `broker.server.http1`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import TYPE_CHECKING

import structlog
import zttp

from broker.api.hot import Application, Sent
from broker.server.hang_up import has_hung_up

if TYPE_CHECKING:
    from broker.api.request import Request
    from broker.server.http1 import Http1Protocol

_log = structlog.get_logger("broker.http")


class _Never:
    """Stands where uvicorn keeps the event that wakes a request's task: a hot request has none."""

    def set(self) -> None:
        pass


_never = _Never()


@cache
def status_line(status: int) -> bytes:
    """How an answer begins, in the words of those that zttp writes."""
    connection = zttp.Connection(zttp.SERVER)
    connection.send_response(status, [(b"content-length", b"0")])
    line, end, _ = connection.data_to_send().partition(b"\r\n")
    return line + end


class Cycle(ABC):
    """The attributes are those that uvicorn's protocol looks at.

    It stands among the server's tasks as well, for as long as it is not answered: a server that stops waits for it,
    and cancels it at the end of its grace.
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
        self.body = bytearray()
        self.disconnected = False
        #: It has closed its side, and may have gone.
        self.client_ended = False
        self.response_complete = False
        self.keep_alive = True
        self.more_body = True
        self.message_event = _never

    def respond(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes, *, withdrawable: bool) -> Sent:
        """Send the whole answer, in one write, and go on with the connection's next request.

        `withdrawable`: not to a client that has ended its side, and may have gone.

        Never raises: it is called by the engine, amid other requests' outcomes.
        """
        if self.response_complete:
            return Sent.LATE
        protocol = self._protocol
        self.response_complete = True
        protocol.forget(self)
        self.request.end()
        if withdrawable and (self.client_ended or has_hung_up(protocol.transport)):
            protocol.transport.close()
        if self.disconnected or protocol.transport.is_closing():
            return Sent.GONE
        try:
            self._send(status, headers, body)
        except Exception:
            _log.exception("connection_failed")
            protocol.transport.close()
            return Sent.GONE
        return Sent.OUT

    @abstractmethod
    def _send(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None: ...

    def carry_out(self, application: Application) -> bool:
        """Have uvicorn run `application` in a task, with this request: it has to wait for something. False: there is
        nobody to answer any more. Never raises, as `respond`.
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
        """As of a task. Answers later: the server walks through its tasks while it calls this."""
        self._protocol.loop.call_soon(self._protocol.give_up, self)


class HotCycle(Cycle):
    """Of a request that the parser has taken apart, its body collected here."""

    __slots__ = ("event",)

    def __init__(self, protocol: Http1Protocol, request: Request, event: zttp.Request) -> None:
        super().__init__(protocol, request)
        self.event = event

    def _send(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        protocol = self._protocol
        connection = protocol.conn
        self.body = bytearray()  # a connection that idles keeps its last cycle
        connection.send_response(status, protocol.server_state.default_headers + headers)
        connection.send_data(body)
        connection.end_message()
        protocol.transport.write(connection.data_to_send())
        if not self.keep_alive or connection.should_close():
            protocol.transport.close()
        protocol.on_response_complete()

    def _carry_out(self, application: Application) -> bool:
        return self._protocol.carry_out(self, application)


class AgainCycle(Cycle):
    """Of a request whose head is known: the parser has not seen it. `data` is all of it."""

    __slots__ = ("data",)

    def __init__(self, protocol: Http1Protocol, request: Request, data: bytes) -> None:
        super().__init__(protocol, request)
        self.data = data
        self.more_body = False

    def _send(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        protocol = self._protocol
        self.data = b""  # a connection that idles keeps its last cycle
        lines = b"".join([b"%b: %b\r\n" % each for each in headers])
        protocol.transport.write(b"%b%b%b\r\n%b" % (status_line(status), protocol.default_lines(), lines, body))
        if not self.keep_alive:
            protocol.transport.close()
        protocol.on_again_complete()

    def _carry_out(self, application: Application) -> bool:
        return self._protocol.carry_out_again(self, application)
