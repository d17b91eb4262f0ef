"""Splits a stream of JSON objects that arrives in pieces. Pure.

Objects may be separated by white space. An object is returned as soon as its last brace arrives.
"""

from __future__ import annotations

import re
from typing import Final

from storage import InvalidRequest

_TOKEN: Final = re.compile(rb'["{}\[\]]')
#: The inside of a string, as far as it has arrived. An incomplete escape does not match.
_INSIDE: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_QUOTE: Final = ord('"')
_SPACE: Final = b" \t\r\n"


class Splitter:
    """The splitter of one stream. `max_bytes`: the longest object."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()
        self._scanned = 0
        self._depth = 0
        self._in_string = False

    def feed(self, piece: bytes) -> list[bytes]:
        """The objects that end in this piece. Raises InvalidRequest for bytes that are not JSON objects."""
        text = self._rest
        text += piece
        found: list[bytes] = []
        begin, at = 0, self._scanned
        while True:
            if self._in_string:
                inside = _INSIDE.match(text, at)
                assert inside is not None
                at = inside.end()
                if at == len(text) or text[at] != _QUOTE:
                    break  # the rest of the string has not arrived yet
                self._in_string = False
                at += 1
            token = _TOKEN.search(text, at)
            if token is None:
                at = len(text)
                break
            at = token.end()
            kind = text[at - 1]
            if kind == _QUOTE:
                self._in_string = True
            elif kind in b"{[":
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth < 0:
                    raise _not_an_object()
                if self._depth == 0:
                    found.append(bytes(text[begin:at]).strip(_SPACE))
                    begin = at
        del text[:begin]
        self._scanned = at - begin
        if len(text) > self._max_bytes:
            raise InvalidRequest(f"body: an object is longer than {self._max_bytes} bytes.", field="body")
        if self._depth == 0 and text.strip(_SPACE):
            raise _not_an_object()
        return found

    def end(self) -> None:
        """End the stream. Raises InvalidRequest if an object is incomplete."""
        if self._rest.strip(_SPACE):
            raise InvalidRequest("The body is not valid JSON: it ends within an object.", field="body")


def _not_an_object() -> InvalidRequest:
    return InvalidRequest("body: expected a sequence of JSON objects.", field="body")
