"""Forwards the most frequent requests without a task: small JSON requests over HTTP/1.1.

The protocol (`broker.server.http1`) collects the body and calls `take`. The request goes to the cell in one write, over
a connection that has no other request in progress, and the cell's answer goes to the client byte for byte. A task takes
over a large answer (`broker.gateway.exchange`) and reads it no faster than the client does.

Source: docs/cells.md#the-gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.api import MAX_HOT_BODY_BYTES, Dispatcher, Owner, Request, Sent, direct_target, request_id
from broker.cells import PeerUnavailable, address_in
from broker.content import Answer, BodyTooSlow
from broker.gateway.exchange import Exchange
from broker.gateway.forward import MAX_FOLLOWED, answered, cell_in, changes
from broker.gateway.heads import END, NOT_MINE, front, length_of, with_body
from broker.memory import SMALL
from storage import ShuttingDown

if TYPE_CHECKING:
    from broker.api import Operation, Route
    from broker.gateway.gateway import Gateway
    from broker.gateway.links import Cell, Link

_BEHIND_STATUS: Final = len(b"HTTP/1.1 200")
_STATUS: Final = slice(len(b"HTTP/1.1 "), _BEHIND_STATUS)
_NOT_MINE: Final = b"%d" % NOT_MINE


class HotTarget(NamedTuple):
    """What the head of a request asks for. `front`: the head for the cell, without the fields that frame the body."""

    route: Route
    operation: Operation
    values: list[str]
    query: bytes
    front: bytes
    topic: str


class HotForwards:
    """Forwards requests for one topic, or leaves them to the dispatcher. See `broker.api.Hot`."""

    def __init__(self, app: Dispatcher, gateway: Gateway) -> None:
        self.app = app
        self.gateway = gateway
        #: Requests with larger bodies are left to the dispatcher.
        self.max_body_bytes = min(MAX_HOT_BODY_BYTES, gateway.settings.max_body_bytes)
        self._connecting: set[asyncio.Task[None]] = set()

    def target(self, method: bytes, path: bytes, query: bytes, headers: Mapping[bytes, bytes]) -> HotTarget | None:
        """The target of a request, if its body should be collected. None leaves the request to the dispatcher."""
        found = direct_target(self.app, method, path, query, headers, self.max_body_bytes)
        if found is None:
            return None
        route, operation, values = found.route, found.operation, found.values
        if operation.owner is not Owner.TOPIC:
            return HotTarget(route, operation, values, query, b"", "") if operation.always else None
        whole = b"%b?%b" % (path, query) if query else path
        topic = values[route.named][0]
        if query and operation.of_partition:
            topic = address_in(topic, query)
        return HotTarget(route, operation, values, query, front(method, whole, list(headers.items())), topic)

    def begin(self, target: HotTarget, headers: dict[bytes, bytes]) -> HotCall:
        return HotCall(self, target, headers)

    def take(self, request: HotCall, body: bytes, caller: Any) -> None:
        """Forward the request. Never raises."""
        request.start(body, caller)

    def give_up(self, request: HotCall, caller: Any) -> None:
        """Cancel all requests: the grace period of a shutdown has ended."""
        request.fail(ShuttingDown(outcome="unknown"))

    def too_slow(self, request: HotCall, caller: Any) -> None:
        """Answer a request whose body does not arrive in time."""
        request.caller = caller
        request.fail(BodyTooSlow())

    def client_gone(self, request: HotCall) -> None:
        """Count a request whose client left in the middle of its body."""
        self.gateway.http_metrics.client_gone(request.target.route.template)

    def connect(self, call: HotCall, cell: Cell) -> None:
        """Open a connection and send the request over it."""
        task = asyncio.ensure_future(self._connect(call, cell))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, call: HotCall, cell: Cell) -> None:
        try:
            link = await cell.link()
        except Exception as error:
            call.fail(error)
            return
        if call.is_open:
            call.send(link)
        else:
            link.release()


class HotCall:
    """One request in progress. The protocol sets it, like an event, when the client has gone."""

    __slots__ = (
        "_buffer",
        "_data",
        "_followed",
        "_forwards",
        "_link",
        "caller",
        "cell",
        "headers",
        "started",
        "target",
    )

    def __init__(self, forwards: HotForwards, target: HotTarget, headers: dict[bytes, bytes]) -> None:
        self._forwards = forwards
        self._link: Link | None = None
        self._buffer = b""
        self._data = b""
        self._followed = 0
        self.caller: Any = None
        self.cell = 0
        self.target = target
        self.headers = headers
        self.started = perf_counter()

    # -- of the protocol ---------------------------------------------------------------------------------------------

    def end(self) -> None:
        """The request is answered, or nobody is left to answer."""

    def set(self) -> None:
        """The client has closed its side, or the connection."""
        link = self._link
        if link is None:
            return
        if self.caller.disconnected:
            self._link = None
            link.close()
            self._forwards.client_gone(self)
        elif self.caller.client_ended and not link.has_ended:
            link.end_side()  # the cell decides whether it still answers

    @property
    def is_open(self) -> bool:
        return not self.caller.response_complete and not self.caller.disconnected

    # -- the way there -----------------------------------------------------------------------------------------------

    def start(self, body: bytes, caller: Any) -> None:
        self.caller = caller
        target = self.target
        gateway = self._forwards.gateway
        if target.operation.always:
            try:
                outcome: Any = target.operation.handler(self)  # pyright: ignore[reportArgumentType]
                self._respond(outcome)
            except Exception as error:
                self.fail(error)
            return
        caller.message_event = self
        self._data = with_body(target.front, body)
        self.cell = gateway.owners.cell(target.topic)
        self._go()

    def _go(self) -> None:
        cell = self._forwards.gateway.upstreams[self.cell]
        link = cell.idle()
        if link is None:
            self._forwards.connect(self, cell)
        else:
            self.send(link)

    def send(self, link: Link) -> None:
        self._link = link
        link.user = self
        link.transport.write(self._data)

    # -- the way back ------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        end = data.find(END)
        if end < 0:
            self._buffer = data
            return
        length = length_of(data, end + 2)
        head = end + len(END)
        if length is None or length > SMALL or b"\r\nconnection: " in data[:head]:
            self._go_on(data)
        elif len(data) < head + length:
            self._buffer = data
        else:
            self._answered(data, head)

    def _answered(self, data: bytes, head: int) -> None:
        link, self._link = self._link, None
        assert link is not None
        if link.has_ended:
            link.close()
        else:
            link.release()
        status = data[_STATUS]
        if status == _NOT_MINE and self._follow(data[head:]):
            return
        if self.caller.relay(data, head) is Sent.OUT:
            self._observe(int(status))

    def _follow(self, body: bytes) -> bool:
        """After `not_mine`: send the request to the cell that it names, or answer that the broker is not ready."""
        owners = self._forwards.gateway.owners
        self._buffer = b""
        self._followed += 1
        if not owners.learn(self.target.topic, cell_in(body), self.cell) or self._followed > MAX_FOLLOWED:
            self.fail(PeerUnavailable(self.cell, "none"))
        else:
            self.cell = owners.cell(self.target.topic)
            self._go()
        return True

    def _go_on(self, data: bytes) -> None:
        """Continue in a task: the answer is large, or has an unusual form."""
        link, self._link = self._link, None
        assert link is not None
        target, forwards = self.target, self._forwards
        exchange = Exchange(link, self.cell, changes=changes(self.target.operation), received=data)
        request = Request(forwards.gateway, self.headers, target.query)
        request.route, request.operation, request.values = target.route, target.operation, target.values
        request.template = target.route.template
        work = _answer_of(request, exchange)
        if not self.caller.carry_out(partial(forwards.app.go_on, request, work)):
            work.close()
            exchange.close()

    def lost(self) -> None:
        """The connection to the cell ended before the answer."""
        self._link = None
        self.fail(PeerUnavailable(self.cell, "unknown" if changes(self.target.operation) else "none"))

    def fail(self, error: Exception) -> None:
        """Answer with an error. Never raises."""
        link, self._link = self._link, None
        if link is not None:
            link.close()
        identity = request_id(self.headers.get(b"x-request-id"))
        self._forwards.gateway.http_metrics.refused(error)
        refuse = self.target.route.refuse
        self._respond(refuse(error, request_id=identity.decode()), identity)

    def _respond(self, answer: Answer, identity: bytes | None = None) -> None:
        identity = identity or request_id(self.headers.get(b"x-request-id"))
        if self.caller.respond(answer, identity) is Sent.OUT:
            self._observe(answer.status)

    def _observe(self, status: int) -> None:
        target = self.target
        took_s = perf_counter() - self.started
        metrics = self._forwards.gateway.http_metrics
        metrics.observe(target.route.template, target.operation.method, status, took_s)


async def _answer_of(request: Request, exchange: Exchange) -> Answer:
    try:
        head = await request.unless_gone(exchange.head())
        return await answered(request, exchange, head)
    except BaseException:
        exchange.close()
        raise
