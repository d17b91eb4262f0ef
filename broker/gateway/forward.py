"""Forwards a request to one cell and returns its answer. Bodies are passed on piece by piece as they arrive.

A request is sent again only if the cell answered `not_mine`, or if no connection could be opened, so that nothing was
sent. Every other failure is answered with 503 and an `outcome`.

Source: docs/cells.md#the-gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from broker.api import ClientGone, Request
from broker.auth import READ, WRITE
from broker.cells import PeerUnavailable
from broker.content import Answer, Streamed
from broker.gateway.exchange import Exchange
from broker.gateway.heads import NOT_MINE, WITHOUT_BODY, Head, framed, front, with_body
from broker.memory import SMALL

if TYPE_CHECKING:
    from broker.api import Operation
    from broker.gateway.gateway import Gateway

#: How many `not_mine` answers a request follows.
MAX_FOLLOWED: Final = 2
#: Bodies up to this size are collected, so that they can be sent again after `not_mine`.
MOST_COLLECTED: Final = SMALL
#: The largest body of a `not_mine` answer.
_MOST_OF_REFUSAL: Final = 64 * 1024


class _Detail(msgspec.Struct):
    cell: int | None = None


class _Error(msgspec.Struct):
    detail: _Detail = msgspec.field(default_factory=_Detail)


class _Refusal(msgspec.Struct):
    error: _Error = msgspec.field(default_factory=_Error)


_refusal = msgspec.json.Decoder(_Refusal)


def cell_in(body: bytes) -> int | None:
    """The cell that a `not_mine` answer names."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        return _refusal.decode(body).error.detail.cell
    return None


class Forwarder:
    """Forwards the requests of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def to_topic(self, request: Request, topic: str) -> Answer:
        """Forward the request to the cell that has the topic. Raises PeerUnavailable, ClientGone, BodyTooSlow."""
        return await self._forward(request, self._gateway.owners.cell(topic), topic)

    async def to_cell(self, request: Request, cell: int, *, target: bytes | None = None) -> Answer:
        """Forward the request to that cell. `target` replaces the client's target. Raises like `to_topic`."""
        return await self._forward(request, cell, None, target)

    async def to_any(self, request: Request) -> Answer:
        """Forward the request to the first cell that accepts a connection. Raises like `to_topic`."""
        for cell in self._gateway.upstreams[:-1]:
            try:
                link = await cell.link()
            except PeerUnavailable:
                continue
            link.release()
            return await self.to_cell(request, cell.number)
        return await self.to_cell(request, len(self._gateway.upstreams) - 1)

    async def begin(self, cell: int, data: bytes, *, changes: bool, bodiless: bool = False) -> Exchange:
        """Send `data`, the beginning of a request. If it raises PeerUnavailable, nothing was sent."""
        link = await self._gateway.upstreams[cell].link()
        exchange = Exchange(link, cell, changes=changes, bodiless=bodiless)
        exchange.write(data)
        return exchange

    # -- the way there -----------------------------------------------------------------------------------------------

    async def _forward(self, request: Request, cell: int, topic: str | None, target: bytes | None = None) -> Answer:
        head = request_front(request, target)
        pieces = request.pieces()
        try:
            start, is_whole = await _start_of(pieces)
            if is_whole:
                return await self._whole(request, cell, topic, with_body(head, start))
            return await self._in_pieces(request, cell, topic, head, start, pieces)
        except BaseException:
            await pieces.aclose()
            raise

    async def _whole(self, request: Request, cell: int, topic: str | None, data: bytes) -> Answer:
        """Send a request whose body has arrived completely."""
        for left in range(MAX_FOLLOWED, -1, -1):
            exchange = await self.begin(cell, data, changes=changes(request.operation), bodiless=_is_head(request))
            try:
                head = await request.unless_gone(exchange.head())
                if head.status != NOT_MINE or topic is None:
                    return await answered(request, exchange, head)
                named = cell_in(await exchange.body(_MOST_OF_REFUSAL))
            except BaseException:
                exchange.close()
                raise
            if not self._gateway.owners.learn(topic, named, cell) or not left:
                break
            cell = self._gateway.owners.cell(topic)
        raise PeerUnavailable(cell, "none")

    async def _in_pieces(
        self, request: Request, cell: int, topic: str | None, front: bytes, start: bytes, pieces: AsyncGenerator[bytes]
    ) -> Answer:
        """Send a request while its body still arrives. The cell may answer before the end of the body."""
        head, is_chunked = framed(front, request.headers)
        exchange = await self.begin(cell, head, changes=changes(request.operation))
        exchange.is_sending = True
        sending = asyncio.create_task(_send(exchange, start, pieces, chunked=is_chunked))
        answering = asyncio.create_task(exchange.head())
        try:
            await asyncio.wait((sending, answering), return_when=asyncio.FIRST_COMPLETED)
            if not answering.done() and sending.exception() is None:
                # The whole body was sent.
                answer_head = await request.unless_gone(exchange.head())
            elif answering.done():
                answer_head = answering.result()
            else:
                raise sending.exception() or AssertionError
            if answer_head.status == NOT_MINE and topic is not None:
                self._gateway.owners.learn(topic, cell_in(await exchange.body(_MOST_OF_REFUSAL)), cell)
                raise PeerUnavailable(cell, "none")  # the body was not kept: the client has to send it again
            answer = await answered(request, exchange, answer_head)
        except BaseException:
            sending.cancel()
            exchange.close()
            raise
        finally:
            answering.cancel()
        if isinstance(answer, Streamed) and answer.rest is not None and not sending.done():
            answer.rest = await _primed(_with_body(answer.rest, sending, exchange))
            answer.takes_body = True
        else:
            sending.cancel()
        return answer


