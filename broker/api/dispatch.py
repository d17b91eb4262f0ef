"""From an ASGI call to an answer: gate, key, operation, handler, errors, metrics.

This module calls all operations; those of the control plane have FastAPI's form (`broker.api.control`).

Source: docs/reference/errors.md#order-of-checks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from broker.api.operation import Owner
from broker.api.push import connection_of, drop, is_full, is_http2, send_last, try_send
from broker.api.request import ClientGone, Request, awaited, by_name
from broker.api.routes import sockets
from broker.api.routing import RouteTable
from broker.auth import READ
from broker.content import (
    NO_CONTENT,
    Answer,
    Message,
    Receive,
    Scope,
    Send,
    Streamed,
    changes_something,
    errors,
    send_answer,
    send_streamed,
)
from broker.memory import SMALL, Overloaded
from storage import InvalidRequest, ShuttingDown, StorageError

if TYPE_CHECKING:
    from broker.endpoint import Endpoint

_log = structlog.get_logger("broker.http")

#: Methods that a client can safely repeat.
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
#: What each answer counts in addition to its bytes while its client reads nothing.
FULL_BYTES: Final = 16 * 1024


class ServeSocket(Protocol):
    """Serves one WebSocket, from its opening handshake to its end."""

    async def __call__(self, broker: Any, scope: Scope, receive: Receive, send: Send) -> None: ...


class Dispatcher:
    """The ASGI application."""

    def __init__(self, broker: Endpoint, table: RouteTable, serve_socket: ServeSocket = sockets.serve) -> None:
        self.broker = broker
        self.table = table
        self._serve_socket = serve_socket

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._serve_socket(self.broker, scope, receive, send)
        else:
            await _lifespan(receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].startswith("/"):
            scope = {**scope, "path": _origin_form(scope["path"])}
        request = Request(self.broker, by_name(scope["headers"]), scope["query_string"])
        request.attach(scope, receive, connection_of(send))
        try:
            await self._answered(request, send)
        finally:
            request.end()

    async def _answered(self, request: Request, send: Send) -> None:
        found = self.table.match(request.scope["path"])
        if found is not None:
            request.route, request.values = found
            request.template = found[0].template
        await self._deliver(request, send, self._served(request))

    async def go_on(
        self, request: Request, work: Coroutine[Any, Any, Answer], scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Go on with a request that began without a task (`broker.api.hot`) and has to wait for something."""
        request.attach(scope, receive, connection_of(send))
        try:
            await self._deliver(request, send, _with_body_counted(request, work))
        finally:
            request.end()

    async def _deliver(self, request: Request, send: Send, work: Awaitable[Answer]) -> None:
        """Send the answer that `work` returns, or the refusal for the error that it raises."""
        scope, route = request.scope, request.route
        template = request.template
        is_probe = route is not None and route.always
        try:
            answer = await work
        except ClientGone:
            self.broker.http_metrics.client_gone(template)
            return
        except asyncio.CancelledError:
            if not self.broker.stopping:
                raise
            # The grace period of a shutdown has ended: answer that the outcome of this request is unknown.
            answer = request.refuse(ShuttingDown(outcome="unknown"), request_id=request.request_id.decode())
        except Exception as error:
            self.broker.http_metrics.refused(error)
            answer = request.refuse(error, request_id=request.request_id.decode())
        if b"expect" in request.headers and request.awaits_continue():
            # The client may send the body or not: the next bytes on the connection could be the body or a new request.
            answer.headers = [*answer.headers, (b"connection", b"close")]
        origin = request.headers.get(b"origin")
        if origin is not None:
            answer.headers = [*answer.headers, *self.broker.sites.shared_with(origin)]
        if self.broker.tracing is not None and not is_probe:
            route_name = None if route is None else template
            self.broker.tracing.request(
                scope["method"], route_name, answer.status, request.started, request.headers, request.note
            )
        if isinstance(answer, Streamed):
            if not await self._stream(answer, request, send, template):
                return
        else:
            if len(answer.body) > SMALL or is_full(send):
                try:
                    answer = await self._with_room(answer, request, send)
                except ClientGone:
                    self.broker.http_metrics.client_gone(template)
                    return
            accept_encoding = request.headers.get(b"accept-encoding")
            sent = await send_answer(
                answer,
                send,
                request_id=request.request_id,
                accept_encoding=accept_encoding,
                left=request.client_is_gone,
            )
            if not sent:
                self.broker.http_metrics.client_gone(template)
                return
        self.broker.http_metrics.observe(template, scope["method"], answer.status, perf_counter() - request.started)

    async def _with_room(self, answer: Answer, request: Request, send: Send) -> Answer:
        """Hold memory for the answer and return it. Without memory, return a refusal if the answer can be withdrawn.

        Raises ClientGone if the client reads nothing, not even a refusal.
        """
        size = len(answer.body)
        if request.route is not None and request.route.always:
            return answer  # a health check is answered in any case
        if answer.withdraw is None and request.scope["method"] not in _SAFE and not request.is_read:
            request.hold(size)
            return answer
        full = is_full(send)
        try:
            await request.room_for(size + FULL_BYTES if full else size, waits=not full)
        except Overloaded as error:
            if answer.withdraw is not None:
                answer.withdraw()
            if full:
                drop(send)
                self.broker.memory.stalled()
                raise ClientGone from None
            return request.refuse(error, request_id=request.request_id.decode())
        return answer

    async def _stream(self, answer: Streamed, request: Request, send: Send, template: str) -> bool:
        """Send while the client stays and the rest can be read; if either fails, the answer stays incomplete.

        Returns whether the client stayed.
        """
        if answer.attach is not None:
            answer.attach(partial(self._push, send))
        try:
            sending = send_streamed(answer, send, request_id=request.request_id)
            await (sending if answer.takes_body else request.unless_gone(sending))
        except ClientGone:
            self.broker.http_metrics.client_gone(template)
            return False
        except StorageError as error:
            _log.warning("answer_cut_short", request_id=request.request_id.decode(), route=template, error=str(error))
        except TimeoutError:
            _log.warning("client_too_slow", request_id=request.request_id.decode(), route=template)
            if answer.last_words is not None:
                send_last(send, _body(answer.last_words()), {"type": "http.response.body", "body": b""})
        return True

    def _push(self, send: Send, piece: bytes) -> bool:
        """Send a piece without the stream's own task, which splits large pieces. Over HTTP/1.1 the piece may go whole,
        if there is memory for all of it.
        """
        if len(piece) > SMALL and (
            is_http2(send) or not self.broker.memory.answers.has_room(connection_of(send), len(piece))
        ):
            return False
        return try_send(send, _body(piece))

    async def _served(self, request: Request) -> Answer:
        """Check the request, read its body and call its handler. Raises what refuses it."""
        route = request.route
        if route is None or not route.always:
            await self.broker.memory.begin()
        method: str = request.scope["method"]
        operation = request.operation = None if route is None else route.operation(method)
        rule = None if operation is None else operation.rule
        headers, sites = request.headers, self.broker.sites
        sites.check_host(headers)
        if b"origin" in headers or b"sec-fetch-site" in headers:
            if (preflight := sites.preflight(method, headers)) is not None:
                return preflight
            changes = changes_something(method, READ if rule is None else rule.scopes)
            sites.check_page(headers, request.scope["scheme"], changes=changes)
        if route is None or not route.always:
            self.broker.check_serving()
        gate = self.broker.gate
        if gate is not None:
            request.access = gate.admit(headers, request.query_string, rule)
        if has_encoded_slash(request.scope.get("raw_path") or b""):
            raise InvalidRequest("path: names contain no slash, percent-encoded or not.", field="path")
        if route is None:
            raise errors.PathNotFound
        if operation is None or rule is None:
            if method == "OPTIONS":
                return Answer(b"", status=NO_CONTENT, headers=[(b"allow", route.allow.encode())])
            raise errors.MethodNotAllowed(route.allow)
        if gate is not None:
            if not rule.settles:
                request.flight = request.access.enter()
            request.access.require(rule.scopes, request.values[route.named])
        cells = self.broker.cells
        if cells is not None:
            if route.has_topic:
                cells.check_mine(
                    request.values[route.named][0], request.query_string if operation.of_partition else b""
                )
            elif operation.owner is Owner.GRAPH:
                cells.check_first("routers")
            elif operation.owner is Owner.GROUP:
                cells.check_home(request.values[route.parameters.index("group")])
        if operation.has_body and not operation.reads_body:
            request.body = await request.read_body()
        return await awaited(operation.handler(request))


async def _with_body_counted(request: Request, work: Coroutine[Any, Any, Answer]) -> Answer:
    """Run `work`, which may wait for long, while memory is held for the request's body. Raises Overloaded."""
    try:
        await request.count_body()
    except BaseException:
        work.close()
        raise
    return await work


def _body(piece: bytes) -> Message:
    return {"type": "http.response.body", "body": piece, "more_body": True}


def has_encoded_slash(raw_path: bytes) -> bool:
    """Paths are matched decoded, so a slash that a client encoded within a name would match another route."""
    return b"%2" in raw_path and b"%2f" in raw_path.lower()


def _origin_form(path: str) -> str:
    """The path of a target in absolute form, the form that clients send to a proxy (RFC 9112 §3.2.2)."""
    scheme, _, rest = path.partition("://")
    return "/" + rest.partition("/")[2] if scheme in ("http", "https") else path


async def _lifespan(receive: Receive, send: Send) -> None:
    # `broker.lifecycle` starts and stops the engine: the port has to open before the engine is ready.
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
