"""JSON objects behind one another, as they come in pieces. Pure.

Objects may stand next to each other or have space between them. An object is given as soon as its last brace is there.
"""

from __future__ import annotations

import re
from typing import Final

from storage.errors import InvalidRequest

_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]"]', re.DOTALL)
_SPACE: Final = b" \t\r\n"


class Splitter:
    """For one stream. `max_bytes` is the longest object."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = b""
        self._scanned = 0
        self._depth = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """The objects that end in this piece. Raises InvalidRequest for what cannot become one."""
        text = self._rest + piece
        found: list[bytes] = []
        begin, at = 0, self._scanned
        while (token := _TOKEN.search(text, at)) is not None:
            kind = text[token.start()]
            if kind == 0x22 and token.end() - token.start() == 1:
                at = token.start()  # the rest of the string is yet to come
                break
            at = token.end()
            if kind in b"{[":
                self._depth += 1
            elif kind in b"}]":
                self._depth -= 1
                if self._depth < 0:
                    raise _not_an_object()
                if self._depth == 0:
                    found.append(text[begin:at].strip(_SPACE))
                    begin = at
        else:
            at = len(text)
        self._rest, self._scanned = text[begin:], at - begin
        if len(self._rest) > self._max_bytes:
            raise InvalidRequest(f"body: an object is longer than {self._max_bytes} bytes.", field="body")
        if self._depth == 0 and self._rest.strip(_SPACE):
            raise _not_an_object()
        return found

    def end(self) -> None:
        """Nothing more comes. Raises InvalidRequest when an object has not ended."""
        if self._rest.strip(_SPACE):
            raise InvalidRequest("The body is not valid JSON: it ends too early.", field="body")


def _not_an_object() -> InvalidRequest:
    return InvalidRequest("body: expected JSON objects behind one another.", field="body")
