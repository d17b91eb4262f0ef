"""The Accept headers of a client: items with weights (RFC 9110 §12.4.2)."""

from __future__ import annotations


def weights(header: bytes) -> dict[str, float]:
    """Item in lower case → its q: 1.0 if none is given, 0.0 if it is invalid."""
    found: dict[str, float] = {}
    for item in header.decode("latin-1").lower().split(","):
        name, _, parameters = item.partition(";")
        found[name.strip()] = _weight(parameters)
    return found


def accepts_gzip(accept_encoding: bytes) -> bool:
    """Whether gzip (or *) is named with a weight above 0."""
    found = weights(accept_encoding)
    return found.get("gzip", found.get("x-gzip", found.get("*", 0.0))) > 0


def prefers_json(accept: bytes) -> bool:
    """Whether the header names JSON and does not prefer plain text to it."""
    found = weights(accept)
    json = found.get("application/json", 0.0)
    return json > 0 and json >= found.get("text/plain", 0.0)


def _weight(parameters: str) -> float:
    for parameter in parameters.split(";"):
        name, _, value = parameter.strip().partition("=")
        if name == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
