"""Calls between the cells of a set, over unix sockets that only the user of the broker can open.

A connection carries frames: a length of 4 bytes (little endian), then a MessagePack array. Many calls share a
connection, and answers come in any order.

    [number, method, argument]   a call
    [number, None, None]         the caller no longer waits for that call
    [number, True, result]       an answer
    [number, False, [code, message, detail]]   an error

A call is carried out at most once. Nothing here repeats a call: only the caller knows whether that is safe.

Source: docs/cells.md#calls-between-cells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from broker.cells.relayed import Kind, connect_relayed
from storage import NotReady, ShuttingDown, StorageError, Unavailable

if TYPE_CHECKING:
    from broker.cluster import OwnersFile

_log = structlog.get_logger("broker.cells")

#: The largest frame: the records of the largest request, and room for the rest of the message.
MAX_FRAME_BYTES: Final = 80 << 20
#: The most calls in progress on one connection, including calls that wait for records. Further calls are refused, but
#: the connection is still read: the next frame may cancel a call.
MAX_CALLS: Final = 4096
#: Bytes of unread answers on a connection after which no more calls are read from it.
MAX_UNREAD_BYTES: Final = 8 << 20
CONNECT_S: Final = 5.0

#: Carries out one method. Takes the argument and returns something that MessagePack can hold. A StorageError goes to
#: the caller.
Method = Callable[[Any], Awaitable[Any]]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class PeerUnavailable(Unavailable):
    """Another cell of this broker cannot be reached now, or cannot do it now. Retry after a moment."""

    code = "not_ready"

    def __init__(self, cell: int, outcome: str, message: str = "") -> None:
        super().__init__(message or f"Cell {cell} cannot be reached now.", cell=cell, outcome=outcome)
        #: "none": the call was not sent. "unknown": it may have been carried out.
        self.outcome = outcome  # pyright: ignore[reportAttributeAccessIssue]


class PeerError(StorageError):
    """The error that another cell answered, with its code, message and detail."""

    def __init__(self, code: str, message: str, detail: dict[str, Any]) -> None:
        super().__init__(message, **detail)
        self.code = code  # pyright: ignore[reportAttributeAccessIssue]
        self.outcome = detail.get("outcome", "none")  # pyright: ignore[reportAttributeAccessIssue]


#: The codes of a cell that recovers, stops, or waits for a third one.
_UNAVAILABLE: Final = (NotReady.code, ShuttingDown.code)


def _error(cell: int, code: str, message: str, detail: dict[str, Any]) -> StorageError:
    """The error that this cell answered."""
    if code in _UNAVAILABLE:
        return PeerUnavailable(detail.get("cell", cell), detail.get("outcome", "none"), message)
    return PeerError(code, message, detail)


class PeerServer:
    """Accepts and carries out calls from other cells."""

    def __init__(self, path: Path, methods: Mapping[str, Method], may_answer: Callable[[], bool] | None = None) -> None:
        """`path`: the path of the socket. A file left there by an earlier process is replaced. `may_answer`: whether an
        answer that was computed may be sent; None: always."""
        self._path = path
        self._may_answer = may_answer
        self._methods = methods
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to accept calls."""
        with suppress(FileNotFoundError):
            self._path.unlink()
        self._server = await asyncio.start_unix_server(self._connected, str(self._path), limit=1 << 20)
        self._path.chmod(0o600)

    @property
    def is_started(self) -> bool:
        """Whether it accepts calls."""
        return self._server is not None and self._server.is_serving()

    async def stop(self) -> None:
        """Accept no more calls, and cancel those in progress."""
        if self._server is None:
            return
        self._server.close()
        for task in [*self._connections]:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        with suppress(FileNotFoundError):
            self._path.unlink()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        calls: dict[int, asyncio.Task[None]] = {}
        writer.transport.set_write_buffer_limits(high=MAX_UNREAD_BYTES)
        try:
            while (frame := await _read_frame(reader)) is not None:
                number, method, argument = frame
                if method is None:
                    if (call := calls.get(number)) is not None:
                        call.cancel()
                    continue
                if len(calls) >= MAX_CALLS:
                    refusal = "Too many calls from this cell are in progress."
                    _write_frame(writer, [number, False, ["not_ready", refusal, {"outcome": "none"}]])
                    await writer.drain()
                    continue
                await writer.drain()
                call = asyncio.create_task(self._answer(writer, number, method, argument))
                calls[number] = call

                def ended(_: object, number: int = number) -> None:
                    calls.pop(number, None)

                call.add_done_callback(ended)
        except (OSError, ValueError, asyncio.CancelledError) as error:
            if isinstance(error, ValueError):
                _log.error("peer_frame_refused", reason=str(error))
        finally:
            self._connections.discard(task)
            for call in [*calls.values()]:
                call.cancel()
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, number: int, method: str, argument: Any) -> None:
        try:
            handler = self._methods[method]
            answer = [number, True, await handler(argument)]
        except StorageError as error:
            answer = [number, False, [error.code, error.message, {"outcome": error.outcome, **error.detail}]]
        except Exception as error:
            _log.exception("peer_call_failed", method=method)
            answer = [number, False, ["internal", f"{method} failed: {type(error).__name__}", {"outcome": "unknown"}]]
        if self._may_answer is None or self._may_answer():
            _write_frame(writer, answer)
        else:
            writer.transport.abort()


