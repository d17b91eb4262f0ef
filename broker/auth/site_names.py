"""Names of hosts and origins of pages, as settings give them."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Any, Final

#: Stands in a setting for all of them.
ANY: Final = "*"
_HOST_NAME = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([a-z0-9_.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")


def parse_hosts(value: Any) -> Any:
    """A comma list of names without ports, `*.` in front of one for all below it, `*` for all. Raises ValueError."""
    if not isinstance(value, str):
        return value
    found = _items(value)
    for each in found:
        if each != ANY and not _HOST_NAME.fullmatch(each) and not is_address(each.strip("[]")):
            raise ValueError(
                f"{each!r} is no name of a host: no scheme, no port, *.example.com for all below that name"
            )
    return found


def parse_origins(value: Any) -> Any:
    """A comma list of scheme://host[:port], `*` for all. Raises ValueError."""
    if not isinstance(value, str):
        return value
    found = _items(value)
    for each in found:
        if each != ANY and not _ORIGIN.fullmatch(each):
            raise ValueError(
                f"{each!r} is no origin: https://app.example.com, with its port if it has one, without a path"
            )
    return found


def _items(text: str) -> frozenset[str]:
    return frozenset(item.strip().lower() for item in text.split(",") if item.strip())


def is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
