"""Heads of requests that a connection has sent before: the same bytes mean the same. Pure.

A client that sends one small request after the other sends the same head each time, but for the length of the body.
Parsing it, and judging what it asks for, costs more than all the rest of such a request. What is kept here is a head
that the parser has taken whole, as it came, without the digits of its content-length, together with what came of it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from broker.api.hot import Target

#: A connection remembers so many heads, of at most so many bytes each; one more, and it begins anew.
MAX_HEADS: Final = 8
MAX_HEAD_BYTES: Final = 2048
#: So much longer than itself a known head may come to be.
MAX_MORE_DIGITS: Final = 6
END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,7})\r\n", re.IGNORECASE)
#: Fields that say how long a message is, otherwise than `_LENGTH` reads it.
_OTHERWISE: Final = re.compile(rb"\r\n(?:transfer-encoding|content-length(?!:[ \t]*[0-9]{1,7}\r\n))", re.IGNORECASE)


class KnownHead(NamedTuple):
    """`front` ends before the digits of the content-length, `back` begins behind them."""

    front: bytes
    back: bytes
    target: Target
    headers: dict[bytes, bytes]


class KnownHeads:
    """Of one connection, by their first line."""

    __slots__ = ("_by_line",)

    def __init__(self) -> None:
        self._by_line: dict[bytes, KnownHead] = {}

    def find(self, data: bytes) -> tuple[KnownHead, bytes] | None:
        """What a whole request begins with, and its body; None: this is not a request with a known head, exactly."""
        known = self._by_line.get(data[: data.find(b"\r\n")])
        if known is None or not data.startswith(known.front):
            return None
        begin = len(known.front)
        end = data.find(b"\r", begin, begin + 8)
        digits = data[begin:end]
        if end < 0 or not digits.isdigit() or not data.startswith(known.back, end):
            return None
        body = data[end + len(known.back) :]
        return (known, body) if len(body) == int(digits) else None

    def learn(self, head: bytes, target: Target, headers: dict[bytes, bytes]) -> None:
        """`head`, with the empty line behind it, was taken, and led to `target`."""
        length = _LENGTH.search(head)
        if length is None or len(head) > MAX_HEAD_BYTES or head.lower().count(b"\r\ncontent-length") > 1:
            return  # of two that are alike one would be told apart from the other later on
        line = head[: head.find(b"\r\n")]
        if len(self._by_line) >= MAX_HEADS and line not in self._by_line:
            self._by_line.clear()
        self._by_line[line] = KnownHead(head[: length.start(1)], head[length.end(1) :], target, headers)


def message_bytes(data: bytes) -> int | None:
    """How long the message is that `data` begins with; None: its head is not whole here, or does not plainly say."""
    end = data.find(END) + len(END)
    if end < len(END) or _OTHERWISE.search(data, 0, end):
        return None
    length = _LENGTH.search(data, 0, end)
    return end + (0 if length is None else int(length[1]))
