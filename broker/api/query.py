"""Query parameters, as strict as JSON fields: a number is digits, a flag is true or false."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from urllib.parse import unquote_to_bytes

from schemas import parse_flag, parse_u64
from storage import InvalidRequest

T = TypeVar("T")


class Query:
    """Query parameters, parsed once. Except in `texts`, a repeated one counts by its last value. Unknown ones are
    ignored."""

    __slots__ = ("_values",)

    def __init__(self, query_string: bytes) -> None:
        self._values: dict[str, list[str]] = {}
        for item in query_string.split(b"&") if query_string else ():
            name, _, value = item.partition(b"=")
            self._values.setdefault(_text(name, "query"), []).append(_text(value, name.decode("ascii", "replace")))

    def text(self, name: str) -> str | None:
        values = self._values.get(name)
        return values[-1] if values else None

    def texts(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def number(self, name: str) -> int | None:
        """A u64. Raises InvalidRequest, which names the parameter."""
        value = self.text(name)
        return None if value is None else parsed(parse_u64, value, name)

    def flag(self, name: str, default: bool) -> bool:
        """true or false (1 or 0). Raises InvalidRequest, which names the parameter."""
        value = self.text(name)
        return default if value is None else parsed(parse_flag, value, name)


def parsed(parse: Callable[[str], T], text: str, field: str) -> T:
    """The result of `parse(text)`. Raises InvalidRequest, which names `field`, if that raises ValueError."""
    try:
        return parse(text)
    except ValueError as error:
        raise InvalidRequest(f"{field}: {error}.", field=field) from None


def _text(value: bytes, field: str) -> str:
    """The text, percent-decoded, + as space. Raises InvalidRequest if it is not UTF-8."""
    if value.isalnum():
        return value.decode()  # bytes.isalnum accepts ASCII only
    try:
        return unquote_to_bytes(value.replace(b"+", b" ")).decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"{field}: not UTF-8.", field=field) from None
