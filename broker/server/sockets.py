"""uvicorn's WebSockets, with their memory counted: data that clients have yet to read, and incomplete messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from broker.memory import SMALL

if TYPE_CHECKING:
    from broker.memory import Hold
    from broker.server.server_context import ServerContext


class SocketProtocol(WebSocketsSansIOProtocol):
    """A WebSocket. `websockets` sets `server_context`."""

    server_context: ClassVar[ServerContext]
    #: Bytes of a message that is incomplete.
    _coming = 0
    _body: Hold | None = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self.server_context.memory.paused(self.transport)

    def resume_writing(self) -> None:
        self.server_context.memory.resumed(self.transport)
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        self._coming += len(data)
        super().data_received(data)
        if self._coming > SMALL:
            self._count()

    def send_receive_event_to_app(self) -> None:
        self._coming = 0
        self._let_go()
        super().send_receive_event_to_app()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            # A refusal is an answer; without this, uvicorn would log that the handshake got none.
            self.handshake_complete = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.server_context.memory.resumed(self.transport)
        self._let_go()
        super().connection_lost(exc)

    def _count(self) -> None:
        """Count the memory of the incomplete message. If that is too much for all connections, close this one."""
        bodies = self.server_context.memory.bodies
        if self._body is None:
            self._body = bodies.hold(self.transport, self._coming)
        else:
            self._body.resize(self._coming)
        if bodies.is_over and bodies.held > self._coming:
            self.server_context.memory.refusal(bodies, self.transport, 0)
            self._let_go()
            self.transport.abort()

    def _let_go(self) -> None:
        if self._body is not None:
            self._body.release()
            self._body = None


def websockets(server_context: ServerContext) -> type[Any]:
    """The protocol class of a server's WebSockets."""

    class Socket(SocketProtocol):
        pass

    Socket.server_context = server_context
    return Socket
