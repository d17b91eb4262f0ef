"""What a handler returns, and how it goes out: request id, gzip, HEAD.

A handler returns an `Answer`, or a `Pending`: the engine will call back with the answer. The HTTP/1.1 protocol asks to
be called (`then`) and sends the answer from within the engine's callback. All others await it.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, MutableMapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final, TypeAlias

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
#: Above this, compressing is done in a thread: 64 KiB take about a millisecond.
_GZIP_ON_LOOP_BYTES = 64 * 1024
_GZIP_LEVEL = 4
_GZIP_FORMAT = 31


class Answer:
    """A whole answer: status, body and headers (content-length, request id and gzip are added on the way out).

    `withdraw` is called in place of sending it when its client has gone: what it grants is then nobody's.
    """

    __slots__ = ("body", "content_type", "headers", "status", "withdraw")

    def __init__(
        self,
        body: bytes,
        *,
        status: int = OK,
        content_type: bytes = JSON,
        headers: Headers = (),
        withdraw: Callable[[], None] | None = None,
    ) -> None:
        self.body = body
        self.status = status
        self.content_type = content_type
        self.headers = headers
        self.withdraw = withdraw


class Streamed(Answer):
    """An answer of `length` bytes that is sent as it is read: `body` first, then what `rest` yields. Never compressed.

    `length` None: it has no end that could be known. `patience_s` is how long the client may take for one piece;
    `last_words` are what it finds behind the pieces when it has taken longer. `attach` is given what sends a piece
    past `rest` if that is possible at once; only for while `rest` has nothing to send.
    `takes_body`: `rest` reads the body of the request, and so is who sees that the client leaves.
    To a HEAD: no body and no rest, and the length all the same.
    """

    __slots__ = ("attach", "last_words", "length", "patience_s", "rest", "takes_body")

    def __init__(
        self,
        body: bytes,
        rest: AsyncGenerator[bytes] | None,
        *,
        length: int | None,
        patience_s: float | None = None,
        content_type: bytes,
        status: int = OK,
        headers: Headers = (),
        attach: Callable[[Callable[[bytes], bool]], None] | None = None,
        last_words: Callable[[], bytes] | None = None,
        takes_body: bool = False,
    ) -> None:
        super().__init__(body, status=status, content_type=content_type, headers=headers)
        self.rest = rest
        self.length = length
        self.patience_s = patience_s
        self.attach = attach
        self.last_words = last_words
        self.takes_body = takes_body


#: What a handler returns: the answer, or what will have it.
Outcome: TypeAlias = Answer | Awaitable[Answer]
#: What a pending answer comes to: an answer, an error, or work that takes a task after all.
Result: TypeAlias = Answer | Exception | Coroutine[Any, Any, Answer]


class Pending(Awaitable[Answer]):
    """`finish` makes the result of what the engine has done. It may return a coroutine, where it turns out that
    something must be waited for. `instead`: what takes a task, where the engine turns out to have done nothing.
    """

    __slots__ = ("_finish", "_instead", "_result", "_then")

    def __init__(
        self,
        finish: Callable[[Any], Answer | Coroutine[Any, Any, Answer]],
        instead: Callable[[], Coroutine[Any, Any, Answer]] | None = None,
    ) -> None:
        self._finish = finish
        self._instead = instead
        self._then: Callable[[Result], None] | None = None
        self._result: Result | None = None

    def resolve(self, outcome: Any) -> None:
        """The engine has done it, or failed with an exception. To be called once. Never raises."""
        result: Result
        if isinstance(outcome, Exception):
            result = outcome
        else:
            try:
                result = self._finish(outcome)
            except Exception as error:
                result = error
        if self._then is None:
            self._result = result
        else:
            self._then(result)

    def leave(self) -> None:
        """The engine has done nothing, because something must be waited for. In place of `resolve`; never raises."""
        assert self._instead is not None
        result = self._instead()
        if self._then is None:
            self._result = result
        else:
            self._then(result)

    def then(self, call: Callable[[Result], None]) -> None:
        """`call` is given the result, now or later. It must not raise."""
        if self._result is None:
            self._then = call
        else:
            call(self._result)

    def run(self, work: Coroutine[Any, Any, Any], cancelled: Callable[[], Exception]) -> Pending:
        """Resolve with what `work` returns or raises; with `cancelled()` where it was cancelled."""
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


#: The loop itself would let them be collected.
_running: set[asyncio.Task[Any]] = set()


def _give(waiting: asyncio.Future[Result], result: Result) -> None:
    if not waiting.done():
        waiting.set_result(result)
    else:
        drop(result)  # whoever waited was cancelled


def drop(result: Result) -> None:
    """Nobody will be given it: take back what it grants, do not begin what it would begin."""
    if isinstance(result, Answer):
        if result.withdraw is not None:
            result.withdraw()
    elif not isinstance(result, Exception):
        result.close()


async def awaited(outcome: Outcome) -> Answer:
    """The answer, waited for if it must be."""
    return outcome if isinstance(outcome, Answer) else await outcome


#: On every answer that does not say otherwise itself: nobody keeps it, takes it for anything else, or shows it framed.
PROTECTION: Final[Headers] = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


def with_protection(headers: Headers) -> Headers:
    """An answer's own headers, and those of `PROTECTION` that are not among them."""
    if not headers:
        return PROTECTION
    own = {name for name, _ in headers}
    return [*headers, *(each for each in PROTECTION if each[0] not in own)]


async def send_streamed(answer: Streamed, send: Send, *, request_id: bytes) -> None:
    """Send it piece by piece, as fast as the client takes them. What `rest` raises comes after the status was sent:
    all that is left then is not to complete the answer, and the server below ends the connection or stream.

    Raises TimeoutError when the client takes longer for a piece than it may. `rest` is closed in any case.
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
    """As the transport is given it: in pieces, so that it never holds much of what a client does not take."""
    if len(piece) <= PIECE:
        return (piece,)
    return [piece[at : at + PIECE] for at in range(0, len(piece), PIECE)]


async def _send_body(body: bytes, send: Send) -> None:
    """The whole of it, as fast as the client takes it; others have their turn in between."""
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
    """All headers of an answer that goes out as it is, or has been put into this content coding."""
    headers = [(b"x-request-id", request_id), *with_protection(answer.headers)]
    if coding is not None:
        headers += (b"vary", b"accept-encoding"), (b"content-encoding", coding)
    elif len(answer.body) >= MIN_GZIP_BYTES:
        headers.append((b"vary", b"accept-encoding"))
    if answer.status not in _WITHOUT_BODY:
        headers += (b"content-type", answer.content_type), (b"content-length", b"%d" % len(answer.body))
    return headers


async def compress(answer: Answer, accept_encoding: bytes | None) -> bytes | None:
    """Compress its body where the client takes that and it is worth it. Returns the content coding."""
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
    """Send it. The body of an answer to HEAD is left out by the server below, which keeps its length.

    False: it was withdrawn, because the client has `left`.
    """
    headers = headers_of(answer, request_id, await compress(answer, accept_encoding))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    # Only with its body is it an answer: whether the client is there is asked as late as can be.
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
