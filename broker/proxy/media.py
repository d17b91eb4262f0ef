"""Media types of the proxy: `application/vnd.kafka[.format].v2+json`. Pure.

The format is the form of keys and values in the JSON. Without a format, `application/json` means json, and
`application/vnd.kafka.v2+json` means binary, as in Confluent's proxy.
"""

from __future__ import annotations

import enum
from typing import Final

from broker.content import JSON, weights
from broker.proxy.errors import FormatMismatch, NotOffered


class Format(enum.StrEnum):
    """The form of keys and values in JSON: Base64, JSON, or a string of text."""

    BINARY = "binary"
    JSON = "json"
    TEXT = "text"


V2_JSON: Final = b"application/vnd.kafka.v2+json"
_GENERIC: Final = ("application/vnd.kafka.v2+json", "application/vnd.kafka+json", "application/json")
_EMBEDDED: Final = {f"application/vnd.kafka.{each}.v2+json": each for each in Format}
_ANY: Final = ("application/*", "*/*")


def name_of(content_type: bytes) -> str:
    """The media type without its parameters."""
    return content_type.decode("latin-1").partition(";")[0].strip().lower()


def is_known(content_type: bytes) -> bool:
    """Whether a body may be of this type."""
    name = name_of(content_type)
    return name in _GENERIC or name in _EMBEDDED


def written_in(content_type: bytes) -> Format:
    """The format of records in a body of this media type, which must be known."""
    name = name_of(content_type)
    return _EMBEDDED.get(name, Format.JSON if name == "application/json" else Format.BINARY)


def answered_as(accept: bytes | None) -> bytes:
    """The media type of an answer without records. Raises NotOffered."""
    if accept is None:
        return V2_JSON
    wanted = _wanted(accept)
    for name in wanted:
        if name in _ANY:
            return V2_JSON
        if name in _GENERIC or name in _EMBEDDED:
            return name.encode()
    raise NotOffered


def read_as(accept: bytes | None, own: Format | None) -> tuple[Format, bytes]:
    """The format of records in an answer, and its media type. `own`: the format of the instance, if there is one.

    Raises NotOffered, and FormatMismatch if the client asks for another format.
    """
    wanted = ["*/*"] if accept is None else _wanted(accept)
    mismatch = False
    for name in wanted:
        if name in _ANY or name in ("application/vnd.kafka.v2+json", "application/vnd.kafka+json"):
            found = own or Format.BINARY
            return found, f"application/vnd.kafka.{found}.v2+json".encode()
        if name == "application/json":
            return own or Format.JSON, JSON
        found = _EMBEDDED.get(name)
        if found is not None:
            if own is None or found is own:
                return found, name.encode()
            mismatch = True
        elif name.startswith("application/vnd.kafka.") and name.endswith(".v2+json"):
            mismatch = own is not None  # avro and similar formats
    raise FormatMismatch if mismatch else NotOffered


def _wanted(accept: bytes) -> list[str]:
    """The names, ordered by weight, then the more specific ones first, then by position in the header."""
    found = [(name, weight) for name, weight in weights(accept).items() if weight > 0]
    return [name for name, _ in sorted(found, key=lambda each: (-each[1], each[0].count("*")))]
