"""Answers the most frequent requests of HTTP/1.1 without a task: the one place that bypasses ASGI.

A task, an ASGI call and two writes to the socket cost more than all the rest of a small request. So the protocol
(`broker.server.http1`) collects the body of a request whose operation is `is_direct`, and this module calls the
handler. The handler and the rules are the same as `Dispatcher`'s. A request with an unusual head (a page of another
site, a missing key, a content coding) goes to the dispatcher before its body has arrived. A handler that has to wait
in a task continues in the dispatcher as well (`Dispatcher.go_on`).

Source: docs/reference/api.md#records, docs/reference/api.md#queues, docs/performance.md.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Mapping
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from broker.api.operation import Operation
from broker.api.request import Pending, Request, Result, drop
from broker.api.routing import Route
from broker.content import MIN_GZIP_BYTES, Answer, BodyTooSlow, Scope, Send, compress, headers_of
from broker.wiring import Broker
from storage import ShuttingDown

if TYPE_CHECKING:
    from broker.api.dispatch import Dispatcher
    from broker.content import Receive

#: Longer bodies go to the dispatcher, which reads them with back-pressure.
MAX_HOT_BODY_BYTES: Final = 1 << 20


class Sent(enum.Enum):
    """What happened to an answer: it was sent; the request already had one; the client has gone."""

    OUT = enum.auto()
    LATE = enum.auto()
    GONE = enum.auto()


class Application(Protocol):
    """An ASGI application for one request."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class Caller(Protocol):
    """The client of a request; it waits for one answer."""

    def respond(self, answer: Answer, identity: bytes, headers: list[tuple[bytes, bytes]] | None = None) -> Sent:
        """Send the whole answer; if it can be withdrawn, only to a client that is surely there. Never raises.

        `identity` is the request's id. `headers` are all headers of the answer; without them, `headers_of` makes them.
        """
        ...

    def carry_out(self, application: Application) -> bool:
        """Answer the request in a task. Returns False if its client has gone or has an answer. Never raises."""
        ...


class Target(msgspec.Struct, frozen=True, eq=False):
    """What the head of a request asks for."""

    route: Route
    operation: Operation
    values: list[str]
    query: bytes


class Hot(Protocol):
    """Takes the frequent requests of a server, or leaves them to the dispatcher. See `HotRequests`."""

    max_body_bytes: int

    def target(self, method: bytes, path: bytes, query: bytes, headers: Mapping[bytes, bytes]) -> Any: ...

    def begin(self, target: Any, headers: dict[bytes, bytes]) -> Any: ...

    def take(self, request: Any, body: bytes, caller: Any) -> None: ...

    def give_up(self, request: Any, caller: Any) -> None: ...

    def too_slow(self, request: Any, caller: Any) -> None: ...

    def client_gone(self, request: Any) -> None: ...


def direct_target(
    app: Dispatcher, method: bytes, path: bytes, query: bytes, headers: Mapping[bytes, bytes], max_body_bytes: int
) -> Target | None:
    """The target of a request with a usual head, of an operation that is `is_direct`; None for any other request."""
    if (
        b"%" in path
        or b"content-encoding" in headers
        or b"origin" in headers
        or b"sec-fetch-site" in headers
        or not app.broker.sites.answers_to(headers.get(b"host"))
    ):
        return None
    if method == b"POST":
        length = headers.get(b"content-length", b"")
        if headers.get(b"content-type") != b"application/json" or not length.isdigit() or int(length) > max_body_bytes:
            return None
    found = app.table.match(path.decode())
    operation = None if found is None else found[0].operations.get(method.decode())
    if found is None or operation is None or not operation.is_direct:
        return None
    return Target(found[0], operation, found[1], query)


