"""Reads a body and checks its media type, size and gzip, in that order.

Sizes are counted while reading, so that a body without a length, or a small gzip of a huge body, is stopped early.

Source: docs/reference/errors.md#order-of-checks.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping

from broker.content import BodyTooSlow, Message, PayloadTooLarge, Receive, UnsupportedMediaType, inflate
from broker.memory import BodyRoom
from broker.net import Progress, Quota
from storage import InvalidRequest

_JSON_TYPE = re.compile(rb"\s*application/json\s*(;.*)?", re.IGNORECASE | re.DOTALL)
#: Larger bodies are decompressed on a thread: they may grow a thousandfold.
_GUNZIP_ON_LOOP_BYTES = 2048
#: The highest ratio by which deflate can expand.
_MOST_GROWTH = 1032
#: The size of a gzip member's length field, at its end (RFC 1952 §2.3.1).
_LENGTH_BYTES = 4


def is_json_type(content_type: bytes) -> bool:
    """Whether a Content-Type is application/json, with or without parameters."""
    return content_type == b"application/json" or _JSON_TYPE.fullmatch(content_type) is not None


async def read_body(
    headers: Mapping[bytes, bytes],
    receive: Receive,
    max_bytes: int,
    pace: Quota,
    is_taken: Callable[[bytes], bool],
    room: BodyRoom,
) -> bytes | None:
    """The body, decompressed; b"" if there is none; None if the client left in the middle of it. `is_taken` decides
    whether a Content-Type is accepted.

    Raises UnsupportedMediaType, PayloadTooLarge, BodyTooSlow (slower than `pace`), InvalidRequest (bad gzip),
    Overloaded (no memory for it in `room`). A refused body is not read to its end here: the server below drops the
    rest.
    """
    content_type = headers.get(b"content-type")
    typed = content_type is not None and is_taken(content_type)
    length = _declared_length(headers)
    if length and not typed:
        raise UnsupportedMediaType
    if length > max_bytes:
        raise PayloadTooLarge(max_bytes)
    loop = asyncio.get_running_loop()
    progress = Progress(pace, loop.time())
    message = await _next(receive, progress)
    if message["type"] == "http.disconnect":
        return None
    body: bytes = message.get("body", b"")
    if message.get("more_body", False):
        rest = await _read_on(body, typed, receive, max_bytes, progress, room)
        if rest is None:
            return None
        body = rest
    if body and not typed:
        raise UnsupportedMediaType
    if len(body) > max_bytes:
        raise PayloadTooLarge(max_bytes)
    coding = headers.get(b"content-encoding")
    if coding is None or not body:
        return body
    return await _decoded(body, coding, max_bytes, room)


async def pieces(receive: Receive, pace: Quota) -> AsyncGenerator[bytes | None]:
    """The pieces of a body as they arrive, for callers that process them meanwhile; None if the client left.

    Raises BodyTooSlow. The pace counts only the time of waiting for pieces, not that of processing them.
    """
    loop = asyncio.get_running_loop()
    while True:
        message = await _next(receive, Progress(pace, loop.time()))
        if message["type"] == "http.disconnect":
            yield None
            return
        if message.get("body"):
            yield message["body"]
        if not message.get("more_body", False):
            return


def _declared_length(headers: Mapping[bytes, bytes]) -> int:
    value = headers.get(b"content-length", b"0")
    return int(value) if value.isdigit() else 0


async def _next(receive: Receive, progress: Progress) -> Message:
    """The next message. Raises BodyTooSlow."""
    try:
        async with asyncio.timeout_at(progress.deadline()):
            return await receive()
    except TimeoutError:
        raise BodyTooSlow from None


async def _read_on(
    first: bytes, typed: bool, receive: Receive, max_bytes: int, progress: Progress, room: BodyRoom
) -> bytes | None:
    parts = [first]
    got = len(first)
    while True:
        if got and not typed:
            raise UnsupportedMediaType
        if got > max_bytes:
            raise PayloadTooLarge(max_bytes)
        if await room.grow(got):
            progress.begin_anew(asyncio.get_running_loop().time())
        progress.moved(len(parts[-1]), asyncio.get_running_loop().time())
        message = await _next(receive, progress)
        if message["type"] == "http.disconnect":
            return None
        part: bytes = message.get("body", b"")
        parts.append(part)
        got += len(part)
        if not message.get("more_body", False):
            return b"".join(parts)


async def _decoded(body: bytes, coding: bytes, max_bytes: int, room: BodyRoom) -> bytes:
    name = coding.strip().lower()
    if name in (b"", b"identity"):
        return body
    if name not in (b"gzip", b"x-gzip"):
        raise UnsupportedMediaType("Content-Encoding: only gzip is supported.")
    if len(body) <= _GUNZIP_ON_LOOP_BYTES:
        return gunzip(body, max_bytes)
    most = min(max_bytes, len(body) * _MOST_GROWTH)
    # The last four bytes give the length of the last member, which is mostly the only one.
    declared = int.from_bytes(body[-_LENGTH_BYTES:], "little")
    if declared < most:
        try:
            return await _unpacked(body, declared, room)
        except PayloadTooLarge:
            pass  # the body is longer than that: hold room for the maximum
    return await _unpacked(body, most, room, max_bytes)


async def _unpacked(body: bytes, most: int, room: BodyRoom, max_bytes: int | None = None) -> bytes:
    """Decompress with room for `most` bytes. Raises PayloadTooLarge beyond that or beyond `max_bytes`; Overloaded."""
    unpacking = await room.unpack(most)
    size: int | None = None
    try:
        unpacked = await asyncio.to_thread(gunzip, body, most if max_bytes is None else max_bytes)
        size = len(unpacked)
        return unpacked
    finally:
        room.unpacked(unpacking, size)


def gunzip(body: bytes, max_bytes: int) -> bytes:
    """Decompress all members of a gzip stream. Raises PayloadTooLarge beyond `max_bytes`, InvalidRequest if damaged."""
    try:
        return inflate.gunzip(body, max_bytes)
    except inflate.TooLarge:
        raise PayloadTooLarge(max_bytes) from None
    except inflate.TooManyMembers as error:
        raise InvalidRequest(f"body: {error}; send it as one.", field="body") from None
    except inflate.Damaged:
        raise InvalidRequest("body: not valid gzip, although Content-Encoding is gzip.", field="body") from None