class Peers:
    """The other cells of the set. Used only on one event loop."""

    def __init__(
        self,
        paths: Mapping[int, Path],
        owners: OwnersFile | None = None,
        may_call: Callable[[], bool] | None = None,
    ) -> None:
        """`paths`: the socket of each cell. The first call to a cell opens the connection. `owners`: in a cluster,
        which cells are at other nodes. `may_call`: whether the process may call other cells now; None: always."""
        self._may_call = may_call
        self._peers = {cell: _Peer(cell, path, owners) for cell, path in paths.items()}

    async def call(self, cell: int, method: str, argument: Any, *, timeout_s: float = 30.0) -> Any:
        """Call a method of another cell and return its result.

        Raises PeerUnavailable, whose `outcome` says whether the call may have been carried out, and PeerError.
        """
        if self._may_call is not None and not self._may_call():
            raise PeerUnavailable(cell, "none")
        return await self._peers[cell].call(method, argument, timeout_s)

    async def close(self) -> None:
        """Close all connections; calls in progress raise PeerUnavailable."""
        for peer in self._peers.values():
            await peer.close()


class _Peer:
    """The connection to one cell."""

    def __init__(self, cell: int, path: Path, owners: OwnersFile | None) -> None:
        self._cell = cell
        self._path = path
        self._owners = owners
        #: Whether the current connection goes through the relay.
        self._is_relayed = False
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._connecting = asyncio.Lock()
        #: The attempts to connect so far: calls that waited for one share its failure.
        self._attempts = 0
        #: Calls on the current connection that have no answer yet.
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._next = 0

    async def call(self, method: str, argument: Any, timeout_s: float) -> Any:
        writer = self._writer
        if writer is None or writer.is_closing() or self._has_moved():
            writer = await self._connect()
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        try:
            async with asyncio.timeout_at(until):
                # A cell that hangs reads nothing: what is not sent yet stays with the caller, who gives it up.
                while writer.transport.get_write_buffer_size() > MAX_UNREAD_BYTES and not writer.is_closing():
                    await writer.drain()
        except (OSError, TimeoutError):
            raise PeerUnavailable(self._cell, "none") from None
        if writer is not self._writer or writer.is_closing():
            raise PeerUnavailable(self._cell, "none")
        waiting = self._waiting
        self._next = number = self._next + 1
        future = waiting[number] = loop.create_future()
        try:
            _write_frame(writer, [number, method, argument])
            async with asyncio.timeout_at(until):
                await writer.drain()
                return await future
        except TimeoutError:
            raise PeerUnavailable(self._cell, "unknown") from None
        except OSError:
            raise PeerUnavailable(self._cell, "unknown") from None
        finally:
            del waiting[number]
            if (future.cancelled() or not future.done()) and not writer.is_closing():
                _write_frame(writer, [number, None, None])

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    def _has_moved(self) -> bool:
        """Whether the cell went to another node, or came from one, behind the connection."""
        return self._owners is not None and self._owners.is_elsewhere(self._cell) != self._is_relayed

    async def _connect(self) -> asyncio.StreamWriter:
        before = self._attempts
        async with self._connecting:
            if self._writer is not None and not self._writer.is_closing():
                if not self._has_moved():
                    return self._writer
                self._writer.transport.abort()
            elif self._attempts > before:
                raise PeerUnavailable(self._cell, "none")
            try:
                async with asyncio.timeout(CONNECT_S):
                    reader, writer = await self._open()
            except (OSError, TimeoutError):
                self._attempts += 1
                raise PeerUnavailable(self._cell, "none") from None
            writer.transport.set_write_buffer_limits(high=MAX_UNREAD_BYTES)
            self._writer, self._waiting = writer, {}
            reading = self._read(reader, writer, self._waiting)
            self._reading = asyncio.create_task(reading, name=f"peer-{self._cell}")
            return writer

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self._is_relayed = self._owners is not None and self._owners.is_elsewhere(self._cell)
        if not self._is_relayed:
            return await asyncio.open_unix_connection(str(self._path), limit=1 << 20)
        connection = await connect_relayed(self._path.parent, self._cell, Kind.PEER)
        return await asyncio.open_unix_connection(sock=connection, limit=1 << 20)

    async def _read(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, waiting: dict[int, asyncio.Future[Any]]
    ) -> None:
        try:
            while (frame := await _read_frame(reader)) is not None:
                number, is_result, value = frame
                future = waiting.get(number)
                if future is None or future.done():
                    continue  # the caller has gone
                if is_result:
                    future.set_result(value)
                else:
                    future.set_exception(_error(self._cell, *value))
        except (OSError, ValueError) as error:
            _log.warning("peer_connection_lost", cell=self._cell, reason=str(error))
        finally:
            writer.close()
            for future in waiting.values():
                if not future.done():
                    future.set_exception(PeerUnavailable(self._cell, "unknown"))


async def _read_frame(reader: asyncio.StreamReader) -> tuple[Any, Any, Any] | None:
    """Read the next frame. None at the end of the connection. Raises ValueError for a frame that is malformed."""
    try:
        length = int.from_bytes(await reader.readexactly(4), "little")
        if length > MAX_FRAME_BYTES:
            raise ValueError(f"a frame of {length} bytes")
        frame = _decode(await reader.readexactly(length))
    except asyncio.IncompleteReadError:
        return None
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    match frame:
        case [number, method, argument]:
            return number, method, argument
        case _:
            raise ValueError("a frame that is not an array of 3")


def _write_frame(writer: asyncio.StreamWriter, frame: list[Any]) -> None:
    encoded = _encode(frame)
    writer.write(len(encoded).to_bytes(4, "little") + encoded)
