"""One request as the endpoints see it."""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
import select
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import structlog

from broker.api import intake
from broker.api.query import Query
from broker.auth import ANYBODY, UNCOUNTED, Access, Flight
from broker.content import Answer, Headers, Outcome, Receive, Scope, awaited, errors, strict_json
from broker.limits import Slots
from broker.memory import PATIENCE_S, SMALL, BodyRoom
from broker.service import partitions

if TYPE_CHECKING:
    from broker.api.operation import Operation, Refuse
    from broker.api.routing import Route
    from broker.memory import Hold
    from broker.tracing import Note
    from broker.wiring import Broker

T = TypeVar("T")

_log = structlog.get_logger("broker.http")
#: A body of that size cannot be nested too deeply.
SURELY_FLAT_BYTES: Final = 2 * strict_json.MAX_NESTING
#: The template of what has no path of ours.
UNMATCHED: Final = "unmatched"
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
#: A client has ended its side (FIN), or both (RST).
_ENDED: Final = select.POLLRDHUP | select.POLLHUP | select.POLLERR
_process = secrets.token_hex(4).encode()
_numbers = itertools.count(1)


class ClientGone(Exception):
    """The client closed the connection; there is nobody to answer."""


class Request:
    """Headers and body of a request, who makes it, and how long it has taken so far.

    `scope` is there once a task carries it out (`attach`); what is answered without one has none.
    """

    # Defaults stand in the class: a frequent request sets few of them.
    scope: Scope
    _receive: Receive
    #: The path's template, None: there is no such path; the operation; the path's parameters.
    route: Route | None = None
    operation: Operation | None = None
    template = UNMATCHED
    values: Sequence[str] = ()
    #: All of it, where the operation does not read it itself (see `Operation.reads_body`).
    body = b""
    #: Whose it is.
    access: Access = ANYBODY
    #: It is under way for as long as this has not ended.
    flight: Flight = UNCOUNTED
    #: What a handler says of it to whoever traces.
    note: Note | None = None
    #: It changes nothing, whatever its method: it can be refused when all is done.
    is_read = False
    _connection: object = None
    _identity: bytes | None = None
    _spooled: BodyRoom | None = None
    _room: Hold | None = None

    def __init__(self, broker: Broker, headers: dict[bytes, bytes], query_string: bytes) -> None:
        self.broker = broker
        self.headers = headers
        self.query_string = query_string
        self.started = perf_counter()

    @property
    def connection(self) -> object:
        """Whose memory its body and its answer are counted to."""
        return self if self._connection is None else self._connection

    def attach(self, scope: Scope, receive: Receive, connection: object) -> None:
        """A task carries it out. `connection` None: its memory counts for itself."""
        self.scope = scope
        self._receive = receive
        self._connection = connection

    @property
    def request_id(self) -> bytes:
        """The caller's, or one made here."""
        identity = self._identity
        if identity is None:
            given = self.headers.get(b"x-request-id")
            identity = b"%b-%x" % (_process, next(_numbers)) if given is None else request_id(given)
            self._identity = identity
        return identity

    @property
    def refuse(self) -> Refuse:
        """Makes its answers to errors."""
        return errors.answer if self.route is None else self.route.refuse

    @property
    def query(self) -> Query:
        """The query parameters."""
        return Query(self.query_string)

    def decoded(self, decoder: msgspec.json.Decoder[T], go_on: Callable[[T], Outcome]) -> Outcome:
        """`go_on` with what is in the body: at once, or in a coroutine where decoding a large body lets others run.

        Raises InvalidRequest, now or when it is awaited.
        """
        body = self.body
        if len(body) <= SURELY_FLAT_BYTES:
            try:
                body.decode()
                value = decoder.decode(body)
            except (UnicodeDecodeError, msgspec.DecodeError):
                value = strict_json.decode_sync(body, decoder)  # says what is wrong, or reads 1.0 as an integer
        elif len(body) <= strict_json.WALK_ON_LOOP_BYTES:
            value = strict_json.decode_sync(body, decoder)
        else:
            return self._decoded_in_slices(decoder, go_on)
        return go_on(value)

    async def _decoded_in_slices(self, decoder: msgspec.json.Decoder[T], go_on: Callable[[T], Outcome]) -> Answer:
        return await awaited(go_on(await strict_json.decode(self.body, decoder)))

    def partition(self) -> int | None:
        """The partition that the query asks for. Raises InvalidRequest."""
        return self.query.number("partition") if self.query_string else None

    def address(self) -> str:
        """The partition that the path and the query mean. Raises InvalidRequest, TopicNotFound."""
        return partitions.at(self.broker.engine, self.values[0], self.partition())

    def take_note(self, make: Callable[..., Note], *arguments: Any) -> None:
        """What `make` says of it goes to whoever traces. Never raises: what was done is done."""
        try:
            self.note = make(*arguments)
        except Exception:
            _log.exception("span_not_made")

    def elapsed_ms(self) -> float:
        return (perf_counter() - self.started) * 1000

    @property
    def parking(self) -> Slots:
        """Where it may wait for something to happen; while it does it is not under way, and is not again after."""
        return _Parking(self)

    @contextmanager
    def hold_stream(self) -> Generator[None]:
        """Hold an event stream instead of being under way. Raises LimitReached."""
        with self.broker.streams.hold(), self.access.hold_stream():
            self.flight.end()
            yield

    async def read_body(
        self, is_taken: Callable[[bytes], bool] = intake.is_json_type, max_bytes: int | None = None
    ) -> bytes:
        """The whole body, decompressed; type and size checked. Raises ClientGone and as `intake.read_body`.

        `max_bytes`: less than other bodies may have.
        """
        broker = self.broker
        most = broker.settings.max_body_bytes
        if max_bytes is not None:
            most = min(most, max_bytes)
        room = self._spooled = BodyRoom(broker.memory, self.connection)
        body = await intake.read_body(self.headers, self._receive, most, broker.body_pace, is_taken, room)
        if body is None:
            raise ClientGone
        return body

    async def count_body(self) -> None:
        """Hold the memory of a body that is there already. Raises Overloaded."""
        self._spooled = BodyRoom(self.broker.memory, self.connection)
        await self._spooled.grow(len(self.body))

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
        if self._spooled is not None:
            self._spooled.release()

    def end(self) -> None:
        """It is answered, or there is nobody to answer."""
        if self.flight is not UNCOUNTED:
            self.flight.end()
        if self._room is not None or self._spooled is not None:
            self.release()

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

    def client_is_gone(self) -> bool:
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
    def hold(self) -> Generator[None]:
        with self._request.broker.parking.hold():
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


def has_hung_up(transport: Any) -> bool:
    """Whether the client of a connection has ended its side, as the kernel knows it, read by the loop or not.

    The loop reads a request and the end behind it one after the other. After a standstill both are there, and the
    broker would lease jobs before it sees the end. This is a system call: only for what a client is granted.
    """
    wire = transport.get_extra_info("socket")
    if wire is None or wire.fileno() < 0:
        return transport.is_closing()
    ends = select.poll()
    ends.register(wire.fileno(), _ENDED)
    return bool(ends.poll(0))
