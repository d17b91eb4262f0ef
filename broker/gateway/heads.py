"""Heads of messages between the gateway and a cell: which fields are forwarded, and how a body is framed. Pure.

A cell runs this same server, so its messages are well formed. One that is not is treated as a broken connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

END: Final = b"\r\n\r\n"
#: Fields that belong to one connection (RFC 9110 §7.6.1), and the fields that frame a body. They are not forwarded.
_OF_A_CONNECTION: Final = frozenset(
    [
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
        b"expect",
        b"content-length",
    ]
)
#: Fields of requests that are not forwarded either: the gateway checks pages of other sites (`broker.content.sites`).
_DECIDED: Final = frozenset([b"origin", b"sec-fetch-site", *_OF_A_CONNECTION])
#: Fields of answers that are not forwarded either: the gateway writes its own.
_WRITTEN: Final = frozenset([b"date", b"x-request-id", b"content-type", *_OF_A_CONNECTION])
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]+)\r\n", re.IGNORECASE)
#: Statuses of answers without a body (RFC 9112 §6.3).
WITHOUT_BODY: Final = (204, 304)
NOT_MINE: Final = 421
MAX_HEAD_BYTES: Final = 64 * 1024


class BadAnswer(Exception):
    """A cell sent bytes that are not a valid answer."""


class Head(NamedTuple):
    """The head of an answer. `length` is None if the body is chunked. `lasts`: the connection can be used again."""

    size: int
    status: int
    headers: list[tuple[bytes, bytes]]
    length: int | None
    lasts: bool

    def header(self, name: bytes, default: bytes = b"") -> bytes:
        return next((value for each, value in self.headers if each == name), default)

    def shared(self) -> list[tuple[bytes, bytes]]:
        """The headers that are forwarded to the client unchanged."""
        return [each for each in self.headers if each[0] not in _WRITTEN]


def front(method: bytes, target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The head of a request to a cell, without the fields that frame the body. `headers`: the client's, in lower
    case."""
    dropped = _DECIDED | _named(headers)
    lines = [b"%b: %b\r\n" % each for each in headers if each[0] not in dropped]
    return b"%b %b HTTP/1.1\r\n%b" % (method, target, b"".join(lines))


def with_body(front: bytes, body: bytes) -> bytes:
    """A complete request."""
    return b"%bcontent-length: %d\r\n\r\n%b" % (front, len(body), body)


def framed(front: bytes, headers: Mapping[bytes, bytes]) -> tuple[bytes, bool]:
    """The head of a request whose body follows in pieces, and whether the body is chunked, because its length is
    unknown."""
    length = headers.get(b"content-length", b"")
    if length.isdigit() and b"transfer-encoding" not in headers:
        return b"%bcontent-length: %b\r\n\r\n" % (front, length), False
    return front + b"transfer-encoding: chunked\r\n\r\n", True


def _named(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """The fields that the client's Connection header names."""
    return frozenset(
        option.strip().lower() for name, value in headers if name == b"connection" for option in value.split(b",")
    )


def length_of(data: bytes, end: int) -> int | None:
    """The length of the body of an answer whose head ends at `end`. None if the head does not say."""
    length = _LENGTH.search(data, 0, end)
    return None if length is None else int(length[1])


def head_of(data: bytes | bytearray, *, bodiless: bool = False) -> Head | None:
    """The head at the start of `data`. None if it is incomplete. `bodiless`: it answers a HEAD. Raises BadAnswer."""
    end = data.find(END)
    if end < 0:
        if len(data) > MAX_HEAD_BYTES:
            raise BadAnswer("a head without an end")
        return None
    line, *lines = bytes(data[:end]).split(b"\r\n")
    if not line.startswith(b"HTTP/1.1 ") or not line[9:12].isdigit():
        raise BadAnswer("no status line")
    status = int(line[9:12])
    fields = [each.partition(b":") for each in lines]
    headers = [(name.lower(), value.strip(b" ")) for name, _, value in fields]
    found = dict(headers)
    given = found.get(b"content-length", b"")
    length = int(given) if given.isdigit() else None
    if status in WITHOUT_BODY:
        length = 0
    elif length is None and not bodiless and found.get(b"transfer-encoding") != b"chunked":
        raise BadAnswer("an answer without a length")
    return Head(end + len(END), status, headers, length, found.get(b"connection", b"") != b"close")


class Chunks:
    """Decodes a chunked body (RFC 9112 §7.1). Pure."""

    __slots__ = ("_buffer", "_left", "is_complete")

    def __init__(self) -> None:
        self._buffer: bytes = b""
        #: Bytes that are still missing from the chunk, with its line end. 0: a size line comes next.
        self._left = 0
        self.is_complete = False

    def feed(self, data: bytes) -> bytes:
        """Decode more data and return the bytes of the body in it. Raises BadAnswer."""
        parts: list[bytes] = []
        if self._buffer:
            data = self._buffer + data
        at = 0
        while at < len(data) and not self.is_complete:
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                # The last two missing bytes are the line end.
                parts.append(piece[: max(0, self._left - 2)])
                self._left -= len(piece)
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                break
            try:
                size = int(data[at:end].partition(b";")[0], 16)
            except ValueError:
                raise BadAnswer("a chunk without a size") from None
            if size:
                self._left, at = size + 2, end + 2
            elif len(data) >= end + 4:  # our server sends no trailers
                self.is_complete, at = True, end + 4
            else:
                break
        self._buffer = data[at:]
        return b"".join(parts)
