"""The wire protocols: HTTP/1.1 and HTTP/2 on one port, by uvicorn's zttp protocols, with two fixes of HTTP/2.

uvicorn 0.54 does not notice that an HTTP/2 request ends with its headers, so a POST without a body would wait for one
forever. And it does not wait for a client that has closed the window of one stream, so all data for that stream would
accumulate in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, ClassVar, Final

import zttp
from uvicorn.protocols.http.auto_zttp_impl import AutoZttpProtocol
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.zttp_h2_impl import ZttpH2Protocol

from broker.content import HeadTooLarge
from broker.net import FIRST_COST, ConnectionState, PacedReceiver, Phase, Progress, Quota, gated
from broker.server.control_frames import ControlFrameLimiter
from broker.server.http1 import Http1Protocol, can_answer, end_client_side, head_bytes
from broker.server.plain1 import PlainProtocol

if TYPE_CHECKING:
    from broker.api import Hot
    from broker.memory import Hold
    from broker.server.server_context import ServerContext

#: Code of a reset: the client causes too much load (RFC 9113 §7).
_ENHANCE_YOUR_CALM: Final = 0xB
_CANCEL: Final = 0x8
#: Code of a reset: nothing was done, so the client can repeat the request (RFC 9113 §8.7).
_REFUSED_STREAM: Final = 0x7
_PROTOCOL_ERROR: Final = 0x1

#: Counted for each stream in addition to its bytes, while they wait for the client.
STREAM_BYTES: Final = 4096

#: Paths that are served under any load.
PROBES: Final = frozenset({b"/v0/health", b"/healthz", b"/v0/ready", b"/readyz"})

#: Frames that request nothing: see `broker.server.control_frames`.
_IDLE_FRAMES: Final = (zttp.Ping, zttp.Settings, zttp.RstStream)
#: In zttp's error for too many resets (256 a connection) or for a head in too many frames.
_FLOOD: Final = "flood"


class StreamFlow:
    """The flow control that an answer sees: it pauses while the connection or the answer's own stream is full."""

    def __init__(self, connection: FlowControl, cycle: Any) -> None:
        self._connection = connection
        self._cycle = cycle
        self._moved = asyncio.Event()
        #: How often the stream had room again.
        self.drains = 0

    @property
    def write_paused(self) -> bool:
        waiting: int | None = self._cycle.stream.pending_bytes
        return self._connection.write_paused or (waiting is not None and waiting > HIGH_WATER_LIMIT)

    async def drain(self) -> None:
        """Wait until there is room, or until there is no client to send to."""
        while self.write_paused and not self._cycle.disconnected:
            self._moved.clear()
            await self._moved.wait()
        self.drains += 1

    def look_again(self) -> None:
        self._moved.set()


class _Taking:
    """How fast a client reads the bytes of a stream."""

    __slots__ = ("_drains", "_pace", "_pending", "_progress")

    def __init__(self, pace: Quota, now: float) -> None:
        self._pace = pace
        self._progress = Progress(pace, now)
        self._pending = self._drains = 0

    @property
    def last_moved(self) -> float:
        """When the client last read anything."""
        return self._progress.last_moved

    def is_slow(self, pending: int, drains: int, now: float) -> bool:
        """Whether the client is too slow. `drains`: how often there was room meanwhile; each counts as progress."""
        taken = max(0, self._pending - pending) if drains == self._drains else self._pace.bytes
        self._progress.moved(taken, now)
        self._pending, self._drains = pending, drains
        return now >= self._progress.deadline()


