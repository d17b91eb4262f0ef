"""The address at which a client reaches the proxy, from Forwarded (RFC 7239) and the older headers. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_PAIR: Final = re.compile(r'([A-Za-z]+)=(?:"([^"]*)"|([^;,\s]*))')
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?")
_PATH: Final = re.compile(r"(/[A-Za-z0-9._~-]+)*")


def base_of(headers: Mapping[bytes, bytes], scheme: str, prefix: str = "") -> str:
    """`https://host[:port][/prefix]`: the part of a URL before the path of a request.

    Of several proxies, the first counts, which the client connected to. Invalid headers are ignored.
    """
    said = _forwarded(headers.get(b"forwarded", b""))
    proto = said.get("proto") or _first(headers, b"x-forwarded-proto") or scheme
    host = said.get("host") or _first(headers, b"x-forwarded-host") or ""
    if not _HOST.fullmatch(host):
        host = headers.get(b"host", b"").decode("latin-1")
    if not _HOST.fullmatch(host):
        host = "localhost"
    port = _first(headers, b"x-forwarded-port")
    if port.isdigit() and "host" not in said:
        host = _with_port(host, proto, port)
    outer = _first(headers, b"x-forwarded-prefix").rstrip("/")
    if not _PATH.fullmatch(outer):
        outer = ""
    return f"{proto if proto in ('http', 'https') else scheme}://{host}{outer}{prefix}"


def _with_port(host: str, proto: str, port: str) -> str:
    bare = host if host.endswith("]") else re.sub(r":\d+$", "", host)
    return bare if port == {"http": "80", "https": "443"}.get(proto) else f"{bare}:{port}"


def _forwarded(header: bytes) -> dict[str, str]:
    first = header.decode("latin-1").split(",")[0]
    return {name.lower(): quoted or plain for name, quoted, plain in _PAIR.findall(first)}


def _first(headers: Mapping[bytes, bytes], name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1").split(",")[0].strip()
