"""Query parameters, as strict as JSON fields: a number is digits, a flag is true or false."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from urllib.parse import unquote_to_bytes

from schemas import parse_flag, parse_u64
from storage import InvalidRequest

T = TypeVar("T")


class Query:
    """Parsed once; a parameter given twice counts by its last value, but for `texts`. Unknown ones are ignored."""

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
        """A u64. Raises InvalidRequest naming the parameter."""
        value = self.text(name)
        return None if value is None else parsed(parse_u64, value, name)

    def flag(self, name: str, default: bool) -> bool:
        """true or false (1 or 0). Raises InvalidRequest naming the parameter."""
        value = self.text(name)
        return default if value is None else parsed(parse_flag, value, name)


def parsed(parse: Callable[[str], T], text: str, field: str) -> T:
    """What `parse` makes of `text`; raises InvalidRequest naming `field` where that raises ValueError."""
    try:
        return parse(text)
    except ValueError as error:
        raise InvalidRequest(f"{field}: {error}.", field=field) from None


def _text(value: bytes, field: str) -> str:
    """Percent-decoded, + as space. Raises InvalidRequest when that is not UTF-8."""
    if value.isalnum():
        return value.decode()  # bytes.isalnum knows ASCII only
    try:
        return unquote_to_bytes(value.replace(b"+", b" ")).decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"{field}: not UTF-8.", field=field) from None
