"""The wire protocols: HTTP/1.1 and HTTP/2 on one port, as uvicorn's zttp has them, with one mend.

uvicorn 0.54 does not note that an HTTP/2 request has ended when it ends with its headers: a POST without a body would
wait for one for ever. Its HTTP/1.1 half does note it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

from uvicorn.protocols.http.auto_zttp_impl import AutoZttpProtocol
from uvicorn.protocols.http.zttp_h2_impl import ZttpH2Protocol

from broker.http1 import Http1Protocol

if TYPE_CHECKING:
    from broker.http.hot import HotWrites


class Http2Protocol(ZttpH2Protocol):
    """A request that ends with its headers has no body to wait for."""

    def handle_request(self, event: Any) -> None:
        super().handle_request(event)
        cycle = self.cycles.get(event.stream_id) if event.end_stream else None
        if cycle is not None:
            cycle.more_body = False
            cycle.message_event.set()


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


def one_port(hot: HotWrites) -> type[OnePortProtocol]:
    """The protocol class of a server whose hot writes go to `hot`."""

    class Hot(Http1Protocol):
        pass

    class OnePort(OnePortProtocol):
        http1 = Hot

    Hot.hot = hot
    return OnePort
