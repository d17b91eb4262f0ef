"""Which names the broker answers to (`Host`), and which sites' pages may use it (`Origin`).

A browser sends any request that a page asks for, even to a broker on the same machine, which may have no keys. Two
headers that no page can forge identify such a request:

    Host     the name in the URL. A page whose name was pointed at this machine (DNS rebinding) sends its own name.
             Addresses are always allowed: nobody can point an address elsewhere.
    Origin   the site of the page. For a WebSocket, and for any request that changes something, it has to be the
             broker's own or one of `TOPICS_CORS_ORIGINS`. For other reads the browser decides: it hides the answer from
             a page that the broker does not name.

When a page loads an image or a script, the browser sends no Origin, but Sec-Fetch-Site. That matters because
GET …/work claims jobs. Programs send neither header, so these rules do not affect them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from broker.auth import ANY, READ, Scopes, is_address
from broker.content.answers import NO_CONTENT, Answer, Headers
from storage import RequestError

if TYPE_CHECKING:
    from broker.settings import Settings

_LOOPBACK: Final = frozenset({"localhost", "*.localhost"})
#: How many allowed values of Host are remembered, as they were sent.
_MAX_KNOWN: Final = 256
#: Characters of a Host that an error message shows.
_SHOWN_CHARS: Final = 255

_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
#: The values of Sec-Fetch-Site for a page of another site; another port of the same machine counts as one.
_FOREIGN: Final = frozenset({b"cross-site", b"same-site"})

#: Without cookies, * means all headers except Authorization.
_SHARED: Final[Headers] = ((b"access-control-expose-headers", b"*"), (b"vary", b"origin"))
_PREFLIGHT: Final[Headers] = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, PATCH, DELETE"),
    (b"access-control-allow-headers", b"authorization, *"),
    (b"access-control-max-age", b"600"),
)


class NotHere(RequestError):
    """The broker does not answer to the name in Host; TOPICS_ALLOWED_HOSTS says which names it does."""

    code = "forbidden"


class ForeignPage(RequestError):
    """The request comes from a page of another site; TOPICS_CORS_ORIGINS says which sites may use the broker."""

    code = "forbidden"


class Sites:
    """The sites of one broker. `hosts` None: it answers to every name."""

    def __init__(self, hosts: frozenset[str] | None, origins: frozenset[str]) -> None:
        self._hosts = None if hosts is None or ANY in hosts else hosts
        self._origins = origins
        self._known: set[bytes | None] = {None}

    def answers_to(self, host: bytes | None) -> bool:
        """Whether the broker answers to this Host. None: the request has none, which no browser does."""
        if self._hosts is None or host in self._known:
            return True
        if not _is_among(name_in(host), self._hosts):
            return False
        if len(self._known) >= _MAX_KNOWN:
            self._known = {None}
        self._known.add(host)
        return True

    def check_host(self, headers: Mapping[bytes, bytes]) -> None:
        """Raises NotHere."""
        host = headers.get(b"host")
        if not self.answers_to(host):
            shown = (host or b"").decode("latin-1")[:_SHOWN_CHARS]
            raise NotHere(
                f"Host: the broker does not answer to {shown!r}; name it in TOPICS_ALLOWED_HOSTS, or use its address.",
                host=shown,
            )

    def check_page(self, headers: Mapping[bytes, bytes], scheme: str, *, changes: bool) -> None:
        """Raises ForeignPage if the request comes from a page that may not make it."""
        if not changes:
            return
        origin = headers.get(b"origin")
        if origin is None:
            if headers.get(b"sec-fetch-site") in _FOREIGN:
                raise ForeignPage("Sec-Fetch-Site: a page of another site may not do this.", origin=None)
        elif not self._may_use(origin, headers.get(b"host", b""), scheme):
            shown = origin.decode("latin-1")[:_SHOWN_CHARS]
            raise ForeignPage(
                f"Origin: pages of {shown!r} may not do this; name the site in TOPICS_CORS_ORIGINS.", origin=shown
            )

    def preflight(self, method: str, headers: Mapping[bytes, bytes]) -> Answer | None:
        """The answer to a CORS preflight request; None if this is none, or if its site may not use the broker."""
        if method != "OPTIONS" or b"access-control-request-method" not in headers:
            return None
        if not self._is_named(headers.get(b"origin", b"")):
            return None
        return Answer(b"", status=NO_CONTENT, headers=_PREFLIGHT)

    def shared_with(self, origin: bytes) -> Headers:
        """The headers that let a page of another site see an answer; none if it may not."""
        if not self._is_named(origin):
            return ()
        return (b"access-control-allow-origin", b"*" if ANY in self._origins else origin), *_SHARED

    def _may_use(self, origin: bytes, host: bytes, scheme: str) -> bool:
        return self._is_named(origin) or _is_same(origin.lower(), host.lower(), scheme)

    def _is_named(self, origin: bytes) -> bool:
        return bool(self._origins) and (ANY in self._origins or origin.decode("latin-1").lower() in self._origins)


def changes_something(method: str, scopes: Scopes) -> bool:
    """Whether an operation with these scopes may change something. A read by POST counts too, because it may wait."""
    return method not in _SAFE_METHODS or not scopes <= READ


def sites_of(settings: Settings, machine: str) -> Sites:
    """The sites that the settings allow. `machine` is this machine's name; without keys, only its names are allowed."""
    hosts = settings.allowed_hosts
    if hosts is None and not settings.all_keys():
        hosts = _LOOPBACK | {settings.host.lower(), machine.lower()}
    return Sites(hosts, settings.cors_origins or frozenset())


def name_in(host: bytes | None) -> str:
    """The name or address in a Host, without the port."""
    text = (host or b"").decode("latin-1").lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].removesuffix(".")


def _is_among(name: str, hosts: frozenset[str]) -> bool:
    if name in hosts or is_address(name):
        return True
    while "." in name:
        name = name.partition(".")[2]
        if f"*.{name}" in hosts:
            return True
    return False


def _is_same(origin: bytes, host: bytes, scheme: str) -> bool:
    """Whether a page is the broker's own. A proxy that terminates TLS turns https into http, never the reverse."""
    page_scheme, _, page_host = origin.decode("latin-1").partition("://")
    if not page_host or (scheme in ("https", "wss") and page_scheme != "https"):
        return False
    port = _DEFAULT_PORTS.get(page_scheme, "")
    return page_host.removesuffix(port) == host.decode("latin-1").removesuffix(port)
