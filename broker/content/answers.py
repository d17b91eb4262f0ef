"""The answers that handlers return, and how they are sent: request id, gzip, HEAD.

A handler returns an `Answer`, a `Pending` or a coroutine. The engine resolves a `Pending` later. The HTTP/1.1 protocol
registers a callback with it (`then`) and sends the answer from within the engine's callback. All others await it.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, MutableMapping, Sequence
from contextlib import aclosing
from functools import partial
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

    If the client has gone, `withdraw` is called instead of sending it: it gives back leases and the like.
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
