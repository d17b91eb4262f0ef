"""The wire protocols: HTTP/1.1 and HTTP/2 on one port, as uvicorn's zttp has them, with two mends of HTTP/2.

uvicorn 0.54 does not note that an HTTP/2 request has ended when it ends with its headers: a POST without a body would
wait for one for ever. Its HTTP/1.1 half does note it. And it does not wait for a client that has closed the window of
one stream: all that such a stream is sent would gather in memory.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

from uvicorn.protocols.http.auto_zttp_impl import AutoZttpProtocol
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.zttp_h2_impl import ZttpH2Protocol

from broker.http1 import Http1Protocol

if TYPE_CHECKING:
    from broker.http.hot import HotRequests


class StreamFlow:
    """Stands where an answer looks for whether it may go on: not while its connection or its own stream is full."""

    def __init__(self, connection: FlowControl, cycle: Any) -> None:
        self._connection = connection
        self._cycle = cycle
        self._moved = asyncio.Event()

    @property
    def write_paused(self) -> bool:
        waiting: int | None = self._cycle.stream.pending_bytes
        return self._connection.write_paused or (waiting is not None and waiting > HIGH_WATER_LIMIT)

    async def drain(self) -> None:
        """Until there is room, or nobody to send to any more."""
        while self.write_paused and not self._cycle.disconnected:
            self._moved.clear()
            await self._moved.wait()

    def look_again(self) -> None:
        self._moved.set()


class Http2Protocol(ZttpH2Protocol):
    """A request that ends with its headers has no body to wait for; a stream that is full is waited for."""

    def handle_request(self, event: Any) -> None:
        super().handle_request(event)
        cycle: Any = self.cycles.get(event.stream_id)
        if cycle is not None:
            cycle.flow = StreamFlow(self.flow, cycle)
            if event.end_stream:
                cycle.more_body = False
                cycle.message_event.set()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look_again()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._look_again()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._look_again()

    def handle_rst_stream(self, event: Any) -> None:
        cycle: Any = self.cycles.get(event.stream_id)
        super().handle_rst_stream(event)
        if cycle is not None:
            cycle.flow.look_again()

    def _look_again(self) -> None:
        for cycle in self.cycles.values():
            flow: Any = cycle.flow
            flow.look_again()


class OnePortProtocol(AutoZttpProtocol):
    """Looks at a connection's first bytes (or ALPN) and hands it to `Http1Protocol` or `Http2Protocol`."""

    http1: ClassVar[type[Http1Protocol]] = Http1Protocol

    def _switch(self, http2: bool, initial_data: bytes = b"") -> None:
        protocol_class: type[asyncio.Protocol] = Http2Protocol if http2 else self.http1
        protocol: Any = protocol_class(  # pyright: ignore[reportCallIssue]
            config=self.config, server_state=self.server_state, app_state=self.app_state, _loop=self.loop
        )
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        if initial_data:
            protocol.data_received(initial_data)


def one_port(hot: HotRequests) -> type[OnePortProtocol]:
    """The protocol class of a server whose hot requests go to `hot`."""

    class Hot(Http1Protocol):
        pass

    class OnePort(OnePortProtocol):
        http1 = Hot

    Hot.hot = hot
    return OnePort
