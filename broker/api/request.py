"""One request, as the handlers see it, and the outcome that a handler returns for it.

A handler returns an `Answer`, a `Pending` or a coroutine. The engine resolves a `Pending` later. The HTTP/1.1 protocol
registers a callback with it (`then`) and sends the answer from within the engine's callback. All others await it.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
import select
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec
import structlog

from broker.api import intake
from broker.api.query import Query
from broker.auth import ANYBODY, UNCOUNTED, Access, Flight
from broker.content import Answer, Headers, Receive, Scope, errors, strict_json
from broker.memory import PATIENCE_S, SMALL, BodyRoom
from broker.scheduling import Slots
from broker.service import partitions

if TYPE_CHECKING:
    from broker.api.operation import Operation, Refuse
    from broker.api.routing import Route
    from broker.endpoint import Endpoint
    from broker.memory import Hold
    from broker.tracing import Note
    from broker.wiring import Broker

T = TypeVar("T")

_log = structlog.get_logger("broker.http")
#: A body of at most this size cannot be nested too deeply.
SURELY_FLAT_BYTES: Final = 2 * strict_json.MAX_NESTING
#: The path template of a request whose path matches no route.
UNMATCHED: Final = "unmatched"
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
#: The client has closed its side (FIN), or both sides (RST).
_ENDED: Final = select.POLLRDHUP | select.POLLHUP | select.POLLERR
_process = secrets.token_hex(4).encode()
_numbers = itertools.count(1)


class ClientGone(Exception):
    """The client has closed the connection: there is nobody to answer."""


class Request:
    """Headers and body of a request, the caller's access, and how long the request has taken so far.

    `scope` is set once a task runs the request (`attach`); a request that is answered without a task has none.
    """

    # Defaults are class attributes: a frequent request sets few of them.
    scope: Scope
    _receive: Receive
    #: The route of the path (None: there is no such path), the operation, and the parameters in the path.
    route: Route | None = None
    operation: Operation | None = None
    template = UNMATCHED
    values: Sequence[str] = ()
    #: The whole body, unless the operation reads it itself (see `Operation.reads_body`).
    body = b""
    #: The caller's access.
    access: Access = ANYBODY
    #: The request counts as under way until this has ended.
    flight: Flight = UNCOUNTED
    #: What the handler adds to the trace of the request.
    note: Note | None = None
    #: The request changes nothing, whatever its method: it can still be refused after it was carried out.
    is_read = False
    _connection: object = None
    _spooled: BodyRoom | None = None
    _room: Hold | None = None

    #: A handler of the gateway uses only the fields of `Endpoint`, because the gateway's process has no engine.
    broker: Broker

    def __init__(self, broker: Endpoint, headers: dict[bytes, bytes], query_string: bytes) -> None:
        self.broker = broker  # pyright: ignore[reportAttributeAccessIssue]
        self.headers = headers
        self.query_string = query_string
        self.started = perf_counter()
        given = headers.get(b"x-request-id")
        #: The caller's id, or one made here.
        self.request_id = b"%b-%x" % (_process, next(_numbers)) if given is None else request_id(given)

    @property
    def connection(self) -> object:
        """The owner to which the memory of body and answer is counted."""
        return self if self._connection is None else self._connection

    def attach(self, scope: Scope, receive: Receive, connection: object) -> None:
        """A task runs the request. `connection` None: the request itself owns its memory."""
        self.scope = scope
        self._receive = receive
        self._connection = connection

    def answered_as(self, identity: bytes) -> None:
        """Take the id that the answer has already got elsewhere."""
        self.request_id = identity

    @property
    def refuse(self) -> Refuse:
        """The function that makes the answer to an error."""
        return errors.answer if self.route is None else self.route.refuse

    @property
    def query(self) -> Query:
        """The query parameters."""
        return Query(self.query_string)

    def decoded(self, decoder: msgspec.json.Decoder[T], go_on: Callable[[T], Outcome]) -> Outcome:
        """Call `go_on` with the decoded body: at once, or in a coroutine if decoding a large body yields to others.

        Raises InvalidRequest, at once or when awaited.
        """
        body = self.body
        if len(body) <= SURELY_FLAT_BYTES:
            try:
                body.decode()
                value = decoder.decode(body)
            except (UnicodeDecodeError, msgspec.DecodeError):
                value = strict_json.decode_sync(body, decoder)  # raises what is wrong, or reads 1.0 as an integer
        elif len(body) <= strict_json.WALK_ON_LOOP_BYTES:
            value = strict_json.decode_sync(body, decoder)
        else:
            return self._decoded_in_slices(decoder, go_on)
        return go_on(value)

    async def _decoded_in_slices(self, decoder: msgspec.json.Decoder[T], go_on: Callable[[T], Outcome]) -> Answer:
        return await awaited(go_on(await strict_json.decode(self.body, decoder)))

    def partition(self) -> int | None:
        """The number of the partition in the query. Raises InvalidRequest."""
        return self.query.number("partition") if self.query_string else None

    def address(self) -> str:
        """The address of the partition that the path and the query name. Raises InvalidRequest, TopicNotFound."""
        return partitions.at(self.broker.engine, self.values[0], self.partition())

    def take_note(self, make: Callable[..., Note], *arguments: Any) -> None:
        """Add the note that `make` returns to the trace. Never raises: the operation has already been done."""
        try:
            self.note = make(*arguments)
        except Exception:
            _log.exception("span_not_made")

    def elapsed_ms(self) -> float:
        return (perf_counter() - self.started) * 1000

    @property
    def parking(self) -> Slots:
        """The slots for requests that wait for an event. Once the request waits it no longer counts as under way."""
        return _Parking(self)

    @contextmanager
    def hold_stream(self) -> Generator[None]:
        """Count as an event stream instead of as a request under way. Raises LimitReached."""
        with self.broker.streams.hold(), self.access.hold_stream():
            self.flight.end()
            yield

    async def read_body(
        self, is_taken: Callable[[bytes], bool] = intake.is_json_type, max_bytes: int | None = None
    ) -> bytes:
        """The whole body, decompressed, its type and size checked. Raises ClientGone and like `intake.read_body`.

        `max_bytes` sets a lower limit than the general one.
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
        """Hold memory for a body that has already arrived. Raises Overloaded."""
        self._spooled = BodyRoom(self.broker.memory, self.connection)
        await self._spooled.grow(len(self.body))

    # -- memory ------------------------------------------------------------------------------------------------------

    async def room(self, size: int) -> int:
        """How large the answer to a read may be that can return less than was asked for.

        Returns `size`; if there is no memory for that, the size that is held already, or SMALL.
        """
        held = self._room
        if held is not None:
            # A request that holds memory does not wait for more: others may wait for the memory it holds.
            if self.broker.memory.answers.has_room(held.owner, size - held.size):
                held.resize(size)
            return held.size
        if size <= SMALL:
            return size
        self._room = await self.broker.memory.try_answer(self.connection, size)
        return SMALL if self._room is None else size

    async def room_for(self, size: int, *, waits: bool = True) -> None:
        """Hold memory for an answer of this size, in place of what was held before. Raises Overloaded."""
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
        """Count the memory of an answer that exists and can no longer be refused."""
        if self._room is None:
            self._room = self.broker.memory.answers.hold(self.connection, size)
        else:
            self._room.resize(size)

    def release_room(self) -> None:
        """Release the answer's memory: there is no answer yet, or no longer."""
        if self._room is not None:
            self._room.release()
            self._room = None

    def release(self) -> None:
        """The request is over: release the memory of its body and its answer."""
        self.release_room()
        if self._spooled is not None:
            self._spooled.release()

    def end(self) -> None:
        """End the request: it is answered, or there is nobody to answer."""
        if self.flight is not UNCOUNTED:
            self.flight.end()
        if self._room is not None or self._spooled is not None:
            self.release()

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The body in pieces as they arrive, of any length, not decompressed. Raises ClientGone, BodyTooSlow."""
        async for piece in intake.pieces(self._receive, self.broker.body_pace):
            if piece is None:
                raise ClientGone
            yield piece

    async def unless_gone(self, work: Coroutine[Any, Any, T], *, discard: Callable[[T], None] | None = None) -> T:
        """Run `work` while the client stays connected; when it leaves, cancel `work` and raise ClientGone.

        Call it only after the body has been read: the next message then says that the client has left. `discard` gets
        the result of work that ended in the moment in which it was cancelled.
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
        """Whether the client is known to have gone; does not wait. Call it only after the body has been read.

        It asks the kernel as well, because it guards results, such as leases, that only a connected client may get.
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
                asking.close()  # no message is ready: the client is still there
                return False

    async def _leaves(self) -> None:
        while not self._hung_up() and (await self._receive())["type"] != "http.disconnect":
            pass

    def _hung_up(self) -> bool:
        """Whether the client has closed its side of the connection; if so, nothing more is sent to it.

        A client may close only that side and go on reading, so a write under way is answered all the same. But nobody
        can know that it reads: code that would wait for it, or lease jobs to it, takes it for gone.
        """
        cycle: Any = getattr(self._receive, "__self__", None)
        if not getattr(cycle, "client_ended", False):
            return False
        cycle.disconnected = True
        if not hasattr(cycle, "stream"):  # HTTP/2: the other streams of the connection may still be answered
            cycle.transport.close()
        return True

    def awaits_continue(self) -> bool:
        """Whether the client has sent none of the body and still waits for 100 Continue."""
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
    """The last header of each name. Of several keys none counts: a proxy in front may have checked another one."""
    found = dict(headers)
    if len(found) != len(headers) and sum(name == b"authorization" for name, _ in headers) > 1:
        found[b"authorization"] = b""
    return found


def request_id(given: bytes | None) -> bytes:
    """The caller's id if it is safe to log and to echo, else a new one."""
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given
    return b"%b-%x" % (_process, next(_numbers))


