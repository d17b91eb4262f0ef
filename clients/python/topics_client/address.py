"""The address of a broker: the forms that a person may write, and whether it is this machine. No I/O."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

from topics_client.errors import InvalidRequest

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def base_url(url: str) -> str:
    """The address without a trailing slash or /v0. A bare host:port gets `http://` in front.

    Raises InvalidRequest for text that is not the address of a broker.
    """
    text = url.strip()
    if not _SCHEME.match(text):
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
        # Some texts that cannot be host names look fine in a URL, and fail only when they are looked up.
        host.encode("idna")
        valid = parts.scheme in ("http", "https") and bool(host) and (parts.port or 1) < 65_536
        if "[" in parts.netloc:
            ipaddress.IPv6Address(host.partition("%")[0])
    except (ValueError, UnicodeError):
        valid = False
    if not valid:
        raise InvalidRequest(f"{url!r} is not a URL of a broker; it looks like http://127.0.0.1:4000.")
    return text.rstrip("/").removesuffix("/v0").rstrip("/")


def parts_of(base: str) -> SplitResult:
    """The parts of an address that `base_url` has checked."""
    return urlsplit(base)


def host_and_port(base: str) -> tuple[str, int]:
    """Where to connect to."""
    parts = parts_of(base)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def host_header(base: str) -> str:
    """The header that names the broker."""
    parts = parts_of(base)
    host = parts.hostname or ""
    name = f"[{host.partition('%')[0]}]" if ":" in host else host.encode("idna").decode()
    return f"{name}:{parts.port}" if parts.port is not None else name


def is_loopback(base: str) -> bool:
    """Whether the address names this machine, whatever a proxy would do with it."""
    host = urlsplit(base).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def token_checked(token: str) -> str:
    """The key without the line break that comes from reading it from a file. Raises InvalidRequest."""
    text = token.strip()
    if text.isascii() and text.isprintable() and " " not in text:
        return text
    # The key is not quoted: the message may end up in a log.
    raise InvalidRequest("The key has characters that no key can have: only printable ASCII without spaces.")


def headers(token: str | None) -> dict[str, str]:
    """Headers of every request. gzip would cost both ends more time than it saves on most networks."""
    said = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "topics-client"}
    if token:
        said["Authorization"] = f"Bearer {token_checked(token)}"
    return said


def unreachable(base: str, cause: str) -> str:
    """The message for a connection that could not be opened."""
    if "CERTIFICATE_VERIFY_FAILED" in cause:
        cause += "; ca_file, --cacert or SSL_CERT_FILE names the authority to trust"
    return f"No broker can be reached at {base} ({cause})."


def silent(base: str, seconds: float) -> str:
    """The message for an answer that did not come in time."""
    return f"The broker at {base} did not answer within {seconds:g} s."


def broken(base: str, cause: str) -> str:
    """The message for a connection that ended before its answer."""
    return f"The connection to the broker at {base} broke ({cause})."