class Http2Protocol(ZttpH2Protocol):
    """HTTP/2. A request that ends with its headers does not wait for a body; an answer waits for a full stream.

    The reader of a body handles a body that does not arrive, because other streams of the connection may be fine.
    """

    server_context: ClassVar[ServerContext]
    _requests = 0
    _resumed = 0

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._control_frames = ControlFrameLimiter(self.server_context.max_control_frames_per_s, self.loop.time())
        #: Streams whose complete answer the client had not fully read at its end, and the memory that they hold.
        self._untaken: dict[int, tuple[Any, Hold]] = {}
        #: By stream id: streams whose client makes no room.
        self._takings: dict[int, _Taking] = {}

    def eof_received(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return True to keep the connection open until every complete request is answered, as far as windows allow."""
        for cycle in self.cycles.values():
            if can_answer(cycle, self.scheme):
                end_client_side(cycle)
            else:
                cycle.disconnected = True  # the rest of its body will not come
                cycle.message_event.set()
        self.shutdown_requested = True  # the last answer ends the connection
        return any(can_answer(cycle, self.scheme) for cycle in self.cycles.values())

    def look(self) -> ConnectionState | None:
        """See `broker.net.slow`. Handles answers that are not read here: it resets their streams."""
        self._see_to_answers()
        if self.flow.write_paused:
            return ConnectionState(Phase.ANSWER, self._resumed, -self.transport.get_write_buffer_size())
        if not self.cycles and not self._untaken:
            return ConnectionState(Phase.IDLE if self._requests else Phase.HEAD, self._requests, 0)
        return None

    def too_slow(self, phase: Phase) -> None:
        """Close the connection that `look` found too slow."""
        if phase is Phase.IDLE:
            self._close_connection()
        else:
            self.transport.abort()

    def _see_to_answers(self) -> None:
        now = self.loop.time()
        self._release_read()
        before, self._takings = self._takings, {}
        under_way: dict[int, Any] = {**self.cycles}
        streams = {number: stream for number, (stream, _) in self._untaken.items()}
        streams |= {number: cycle.stream for number, cycle in under_way.items()}
        memory = self.server_context.memory
        for number, stream in streams.items():
            pending = waiting(stream)
            if not pending:
                continue
            cycle = under_way.get(number)
            taking = before.get(number) or _Taking(self.server_context.answer_pace, now)
            is_slow = taking.is_slow(pending, 0 if cycle is None else cycle.flow.drains, now)
            if is_slow or (taking.last_moved + memory.stall_timeout_s <= now and memory.is_short):
                memory.stalled()
                self._give_up(number, stream, cycle)
            else:
                self._takings[number] = taking

    def _release_read(self) -> None:
        """Stop counting the bytes that clients have read meanwhile."""
        for number, (stream, hold) in list(self._untaken.items()):
            left = waiting(stream)
            if left:
                hold.resize(left + STREAM_BYTES)
            else:
                self._forget(number)

    def _forget(self, number: int) -> None:
        found = self._untaken.pop(number, None)
        if found is not None:
            found[1].release()

    def _give_up(self, number: int, stream: Any, cycle: Any) -> None:
        self.server_context.metrics.too_slow(Phase.ANSWER)
        self._forget(number)
        stream.reset(_CANCEL)
        self.flush()
        if cycle is not None:
            cycle.disconnected = True
            cycle.message_event.set()
            cycle.flow.look_again()

    def on_response_complete(self, stream_id: int) -> None:
        cycle: Any = self.cycles.get(stream_id)
        left = 0 if cycle is None else waiting(cycle.stream)
        # For a closed connection, nothing is stored and no stream can be reset.
        if cycle is not None and left and not self.transport.is_closing():
            self._keep(stream_id, cycle.stream, left)
        super().on_response_complete(stream_id)

    def _keep(self, stream_id: int, stream: Any, left: int) -> None:
        """Count the memory of a complete answer that the client has not read. If it is too much, reset the stream."""
        memory = self.server_context.memory
        if not memory.answers.has_room(self.transport, left + STREAM_BYTES):
            memory.refusal(memory.answers, self.transport, left)
            stream.reset(_ENHANCE_YOUR_CALM)
            self.flush()
            return
        self._untaken[stream_id] = stream, memory.answers.hold(self.transport, left + STREAM_BYTES)

    def events(self) -> Generator[Any]:
        for event in super().events():
            if isinstance(event, _IDLE_FRAMES) and not self._control_frames.keeps(self.loop.time()):
                self.server_context.metrics.flooded("control_frames")
                self.conn.close(_ENHANCE_YOUR_CALM)
                raise zttp.RemoteProtocolError("too many PING, SETTINGS or RST_STREAM frames")
            yield event

    def handle_events(self) -> None:
        try:
            super().handle_events()
        except zttp.RemoteProtocolError as error:
            if _FLOOD in str(error):
                self.server_context.metrics.flooded("protocol")
            raise

    def handle_request(self, event: Any) -> None:
        self._requests += 1
        if not event.path.isascii():
            self.conn.stream(event.stream_id).reset(_PROTOCOL_ERROR)
            return
        if head_bytes(event.target, event.headers) > self.server_context.max_header_bytes:
            self.server_context.metrics.refused(HeadTooLarge(self.server_context.max_header_bytes))
            self.conn.stream(event.stream_id).reset(_ENHANCE_YOUR_CALM)
            return
        if self.server_context.memory.refuses_stream(len(self.cycles)) and event.path not in PROBES:
            self.conn.stream(event.stream_id).reset(_REFUSED_STREAM)
            return
        super().handle_request(event)
        cycle: Any = self.cycles.get(event.stream_id)
        if cycle is not None:
            cycle.flow = StreamFlow(self.flow, cycle)
            if event.end_stream:
                cycle.more_body = False
                cycle.message_event.set()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._untaken:
            self._release_read()
        self._look_again()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.server_context.memory.paused(self.transport)

    def resume_writing(self) -> None:
        self._resumed += 1
        self.server_context.memory.resumed(self.transport)
        super().resume_writing()
        self._look_again()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server_context.memory.resumed(self.transport)
        for number in list(self._untaken):
            self._forget(number)
        super().connection_lost(exc)
        self._look_again()

    def handle_rst_stream(self, event: Any) -> None:
        cycle: Any = self.cycles.get(event.stream_id)
        self._forget(event.stream_id)
        super().handle_rst_stream(event)
        if cycle is not None:
            cycle.flow.look_again()

    def _look_again(self) -> None:
        for cycle in self.cycles.values():
            flow: Any = cycle.flow
            flow.look_again()


def waiting(stream: Any) -> int:
    """Bytes of an answer that wait until the client opens its window."""
    return stream.pending_bytes or 0


class OnePortProtocol(PacedReceiver, AutoZttpProtocol):
    """Passes a connection to `Http1Protocol` or `Http2Protocol`, by its first bytes or ALPN."""

    http1: ClassVar[type[Http1Protocol]] = Http1Protocol
    http2: ClassVar[type[Http2Protocol]] = Http2Protocol
    server_context: ClassVar[ServerContext]

    def connection_made(self, transport: Any) -> None:
        transport = gated(transport, self.server_context.may_answer)
        self.transport = transport
        if not self.server_context.refuses(self.connections, transport):
            super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self.begin_in_order(data, FIRST_COST)

    def begin(self, data: bytes) -> None:
        super().data_received(data)

    def eof_received(self) -> bool | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        if not self.early:
            return super().eof_received()
        self.begin_early()
        protocol: Any = self.transport.get_protocol()
        return None if protocol is self else protocol.eof_received()

    def shutdown(self) -> None:
        """The server stops: answer the requests that have arrived."""
        self.begin_early()
        protocol: Any = self.transport.get_protocol()
        if protocol is self:
            AutoZttpProtocol.shutdown(self)
        else:
            protocol.shutdown()

    def look(self) -> ConnectionState | None:
        """See `broker.net.slow`: no bytes have arrived yet that show the protocol."""
        return None if self.early else ConnectionState(Phase.HEAD, self, 0)

    def too_slow(self, _: Phase) -> None:
        """Close the connection that `look` found too slow."""
        self.transport.close()

    def _switch(self, http2: bool, initial_data: bytes = b"") -> None:
        protocol_class: type[asyncio.Protocol] = self.http2 if http2 else self.http1
        protocol: Any = protocol_class(  # pyright: ignore[reportCallIssue]
            config=self.config, server_state=self.server_state, app_state=self.app_state, _loop=self.loop
        )
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        if initial_data:
            (protocol.data_received if http2 else protocol.begin)(initial_data)


def one_port(hot: Hot, server_context: ServerContext) -> type[OnePortProtocol]:
    """The protocol class of a server whose hot requests go to `hot`."""

    class One(Http1Protocol):
        pass

    class Two(Http2Protocol):
        pass

    class OnePort(OnePortProtocol):
        http1 = One
        http2 = Two

    One.hot = hot
    One.server_context = Two.server_context = OnePort.server_context = server_context
    One.arrivals = OnePort.arrivals = server_context.arrivals
    return OnePort


def plain(server_context: ServerContext) -> type[PlainProtocol]:
    """The protocol class of a server for HTTP/1.1 alone."""

    class Plain(PlainProtocol):
        pass

    Plain.server_context = server_context
    Plain.arrivals = server_context.arrivals
    return Plain