def has_hung_up(transport: Any) -> bool:
    """Whether the kernel knows that the client has closed its side, even if the loop has not read that yet.

    The loop reads a request first and the end of the connection after it. After a standstill both are there, and the
    broker would lease jobs before it sees the end. This costs a system call: use it only before a result such as
    leases, which only a connected client may get.
    """
    wire = transport.get_extra_info("socket")
    if wire is None or wire.fileno() < 0:
        return transport.is_closing()
    ends = select.poll()
    ends.register(wire.fileno(), _ENDED)
    return bool(ends.poll(0))


# -- the outcome -------------------------------------------------------------------------------------------------------

#: The return value of a handler: the answer, or an awaitable for it.
Outcome: TypeAlias = Answer | Awaitable[Answer]
#: The result of a pending answer: an answer, an error, or a coroutine that needs a task after all.
Result: TypeAlias = Answer | Exception | Coroutine[Any, Any, Answer]


class Pending(msgspec.Struct, eq=False):
    """An answer that the engine resolves later. `finish` makes the result from the engine's outcome; it may return a
    coroutine if something else must be waited for. `instead` makes the coroutine that runs if the engine did nothing.
    """

    finish: Callable[[Any], Answer | Coroutine[Any, Any, Answer]]
    instead: Callable[[], Coroutine[Any, Any, Answer]] | None = None
    _then: Callable[[Result], None] | None = None
    _result: Result | None = None

    def resolve(self, outcome: Any) -> None:
        """The engine has done the work, or failed with an exception. Call it once. Never raises."""
        result: Result
        if isinstance(outcome, Exception):
            result = outcome
        else:
            try:
                result = self.finish(outcome)
            except Exception as error:
                result = error
        if self._then is None:
            self._result = result
        else:
            self._then(result)

    def leave(self) -> None:
        """The engine did nothing, because something must be waited for. Call it instead of `resolve`; never raises."""
        assert self.instead is not None
        result = self.instead()
        if self._then is None:
            self._result = result
        else:
            self._then(result)

    def then(self, call: Callable[[Result], None]) -> None:
        """Call `call` with the result, at once or later. `call` must not raise."""
        if self._result is None:
            self._then = call
        else:
            call(self._result)

    def run(self, work: Coroutine[Any, Any, Any], cancelled: Callable[[], Exception]) -> Pending:
        """Resolve with the result or the error of `work`; with `cancelled()` if `work` was cancelled."""
        task = asyncio.ensure_future(work)
        _running.add(task)
        task.add_done_callback(partial(self._ran, cancelled))
        return self

    def _ran(self, cancelled: Callable[[], Exception], task: asyncio.Task[Any]) -> None:
        _running.discard(task)
        if task.cancelled():
            self.resolve(cancelled())
        else:
            error = task.exception()
            self.resolve(task.result() if error is None else error)

    def __await__(self) -> Generator[Any, None, Answer]:
        waiting: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.then(partial(_give, waiting))
        result = yield from waiting.__await__()
        if isinstance(result, Exception):
            raise result
        if isinstance(result, Answer):
            return result
        return (yield from result.__await__())


#: The loop keeps only weak references to tasks.
_running: set[asyncio.Task[Any]] = set()


def _give(waiting: asyncio.Future[Result], result: Result) -> None:
    if not waiting.done():
        waiting.set_result(result)
    else:
        drop(result)  # the task that waited was cancelled


def drop(result: Result) -> None:
    """Nobody gets this result: withdraw an answer, and do not start a coroutine."""
    if isinstance(result, Answer):
        if result.withdraw is not None:
            result.withdraw()
    elif not isinstance(result, Exception):
        result.close()


async def awaited(outcome: Outcome) -> Answer:
    """The answer; waits for it if necessary."""
    return outcome if isinstance(outcome, Answer) else await outcome
