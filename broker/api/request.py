"""One request as the endpoints see it."""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from broker.api import intake
from broker.api.answers import Headers, Receive, Scope
from broker.api.query import Query
from broker.auth.access import ANYBODY, UNCOUNTED, Access, Flight
from broker.memory.bodies import BodyRoom
from broker.memory.memory import PATIENCE_S, SMALL
from broker.server.hang_up import has_hung_up
from broker.service import partitions
from broker.service.limits import Places

if TYPE_CHECKING:
    from broker.memory.budget import Hold
    from broker.tracing.notes import Note
    from broker.wiring import Broker

T = TypeVar("T")

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
_process = secrets.token_hex(4).encode()
_numbers = itertools.count(1)


class ClientGone(Exception):
    """The client closed the connection; there is nobody to answer."""


class Request:
    """Scope, headers and body of a request, and how long it has taken so far."""

    __slots__ = (
        "_body",
        "_receive",
        "_room",
        "access",
        "broker",
        "connection",
        "flight",
        "headers",
        "is_read",
        "note",
        "request_id",
        "scope",
        "started",
        "values",
    )

    def __init__(self, broker: Broker, scope: Scope, receive: Receive, connection: object = None) -> None:
        self.broker = broker
        #: Whose memory its body and its answer are counted to.
        self.connection = self if connection is None else connection
        self.scope = scope
        self.headers: dict[bytes, bytes] = by_name(scope["headers"])
        self.request_id = request_id(self.headers.get(b"x-request-id"))
        self.started = perf_counter()
        self.values: list[str] = []
        #: Whose it is.
        self.access: Access = ANYBODY
        #: It is under way for as long as this has not ended.
        self.flight: Flight = UNCOUNTED
        #: What an endpoint says of it to whoever traces.
        self.note: Note | None = None
        #: It changes nothing, whatever its method: it can be refused when all is done.
        self.is_read = False
        self._receive = receive
        self._body: BodyRoom | None = None
        self._room: Hold | None = None

    @property
    def query(self) -> Query:
        """The query parameters."""
        return Query(self.scope["query_string"])

    def partition(self) -> int | None:
        """The partition that the query asks for. Raises InvalidRequest."""
        return self.query.number("partition") if self.scope["query_string"] else None

    def address(self) -> str:
        """The partition that the path and the query mean. Raises InvalidRequest, TopicNotFound."""
        return partitions.at(self.broker.engine, self.values[0], self.partition())

    def elapsed_ms(self) -> float:
        return (perf_counter() - self.started) * 1000

    @property
    def parking(self) -> Places:
        """Where it may wait for something to happen; while it does it is not under way, and is not again after."""
        return _Parking(self)

    @contextmanager
    def stream_place(self) -> Generator[None]:
        """Hold an event stream instead of being under way. Raises LimitReached."""
        with self.broker.streams.place(), self.access.stream_place():
            self.flight.end()
            yield

    async def body(
        self, is_taken: Callable[[bytes], bool] = intake.is_json_type, max_bytes: int | None = None
    ) -> bytes:
        """The whole body, decompressed; type and size checked. Raises ClientGone and as `intake.read_body`.

        `max_bytes`: less than other bodies may have.
        """
        broker = self.broker
        most = broker.settings.max_body_bytes
        if max_bytes is not None:
            most = min(most, max_bytes)
        room = self._body = BodyRoom(broker.memory, self.connection)
        body = await intake.read_body(self.headers, self._receive, most, broker.body_pace, is_taken, room)
        if body is None:
            raise ClientGone
        return body

    # -- memory ------------------------------------------------------------------------------------------------------

    async def room(self, size: int) -> int:
        """How large an answer may be to a read that may as well give less than it is asked for: `size`, or what is held
        already, or SMALL, where there is no memory for more.
        """
        held = self._room
        if held is not None:
            # Whoever holds something does not wait for more: others may wait for what it holds.
            if self.broker.memory.answers.has_room(held.owner, size - held.size):
                held.resize(size)
            return held.size
        if size <= SMALL:
            return size
        self._room = await self.broker.memory.less(self.connection, size)
        return SMALL if self._room is None else size

    async def room_for(self, size: int, *, waits: bool = True) -> None:
        """Hold memory for an answer of this size; what was held before may be more or less. Raises Overloaded."""
        held = self._room
        if held is not None and (
            size <= held.size or self.broker.memory.answers.has_room(held.owner, size - held.size)
        ):
            held.resize(size)
            return
        if held is None and size <= SMALL:
            return
        self.release_room()
        memory = self.broker.memory
        self._room = await memory.answer(self.connection, size, PATIENCE_S if waits else 0)

    def hold(self, size: int) -> None:
        """Count an answer that is there and cannot be refused any more."""
        if self._room is None:
            self._room = self.broker.memory.answers.hold(self.connection, size)
        else:
            self._room.resize(size)

    def release_room(self) -> None:
        """There is no answer yet, or not any more."""
        if self._room is not None:
            self._room.release()
            self._room = None

    def release(self) -> None:
        """It is over: neither its body nor its answer is there any more."""
        self.release_room()
        if self._body is not None:
            self._body.release()

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The body as it comes, of any length, not decompressed. Raises ClientGone, BodyTooSlow."""
        async for piece in intake.pieces(self._receive, self.broker.body_pace):
            if piece is None:
                raise ClientGone
            yield piece

    async def unless_gone(self, work: Coroutine[Any, Any, T], *, discard: Callable[[T], None] | None = None) -> T:
        """Run `work` for as long as the client stays; raises ClientGone, with `work` cancelled, when it leaves.

        Only after the body has been read: it is the next message that says so. `discard` gets a result for which it
        was too late: of work that ended in the moment in which it was cancelled.
        """
        working = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(self._leaves())
        wanted = False
        try:
            await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                wanted = True
                return working.result()
            raise ClientGone
        finally:
            working.cancel()
            leaving.cancel()
            await asyncio.wait((working, leaving))
            if discard is not None and not wanted and not working.cancelled() and working.exception() is None:
                discard(working.result())

    def left(self) -> bool:
        """Whether the client is known to have gone, without waiting for news of it. After the body has been read.

        The kernel is asked as well: this is for what is granted to nobody but a client that is there.
        """
        cycle: Any = getattr(self._receive, "__self__", None)
        if (transport := getattr(cycle, "transport", None)) is not None and has_hung_up(transport):
            cycle.client_ended = True
        if self._hung_up():
            return True
        while True:
            asking = self._receive().__await__()
            try:
                asking.send(None)
            except StopIteration as told:
                if told.value["type"] == "http.disconnect":
                    return True
            else:
                asking.close()  # it waits: there is no news
                return False

    async def _leaves(self) -> None:
        while not self._hung_up() and (await self._receive())["type"] != "http.disconnect":
            pass

    def _hung_up(self) -> bool:
        """Whether the client has ended its side of the connection; if so, nothing is sent to it any more.

        It may have closed only that side, and read on: a write under way is answered all the same. But nobody knows
        that: what would wait for it, or grant it something, takes it for gone.
        """
        cycle: Any = getattr(self._receive, "__self__", None)
        if not getattr(cycle, "client_ended", False):
            return False
        cycle.disconnected = True
        if not hasattr(cycle, "stream"):  # the other streams of an HTTP/2 connection may still be answered
            cycle.transport.close()
        return True

    def awaits_continue(self) -> bool:
        """Whether the client still waits to be told to send the body, and has sent none of it."""
        cycle: Any = getattr(self._receive, "__self__", None)
        return getattr(cycle, "waiting_for_100_continue", False) and cycle.more_body and not cycle.body


class _Parking:
    __slots__ = ("_request",)

    def __init__(self, request: Request) -> None:
        self._request = request

    @contextmanager
    def place(self) -> Generator[None]:
        with self._request.broker.parking.place():
            self._request.flight.end()
            yield


def by_name(headers: Headers) -> dict[bytes, bytes]:
    """The last of each name. Of several keys none counts: what stands before the broker may have judged another one."""
    found = dict(headers)
    if len(found) != len(headers) and sum(name == b"authorization" for name, _ in headers) > 1:
        found[b"authorization"] = b""
    return found


def request_id(given: bytes | None) -> bytes:
    """The caller's id when it is harmless to log and echo, else a new one."""
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given
    return b"%b-%x" % (_process, next(_numbers))
