"""Watching topics of several cells. A session of the gateway is made of one session in each cell, and its stream merges
their streams.

The id of such a session, `wid`, names the cells and their sessions, so that every gateway of the set can serve it. The
id of an event has the positions in all topics, like the ids of a single cell.

Source: docs/cells.md#the-gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from broker.api import EVENT_STREAM, EVENT_STREAM_HEADERS, PATIENCE_S, RETRY, Request, check_accept, error_event
from broker.cells import PeerUnavailable
from broker.content import Answer, Streamed
from broker.gateway.asking import OK, Asking, Part, collected, refused
from broker.gateway.exchange import Exchange
from broker.gateway.forward import Forwarder, answered, request_front
from broker.gateway.heads import with_body
from broker.gateway.partitions import divided, opened
from broker.live import Position, SessionNotFound, cursor, watch_options

if TYPE_CHECKING:
    from broker.gateway.gateway import Gateway
    from broker.gateway.locating import Locating

_MOST_BYTES: Final = 1 << 20
_WID: Final = "wid_"
#: The separators between the sessions of a wid, and between a cell and its session.
_NEXT: Final = "~"
_OF: Final = "."
#: Events of one cell that may wait for the client. Above this, the cell waits.
_MOST_EVENTS: Final = 4
_END: Final = b"\n\n"
_ERROR: Final = b"event: error\n"


class Piece(NamedTuple):
    """An event of a cell's stream. If `data` is None, the stream has ended, and `error` says why if it failed."""

    cell: int
    data: bytes | None
    error: Exception | None = None


class Watching:
    """The watch sessions of one gateway. Their whole state is in the cells and in the ids."""

    def __init__(self, gateway: Gateway, forwarder: Forwarder, asking: Asking, locating: Locating) -> None:
        self._gateway = gateway
        self._locating = locating
        self._forwarder = forwarder
        self._asking = asking

    # -- sessions ----------------------------------------------------------------------------------------------------

    async def create(self, request: Request) -> Answer:
        """Create a session in each cell that has one of the topics."""
        body = await request.read_body(max_bytes=_MOST_BYTES) or b"{}"
        wanted = _object(body)
        topics = None if wanted is None else wanted.get("topics")
        if (
            wanted is None or not isinstance(topics, dict) or not 1 <= len(topics) <= watch_options.MAX_TOPICS  # pyright: ignore[reportUnknownArgumentType]
        ):
            return (await self._asking.ask(request, 0, body=body)).to_client(request)  # this cell answers the error
        named: dict[str, Any] = {**topics}
        by_cell, asked_for = await divided(self._locating, named, request.headers)
        parts = await self._ask(request, wanted, by_cell)
        if refused(parts) is not None and any("/" in each for each in asked_for):
            self._locating.forget(asked_for)  # the topic may have been made again since its partitions were found
            by_cell, _ = await divided(self._locating, named, request.headers)
            parts = await self._ask(request, wanted, by_cell)
        return self._created(request, named, by_cell, [*parts])

    async def _ask(
        self, request: Request, wanted: dict[str, Any], by_cell: dict[int, dict[str, Any]]
    ) -> Sequence[Part]:
        asked = [self._asking.ask(request, cell, body={**wanted, "topics": its}) for cell, its in by_cell.items()]
        return await request.unless_gone(collected(asked))

    def _created(
        self, request: Request, topics: dict[str, Any], by_cell: dict[int, dict[str, Any]], parts: list[Part]
    ) -> Answer:
        if (refusal := refused(parts)) is not None:
            return refusal.to_client(request)
        answers: list[dict[str, Any]] = [msgspec.json.decode(part.body) for part in parts]
        sessions = [(part.cell, each["wid"].removeprefix(_WID)) for part, each in zip(parts, answers, strict=True)]
        wid = _WID + _NEXT.join(f"{cell}{_OF}{session}" for cell, session in sessions)
        said = {part.cell: each["topics"] for part, each in zip(parts, answers, strict=True)}
        performance = {name: value for each in answers for name, value in each["performance"].items()}
        performance["server_total_ms"] = round(request.elapsed_ms(), 3)
        answer = {
            **answers[0],
            "wid": wid,
            "stream_url": f"/v0/watch/{wid}",
            "topics": opened(topics, by_cell, said),
            "performance": performance,
        }
        return Answer(msgspec.json.encode(answer))

    # -- streams -----------------------------------------------------------------------------------------------------

    async def stream(self, request: Request) -> Answer:
        """The stream of a session: the stream of its only cell, or the merged streams of its cells."""
        check_accept(request)
        sessions = self._sessions(request.values[0])
        if len(sessions) == 1 or request.scope["method"] == "HEAD":
            cell, wid = sessions[0]
            return await self._forwarder.to_cell(request, cell, target=_target(request, wid))
        exchanges: list[Exchange] = []
        try:
            for cell, wid in sessions:
                data = with_body(request_front(request, _target(request, wid)), b"")
                exchanges.append(await self._forwarder.begin(cell, data, changes=False))
            for exchange in exchanges:
                head = await request.unless_gone(exchange.head())
                if head.status != OK:
                    exchanges.remove(exchange)
                    for other in exchanges:
                        other.close()
                    return await answered(request, exchange, head)
        except BaseException:
            for exchange in exchanges:
                exchange.close()
            raise
        rest = self._merged(exchanges, request.headers.get(b"last-event-id", b""))
        first = await anext(rest)  # from here on, closing `rest` ends the streams of the cells
        return Streamed(
            first,
            rest,
            length=None,
            patience_s=PATIENCE_S,
            content_type=EVENT_STREAM,
            headers=EVENT_STREAM_HEADERS,
        )

    def _sessions(self, wid: str) -> list[tuple[int, str]]:
        """The cells of a session, with the id of the session in each. Raises SessionNotFound."""
        found: list[tuple[int, str]] = []
        for each in wid.removeprefix(_WID).split(_NEXT):
            cell, of, session = each.partition(_OF)
            if not of or not cell.isascii() or not cell.isdigit() or int(cell) >= len(self._gateway.upstreams):
                raise SessionNotFound
            found.append((int(cell), _WID + session))
        if not wid.startswith(_WID) or len({cell for cell, _ in found}) < len(found):
            raise SessionNotFound
        return found

    async def _merged(self, exchanges: list[Exchange], last_id: bytes) -> AsyncGenerator[bytes]:
        queue: asyncio.Queue[Piece] = asyncio.Queue(_MOST_EVENTS)
        merging = Merging(cursor.decode(last_id), {exchange.cell for exchange in exchanges})
        readers = [asyncio.create_task(_read(exchange, queue)) for exchange in exchanges]
        try:
            yield RETRY
            while merging.is_open:
                piece = await queue.get()
                event = merging.event(piece)
                if event is not None:
                    yield event
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
            for exchange in exchanges:
                exchange.close()