async def answered(request: Request, exchange: Exchange, head: Head) -> Answer:
    """The answer for the client, made from the answer of the cell.

    A small body is read first: a cell sends it behind its head, and may be killed in between. The client then gets an
    error with an `outcome`, and no answer that ends too early. Other bodies are read while they are sent.
    """
    identity = head.header(b"x-request-id")
    if identity:
        request.answered_as(identity)
    if head.status in WITHOUT_BODY:
        exchange.end()
        return Answer(b"", status=head.status, headers=head.shared())
    body, rest = b"", None
    if _is_head(request):
        exchange.end()
    elif head.length is not None and head.length <= SMALL and not exchange.is_sending:
        body = await request.unless_gone(exchange.body(SMALL))
    else:
        rest = await _primed(exchange.pieces())
    return Streamed(
        body,
        rest,
        length=head.length,
        status=head.status,
        headers=head.shared(),
        content_type=head.header(b"content-type", b"application/octet-stream"),
    )


def request_front(request: Request, target: bytes | None = None) -> bytes:
    """The head of the request to a cell, without the fields that frame the body."""
    scope: Any = request.scope
    if target is None:
        query: bytes = request.query_string
        path: bytes = scope.get("raw_path") or scope["path"].encode()
        target = b"%b?%b" % (path, query) if query else path
        if not target.startswith(b"/"):
            target = b"/" + target.partition(b"://")[2].partition(b"/")[2]
    return front(scope["method"].encode(), target, list(request.headers.items()))


def changes(operation: Operation | None) -> bool:
    """Whether a request for this operation may change something. A GET may, if it needs more than to read: consumers
    read and commit, and workers claim jobs."""
    if operation is None:
        return True
    scopes = operation.rule.scopes
    return bool(scopes & WRITE) if operation.method == "GET" else not scopes <= READ


def _is_head(request: Request) -> bool:
    return request.scope["method"] == "HEAD"


async def _primed(rest: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Run the generator to its first piece, which is empty. After that, closing the generator ends the exchange."""
    await anext(rest)
    return rest


async def _start_of(pieces: AsyncGenerator[bytes]) -> tuple[bytes, bool]:
    """Read the first bytes of a body. Returns them, and whether they are the whole body."""
    start: list[bytes] = []
    size = 0
    async for piece in pieces:
        start.append(piece)
        size += len(piece)
        if size > MOST_COLLECTED:
            return b"".join(start), False
    return b"".join(start), True


async def _send(exchange: Exchange, start: bytes, pieces: AsyncGenerator[bytes], *, chunked: bool) -> None:
    """Send the body as fast as the cell reads it. If the client goes away, close the connection to the cell."""
    try:
        exchange.write(_chunk(start) if chunked else start)
        async for piece in pieces:
            await exchange.drain()
            exchange.write(_chunk(piece) if chunked else piece)
        if chunked:
            exchange.write(b"0\r\n\r\n")
        exchange.is_sending = False
    except ClientGone:
        exchange.close()
        exchange.lost()
        raise


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


async def _with_body(
    rest: AsyncGenerator[bytes], sending: asyncio.Task[None], exchange: Exchange
) -> AsyncGenerator[bytes]:
    """The answer, while the body is still being sent. When the answer ends, the rest of the body is not read."""
    try:
        yield b""
        async for piece in rest:
            yield piece
    finally:
        sending.cancel()
        exchange.close()
        await rest.aclose()
