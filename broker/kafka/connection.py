"""One connection of a Kafka client: receives frames, starts calls in order, and sends answers in order.

Its memory is bounded. Unanswered requests count by their bytes; above the limit, the connection stops reading. When the
transport's buffer for answers is full, no call is started. All answers together have a budget (see `broker.memory`); a
fetch reserves memory before it reads and releases it when the answer is written.

While its key has the most requests in flight that it may have, the connection reads and starts nothing. The sweeper
closes a connection whose client does not read its answers or does not finish a frame (see `broker.net.slow`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import structlog

from broker.auth import UNCOUNTED
from broker.kafka.apis import ApiKey
from broker.kafka.call import Body, Call, Later, Peer
from broker.kafka.calls import sasl, versions
from broker.kafka.codec import Malformed
from broker.kafka.framing import Frames, Header, framed, parse
from broker.memory import SMALL
from broker.net import FIRST_COST, NEXT_COST, ConnectionState, PacedReceiver, Phase, gated
from storage import Unavailable

if TYPE_CHECKING:
    from broker.auth import Access, Flight
    from broker.kafka.port import Port
    from broker.memory import Hold

_log = structlog.get_logger("broker.kafka")

#: Counted for each request in addition to its bytes, so that the number of small requests is bounded, too.
_REQUEST_BYTES: Final = 512
#: While the transport buffers more bytes of answers than this, no call is started.
_HIGH_WATER_BYTES: Final = 128 * 1024
#: The longest frame of an unauthenticated client, as in Kafka (sasl.server.max.receive.size).
_STRANGER_BYTES: Final = 512 * 1024
#: The longest frame of all kinds except Produce: they contain names, members and settings.
_PLAIN_BYTES: Final = 16 << 20
#: Calls with possibly large answers: none is started while the answers of all connections exceed their budget.
_LARGE: Final = frozenset(
    {ApiKey.METADATA, ApiKey.DESCRIBE_CONFIGS, ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS, ApiKey.OFFSET_FETCH}
)
#: After starting this many requests, a connection lets other tasks run.
_STRIDE: Final = 16
#: Calls that wait for an event: cancelled when the client disconnects.
_WAITING: Final = frozenset({ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.SHARE_FETCH})
#: Calls that an unauthenticated client may make.
_OPEN: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
#: Calls that do not count as requests of their key, as over HTTP: acknowledgements, and calls that keep a session.
_UNCOUNTED: Final = _OPEN | {
    ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_ACKNOWLEDGE
}  # fmt: skip


#: The bytes of a whole answer; None: the request gets no answer.
Whole: TypeAlias = Body | None


class _Slot:
    __slots__ = ("done", "finish", "whole")

    def __init__(self, finish: Callable[[Whole], None]) -> None:
        self.done = False
        self.whole: Whole = None
        self.finish = finish


class Outbox:
    """Sends answers in the order of their requests. An answer that is ready early waits.

    `failed` is called with the error of an answer that failed.
    """

    __slots__ = ("_closed", "_failed", "_slots", "_tasks")

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._slots: deque[_Slot] = deque()
        self._tasks: set[asyncio.Future[Whole]] = set()
        self._failed = failed
        self._closed = False

    def __len__(self) -> int:
        """The number of unsent answers."""
        return len(self._slots)

    def add(self, body: Whole, finish: Callable[[Whole], None]) -> None:
        """Add an answer that is ready. `finish` is called with it after all earlier answers, possibly at once."""
        if not self._slots:
            finish(body)
            return
        slot = _Slot(finish)
        slot.whole, slot.done = body, True
        self._slots.append(slot)

    def expect(self, coming: asyncio.Future[Whole], finish: Callable[[Whole], None]) -> None:
        """Add an answer that is not known yet."""
        slot = _Slot(finish)
        self._slots.append(slot)
        self._tasks.add(coming)

        def arrived(_: asyncio.Future[Whole]) -> None:
            self._tasks.discard(coming)
            if coming.cancelled():
                return
            error = coming.exception()
            if error is not None:
                if not self._closed:
                    self._failed(error)
                return
            slot.whole, slot.done = coming.result(), True
            self._pass_on()

        coming.add_done_callback(arrived)

    def close(self) -> None:
        """Drop all answers. Their requests continue: their writes are already submitted."""
        self._slots.clear()
        self._closed = True

    def _pass_on(self) -> None:
        while self._slots and self._slots[0].done:
            slot = self._slots.popleft()
            slot.finish(slot.whole)


class _Started(NamedTuple):
    """A started request whose answer has not been sent."""

    header: Header
    call: Call
    bytes: int
    at: float


class Connection(PacedReceiver, asyncio.Protocol):
    """See the module. All methods run on the loop."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self.arrivals = port.broker.arrivals
        self._loop = asyncio.get_running_loop()
        self._frames = Frames(self._limit_of)
        self._waiting: deque[bytearray] = deque()
        self._held_bytes = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._resumed = 0
        self._served = 0
        self._reading = True
        #: The key has the most requests in flight that it may have: the connection waits and reads nothing.
        self._held_back = False
        self._outbox = Outbox(self._failed)
        self._under_way: int | None = None
        self._closing = False
        self._when_gone: dict[object, Callable[[], None]] = {}
        #: The memory of its unanswered requests.
        self._body: Hold | None = None

    # -- called by the transport ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, gated(transport, self._port.broker.may_answer))
        local: Any = self.transport.get_extra_info("sockname")
        if local is None or not self._port.enter(
            self
        ):  # the client has disconnected, or there are too many connections
            self._closing = True
            self.transport.abort()
            return
        self.transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        remote: Any = self.transport.get_extra_info("peername")
        self._peer = Peer(self._port.access, (local[0], local[1]), str(remote[0]) if remote else "")
        self._peer.when_gone = self._when_gone
        self._task = self._loop.create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        if self._held_bytes or self._frames.buffered:  # the data belongs to a request in flight, or follows one
            self.begin(data)
        else:
            self.begin_in_order(data, NEXT_COST if self._served else FIRST_COST)

    def eof_received(self) -> None:
        self.begin_early()

    def begin(self, data: bytes) -> None:
        if self._closing:
            return
        try:
            frames = self._frames.feed(data)
        except Malformed as error:
            self._refuse("malformed", str(error))
            return
        for frame in frames:
            self._waiting.append(frame)
            self._held_bytes += len(frame) + _REQUEST_BYTES
        if frames:
            self._arrived.set()
            if self._held_bytes > self._port.max_request_bytes:
                self._watch_held()
        if self._body is not None or self._held_bytes + self._frames.buffered > SMALL:
            self._count_requests()

    def _count_requests(self) -> None:
        """Count the unanswered requests in the memory of all bodies. Closes the connection if that is too much."""
        size, bodies = self._held_bytes + self._frames.buffered, self._port.broker.memory.bodies
        if self._body is None:
            self._body = bodies.hold(self, 0)
        before = self._body.size
        self._body.resize(size if size > SMALL else 0)
        if self._body.size > before and bodies.is_over and bodies.held > self._body.size:
            self._port.broker.memory.refusal(bodies, self, size)
            self._body.resize(0)
            self._refuse("memory", "unanswered requests of all connections use all memory for requests")

    def pause_writing(self) -> None:
        self._room.clear()
        self._port.broker.memory.paused(self.transport)

    def resume_writing(self) -> None:
        self._resumed += 1
        self._port.broker.memory.resumed(self.transport)
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._port.leave(self)
        self._port.broker.memory.resumed(self.transport)
        if self._body is not None:
            self._body.resize(0)
        self._outbox.close()
        self._waiting.clear()
        self._room.set()
        self._arrived.set()
        if self._under_way in _WAITING:
            self._task.cancel()
        self._give_up()
        for then in [*self._when_gone.values()]:
            then()

    # -- called by the sweeper -----------------------------------------------------------------------------------------

    def look(self) -> ConnectionState | None:
        """See `broker.net.slow`."""
        if not self._room.is_set():
            return ConnectionState(Phase.ANSWER, self._resumed, -self.transport.get_write_buffer_size())
        if self.early:
            return None  # the broker is slow, not the client
        if self._peer.access is None:
            return ConnectionState(Phase.HEAD, None, 0)
        if not self._reading or self._held_bytes:
            return None
        if not self._served:
            return ConnectionState(Phase.HEAD, None, 0)
        if self._frames.buffered:
            return ConnectionState(Phase.BODY, self._served, self._frames.received)
        return ConnectionState(Phase.IDLE, self._served, 0)

    def too_slow(self, phase: Phase) -> None:
        """Close the connection: `look` has shown that the client is too slow."""
        if phase is Phase.IDLE:
            self.transport.close()
        else:
            self.transport.abort()

    def shut_down(self) -> None:
        """Start no further request; answer those in flight, then close the connection."""
        self._closing = True
        self._waiting.clear()
        self._arrived.set()
        waits = self._under_way in _WAITING
        if waits:
            self._task.cancel()
        self._give_up()
        if (waits or self._under_way is None) and not len(self._outbox):
            self.transport.close()

    # -- requests ------------------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        begun = 0
        while not self._closing:
            begun += 1
            if not begun % _STRIDE:
                await asyncio.sleep(0)  # because many calls never yield to the loop
            if not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            await self._room.wait()
            if self._closing or not self._waiting:
                continue
            frame = self._waiting.popleft()
            try:
                await self._start(frame)
            except Malformed as error:
                self._refuse("malformed", str(error))
            except Unavailable as error:  # another cell, and a partial answer would be wrong: clients ask again
                self._refuse("unavailable", error.message)
            except Exception as error:
                self._failed(error)
            finally:
                self._under_way = None

    async def _start(self, frame: bytearray) -> None:
        size = len(frame) + _REQUEST_BYTES
        if self._peer.raw_tokens:
            self._send_token(sasl.raw_token(self._peer, bytes(frame), self._port.broker), size)
            return
        header = parse(frame)
        call = Call(header.api_key, header.version, header.client_id, self._peer, self._port.broker)
        started = _Started(header, call, size, self._loop.time())
        handler = self._port.handlers.get(header.api_key)
        if handler is None or not header.known:
            if header.api_key != ApiKey.API_VERSIONS:
                self._refuse("unsupported", f"key {header.api_key}, version {header.version}")
                return
            self._outbox.add(versions.unsupported(self._port.handlers.keys()), partial(self._finish, started))
            return
        if self._peer.access is None and header.api_key not in _OPEN:
            self._refuse("unauthenticated", f"key {header.api_key} before SaslAuthenticate")
            return
        access = self._peer.access
        if access is not None and access.owner is not None and header.api_key not in _UNCOUNTED:
            call.flight = access.try_enter() or await self._acquire(access)
        self._under_way = header.api_key
        later = False
        try:
            if header.api_key in _LARGE:
                await self._port.broker.memory.wait_for_room()
            answer = await handler(call, memoryview(frame)[header.body_offset :])
            later = isinstance(answer, Later)
        except BaseException:
            call.release()
            raise
        finally:
            if not later:
                call.flight.end()
        if isinstance(answer, Later):
            coming = asyncio.ensure_future(answer.body)
            if call.flight is not UNCOUNTED:
                # Not when it is sent: earlier answers may delay that for long.
                coming.add_done_callback(lambda _: call.flight.end())
            self._outbox.expect(coming, partial(self._finish, started))
        else:
            self._outbox.add(answer, partial(self._finish, started))

    async def _acquire(self, access: Access) -> Flight:
        """Wait until the key may have another request in flight."""
        self._held_back = True
        self._watch_held()
        try:
            return await access.acquire()
        finally:
            self._held_back = False
            self._watch_held()

    def _give_up(self) -> None:
        """Cancel the request that waits for the limit of its key: it has done nothing yet."""
        if self._held_back:
            self._task.cancel()

    def _finish(self, started: _Started, body: Whole) -> None:
        """Send the answer: all earlier ones are sent."""
        self._served += 1
        self._held_bytes -= started.bytes
        if self._body is not None:
            self._count_requests()
        self._port.metrics.observe(started.header.api_key, self._loop.time() - started.at, started.call.errors)
        # The client may have disconnected in the meantime.
        if body is not None and not self.transport.is_closing():
            self.transport.writelines(framed(started.header, body))
        if started.call.room is not None:
            started.call.release()
        self._closing |= self._peer.rejected
        if self._closing and not len(self._outbox):
            self.transport.close()
        if not self._reading:
            self._watch_held()

    def _send_token(self, token: bytes | None, size: int) -> None:
        """Answer a frame without a header. `token` None: the credentials are wrong."""
        self._held_bytes -= size
        if token is None:
            self._refuse("unauthenticated", "wrong credentials")
            return
        if self.transport.is_closing():
            return
        self.transport.write(len(token).to_bytes(4, "big") + token)

    # -- limits --------------------------------------------------------------------------------------------------------

    def _limit_of(self, api_key: int) -> int:
        if self._peer.access is None:
            return _STRANGER_BYTES
        largest = self._port.max_request_bytes
        return largest if api_key == ApiKey.PRODUCE else min(largest, _PLAIN_BYTES)

    def _watch_held(self) -> None:
        """Pause or resume reading."""
        reading = self._held_bytes <= self._port.max_request_bytes and not self._held_back and not self.early
        if reading is self._reading or self.transport.is_closing():
            return
        self._reading = reading
        if reading:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def pause_arriving(self) -> None:
        self._watch_held()

    def resume_arriving(self) -> None:
        self._watch_held()

    # -- the end -------------------------------------------------------------------------------------------------------

    def _refuse(self, why: str, reason: str) -> None:
        """Close the connection: the protocol has no answer for this error."""
        self._closing = True
        self._port.metrics.refused(why)
        if self._port.may_log(why):
            _log.warning("kafka_connection_refused", why=why, reason=reason, peer=self._peer.address)
        self.transport.close()

    def _failed(self, error: BaseException) -> None:
        """A call raised: a defect. Close the connection, so that the client repeats the request."""
        self._closing = True
        _log.error("kafka_request_failed", exc_info=error)
        self.transport.close()