class Merging:
    """Merges the events of several cells into one stream. Pure.

    Events get an id once every cell has sent one. Before that, the positions in some topics are unknown, and a client
    that resumed from such an id would miss records.
    """

    def __init__(self, positions: dict[str, Position], cells: set[int]) -> None:
        """`positions`: the positions that the client came with."""
        self._positions = dict(positions)
        self._open = set(cells)
        self._silent = set(cells)
        self._last_error: dict[int, bool] = {}

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    def event(self, piece: Piece) -> bytes | None:
        """The event for the client, made from an event of a cell. None if the client gets nothing."""
        cell, data, error = piece
        if data is None:
            self._open.discard(cell)
            self._silent.discard(cell)
            if error is not None:
                self._open.clear()
                return error_event(PeerUnavailable(cell, "none"))
            if not self._last_error.get(cell, False):
                self._open.clear()  # the stream ends
            return None
        if data == RETRY:
            return None
        self._last_error[cell] = data.startswith(_ERROR) and b'"topic":' in data
        begin = data.find(b"\nid: ")
        if begin < 0:
            return data
        end = data.find(b"\n", begin + 1)
        self._positions |= cursor.decode(data[begin + len(b"\nid: ") : end])
        self._silent.discard(cell)
        if self._silent:
            return data[:begin] + data[end:]
        return b"%b\nid: %b%b" % (data[:begin], self._id(), data[end:])

    def _id(self) -> bytes:
        return cursor.encode([cursor.entry(msgspec.json.encode(name), each) for name, each in self._positions.items()])


async def _read(exchange: Exchange, queue: asyncio.Queue[Piece]) -> None:
    """Read the events of one cell, each complete, as fast as they are consumed."""
    buffer = bytearray()
    try:
        async with aclosing(exchange.pieces()) as pieces:
            async for piece in pieces:
                searched = max(0, len(buffer) - 1)
                buffer += piece
                while (end := buffer.find(_END, searched)) >= 0:
                    event = bytes(buffer[: end + len(_END)])
                    del buffer[: end + len(_END)]
                    searched = 0
                    await queue.put(Piece(exchange.cell, event))
    except PeerUnavailable as error:
        await queue.put(Piece(exchange.cell, None, error))
    else:
        await queue.put(Piece(exchange.cell, None))


def _target(request: Request, wid: str) -> bytes:
    path = f"/v0/watch/{wid}".encode()
    return b"%b?%b" % (path, request.query_string) if request.query_string else path


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if isinstance(found, dict) else None  # pyright: ignore[reportUnknownVariableType]
