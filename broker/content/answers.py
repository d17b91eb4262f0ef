"""Whole answers, and how they are sent: request id, gzip, HEAD."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeAlias

import msgspec

from broker.content.accept import accepts_gzip
from broker.memory import PIECE, STRIDE

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

OK: Final = 200
CREATED: Final = 201
NO_CONTENT: Final = 204
PARTIAL_CONTENT: Final = 206
NOT_MODIFIED: Final = 304
TEMPORARY_REDIRECT: Final = 307

JSON: Final = b"application/json"

_WITHOUT_BODY = (NO_CONTENT, NOT_MODIFIED)

#: Below this, gzip costs more than it saves.
MIN_GZIP_BYTES = 1024
#: Larger bodies are compressed on a thread: 64 KiB take about a millisecond.
_GZIP_ON_LOOP_BYTES = 64 * 1024
_GZIP_LEVEL = 4
_GZIP_FORMAT = 31


class _Body(msgspec.Struct, eq=False):
    body: bytes


class Answer(_Body, kw_only=True, eq=False):
    """A whole answer: status, body and headers (content-length, request id and gzip are added when it is sent).

    If the client has gone, `withdraw` is called instead of sending it: it gives back leases, for example.
    """

    status: int = OK
    content_type: bytes = JSON
    headers: Headers = ()
    withdraw: Callable[[], None] | None = None


class _Rest(Answer, eq=False):
    rest: AsyncGenerator[bytes] | None


class Streamed(_Rest, kw_only=True, eq=False):
    """An answer of `length` bytes that is sent while it is read: `body`, then the pieces of `rest`. Never compressed.

    `length` None: the length is not known. `patience_s` is how long the client may take for one piece; if it takes
    longer, `last_words` are sent after the pieces. `attach` receives a function that sends a piece without `rest`, if
    that is possible at once; it may be called only while `rest` has nothing to send.
    `takes_body`: `rest` reads the body of the request, so `rest` also notices when the client leaves.
    The answer to a HEAD has no body and no rest, but the same length.
    """

    length: int | None
    patience_s: float | None = None
    attach: Callable[[Callable[[bytes], bool]], None] | None = None
    last_words: Callable[[], bytes] | None = None
    takes_body: bool = False


#: Default headers of every answer: do not cache it, do not guess its type, do not show it in a frame.
PROTECTION: Final[Headers] = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


def with_protection(headers: Headers) -> Headers:
    """An answer's own headers, and the headers of `PROTECTION` that it does not set itself."""
    if not headers:
        return PROTECTION
    own = {name for name, _ in headers}
    return [*headers, *(each for each in PROTECTION if each[0] not in own)]


async def send_streamed(answer: Streamed, send: Send, *, request_id: bytes) -> None:
    """Send the answer piece by piece, as fast as the client reads. If `rest` raises, the status has already been sent:
    the answer stays incomplete, and the server below ends the connection or stream.

    Raises TimeoutError when the client takes too long for a piece. `rest` is closed in any case.
    """
    headers = [(b"x-request-id", request_id), *with_protection(answer.headers), (b"content-type", answer.content_type)]
    if answer.length is not None:
        headers.append((b"content-length", b"%d" % answer.length))
    async with aclosing(answer.rest or _nothing()) as rest:
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        if answer.rest is None:
            await _send_body(answer.body, send)
            return
        for part in _parts(answer.body):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        async for piece in rest:
            for part in _parts(piece):
                async with asyncio.timeout(answer.patience_s):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _parts(piece: bytes) -> Sequence[bytes]:
    """Split a piece for the transport, so that the transport never buffers much for a client that does not read."""
    if len(piece) <= PIECE:
        return (piece,)
    return [piece[at : at + PIECE] for at in range(0, len(piece), PIECE)]


async def _send_body(body: bytes, send: Send) -> None:
    """Send a whole body, as fast as the client reads it; other tasks run in between."""
    at, number = 0, 0
    while len(body) - at > PIECE:
        await send({"type": "http.response.body", "body": body[at : at + PIECE], "more_body": True})
        at += PIECE
        number += 1
        if not number % STRIDE:
            await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": body[at:] if at else body})


async def _nothing() -> AsyncGenerator[bytes]:
    return
    yield b""


def _stays() -> bool:
    return False


def headers_of(answer: Answer, request_id: bytes, coding: bytes | None = None) -> list[tuple[bytes, bytes]]:
    """All headers of an answer. `coding` is the content coding of its body; None: the body is sent as it is."""
    headers = [(b"x-request-id", request_id), *with_protection(answer.headers)]
    if coding is not None:
        headers += (b"vary", b"accept-encoding"), (b"content-encoding", coding)
    elif len(answer.body) >= MIN_GZIP_BYTES:
        headers.append((b"vary", b"accept-encoding"))
    if answer.status not in _WITHOUT_BODY:
        headers += (b"content-type", answer.content_type), (b"content-length", b"%d" % len(answer.body))
    return headers


async def compress(answer: Answer, accept_encoding: bytes | None) -> bytes | None:
    """Compress the body if the client accepts that and it saves bytes. Returns the content coding."""
    if len(answer.body) < MIN_GZIP_BYTES or accept_encoding is None or not accepts_gzip(accept_encoding):
        return None
    body, answer.body = answer.body, b""
    answer.body = await _gzipped(body)
    return b"gzip"


async def send_answer(
    answer: Answer,
    send: Send,
    *,
    request_id: bytes,
    accept_encoding: bytes | None,
    left: Callable[[], bool] = _stays,
) -> bool:
    """Send the answer. For a HEAD, the server below leaves out the body and keeps the length.

    Returns False if the answer was withdrawn, because the client had `left`.
    """
    headers = headers_of(answer, request_id, await compress(answer, accept_encoding))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    # The check for the client comes as late as possible: after this, the answer can no longer be withdrawn.
    if answer.withdraw is not None and left():
        answer.withdraw()
        return False
    await _send_body(answer.body, send)
    return True


async def _gzipped(body: bytes) -> bytes:
    if len(body) <= _GZIP_ON_LOOP_BYTES:
        return _gzip(body)
    return await asyncio.to_thread(_gzip, body)


def _gzip(body: bytes) -> bytes:
    return zlib.compress(body, _GZIP_LEVEL, _GZIP_FORMAT)
