"""Parses the settings for host names and origins of pages."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Any, Final

#: In a setting, means all.
ANY: Final = "*"
_HOST_NAME = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([a-z0-9_.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")


def parse_hosts(value: Any) -> Any:
    """Parse a comma list of names without ports; `*.` before a name = all names below, `*` = all. Raises ValueError."""
    if not isinstance(value, str):
        return value
    found = _items(value)
    for each in found:
        if each != ANY and not _HOST_NAME.fullmatch(each) and not is_address(each.strip("[]")):
            raise ValueError(
                f"{each!r} is not a host name, without scheme and port, or *.example.com for all names below"
            )
    return found


def parse_origins(value: Any) -> Any:
    """Parse a comma list of scheme://host[:port]; `*` = all. Raises ValueError."""
    if not isinstance(value, str):
        return value
    found = _items(value)
    for each in found:
        if each != ANY and not _ORIGIN.fullmatch(each):
            raise ValueError(
                f"{each!r} is not an origin like https://app.example.com, with a port if needed, without a path"
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