class HotRequests:
    """Takes requests, or leaves them to the dispatcher."""

    def __init__(self, app: Dispatcher) -> None:
        assert isinstance(app.broker, Broker)
        self._app = app
        self._broker = app.broker
        #: Requests with longer bodies are left to the dispatcher.
        self.max_body_bytes = min(MAX_HOT_BODY_BYTES, app.broker.settings.max_body_bytes)
        self._sending: set[asyncio.Task[None]] = set()

    def target(self, method: bytes, path: bytes, query: bytes, headers: Mapping[bytes, bytes]) -> Target | None:
        """The target of a request, if its body is worth collecting; None leaves the request to the dispatcher.

        The dispatcher refuses a request before its body has arrived, where the head is reason enough.
        """
        target = direct_target(self._app, method, path, query, headers, self.max_body_bytes)
        if target is None or target.operation.always:
            return target
        return None if self._broker.stopping or not self._broker.engine.ready else target

    def begin(self, target: Target, headers: dict[bytes, bytes]) -> Request | None:
        """Begin a request that may be taken. None leaves it to the dispatcher, which refuses it and says why."""
        cells = self._broker.cells
        if cells is not None and target.route.has_topic:
            query = target.query if target.operation.of_partition else b""
            if not cells.is_mine(target.values[target.route.named][0], query):
                return None
        request = Request(self._broker, headers, target.query)
        request.route, request.operation, request.values = target.route, target.operation, target.values
        request.template = target.route.template
        gate = self._broker.gate
        if gate is None or (target.operation.rule.probe and not gate.probe_auth):
            return request
        caller = gate.of_bearer(headers)
        if caller is None:
            return None
        rule = target.operation.rule
        if not all(caller.grant.allows(rule.scopes, name) for name in target.values[target.route.named]):
            return None
        if not rule.settles:
            flight = caller.try_enter()
            if flight is None:
                return None
            request.flight = flight
        request.access = caller
        return request

    def take(self, request: Request, body: bytes, caller: Caller) -> None:
        """Call the handler and answer the caller, now or later. Never raises."""
        request.body = body
        operation = request.operation
        assert operation is not None
        try:
            if not self._broker.engine.logs.ready and not operation.always:
                self._broker.check_serving()
            outcome = operation.handler(request)
        except Exception as error:
            self._answer(request, caller, error)
            return
        if isinstance(outcome, Answer):
            self._answer(request, caller, outcome)
        elif isinstance(outcome, Pending):
            outcome.then(partial(self._answer, request, caller))
        else:
            self._answer(request, caller, outcome)  # pyright: ignore[reportArgumentType]

    def give_up(self, request: Request, caller: Caller) -> None:
        """The grace period of a shutdown has ended: answer that the outcome of the request is unknown."""
        self._answer(request, caller, ShuttingDown(outcome="unknown"))

    def too_slow(self, request: Request, caller: Caller) -> None:
        """Answer a request whose body does not arrive in time."""
        self._answer(request, caller, BodyTooSlow())

    def client_gone(self, request: Request) -> None:
        """Count a request whose client left in the middle of its body."""
        self._broker.http_metrics.client_gone(request.template)

    def _answer(self, request: Request, caller: Caller, result: Result) -> None:
        """Send the result. Never raises: the engine calls it, and a failed answer is not the engine's concern."""
        if isinstance(result, Answer):
            answer = result
        elif isinstance(result, Exception):
            self._broker.http_metrics.refused(result)
            answer = request.refuse(result, request_id=request.request_id.decode())
        else:
            if not caller.carry_out(partial(self._app.go_on, request, result)):
                drop(result)
            return
        headers, operation = request.headers, request.operation
        assert operation is not None
        if self._broker.tracing is not None and not operation.always:
            self._broker.tracing.request(
                operation.method, request.template, answer.status, request.started, headers, request.note
            )
        if len(answer.body) >= MIN_GZIP_BYTES and b"accept-encoding" in headers:
            sending = asyncio.ensure_future(self._send_large(request, caller, answer))
            self._sending.add(sending)  # the loop keeps only a weak reference
            sending.add_done_callback(self._sending.discard)
            return
        sent = caller.respond(answer, request.request_id)
        if sent is Sent.OUT:
            took_s = perf_counter() - request.started
            self._broker.http_metrics.observe(request.template, operation.method, answer.status, took_s)
        else:
            self._not_sent(request, answer, sent)

    async def _send_large(self, request: Request, caller: Caller, answer: Answer) -> None:
        """Compress the answer, on a thread if it is large, and send it. The caller gets an answer in any case."""
        accept_encoding = request.headers.get(b"accept-encoding")
        try:
            coding = await compress(answer, accept_encoding)
        except Exception as error:
            drop(answer)
            self._answer(request, caller, error)
            return
        identity = request.request_id
        sent = caller.respond(answer, identity, headers_of(answer, identity, coding))
        if sent is Sent.OUT:
            self._observe(request, answer)
        else:
            self._not_sent(request, answer, sent)

    def _not_sent(self, request: Request, answer: Answer, sent: Sent) -> None:
        if answer.withdraw is not None:
            answer.withdraw()  # the client never gets it
            if sent is Sent.GONE:
                self.client_gone(request)
        elif sent is Sent.GONE:
            self._observe(request, answer)

    def _observe(self, request: Request, answer: Answer) -> None:
        assert request.operation is not None
        took_s = perf_counter() - request.started
        self._broker.http_metrics.observe(request.template, request.operation.method, answer.status, took_s)
