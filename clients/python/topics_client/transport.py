"""The settings that both clients give httpx, and the meaning of its exceptions."""

from __future__ import annotations

import os
import ssl
from functools import cache, lru_cache
from typing import Any, TypeVar

import httpx

from topics_client import address
from topics_client.cell_routes import Leg
from topics_client.errors import InvalidRequest
from topics_client.identity import NOBODY, Identity
from topics_client.wire import NoReply, Reply, Request

C = TypeVar("C", httpx.Client, httpx.AsyncClient)

_CONNECT_S = 5.0
#: Shorter than the 5 s after which HTTP servers commonly close idle connections, so that none is reused while it is
#: being closed.
_KEEPALIVE_S = 3.0
#: Variables of the environment that name certificates.
_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
#: Raised before a byte of the request has left.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


def opened(
    kind: type[C],
    base: str,
    token: str | None,
    timeout: float,
    http: Any,
    ca_file: str | os.PathLike[str] | None = None,
    identity: Identity = NOBODY,
) -> C:
    """An httpx client of that kind. `http` is a transport that replaces the network. `ca_file`: the authorities it
    trusts. `identity`: its certificate."""
    headers = address.headers(token)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=_KEEPALIVE_S)
    # The environment may name a proxy, and a proxy's loopback is another machine's. The environment's authorities apply
    # everywhere.
    trust_env = not address.is_loopback(base)
    verify = tls_of(base, ca_file, identity) if http is None else True
    try:
        return kind(transport=http, headers=headers, timeout=timeout, limits=limits, verify=verify, trust_env=trust_env)
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        raise InvalidRequest(f"The proxy that the environment names cannot be used: {error}") from error


def tls_of(base: str, ca_file: str | os.PathLike[str] | None, identity: Identity) -> ssl.SSLContext:
    """Whom connections to this address trust, and what they show. The same one as long as no file has changed."""
    if not address.is_loopback(base) or ca_file is not None or address.parts_of(base).scheme == "https":
        return _authorities(*_named_authorities(ca_file), own=_dated(identity))
    return _nobody()


def _named_authorities(ca_file: str | os.PathLike[str] | None) -> list[tuple[str, str, int]]:
    """The places of the certificates to trust, by the name of their source, and when they last changed (0: they do not
    exist)."""
    named = [("ca_file", os.fspath(ca_file))] if ca_file is not None else []
    if not named:
        named = [(name, path) for name in _VARIABLES if (path := os.environ.get(name))]
    return [(name, path, _changed_ns(path)) for name, path in named]


def _dated(identity: Identity) -> tuple[Identity, int, int]:
    """The certificate of the client, and when its files last changed."""
    return identity, _changed_ns(identity.cert), _changed_ns(identity.key)


def _changed_ns(path: str | None) -> int:
    return os.stat(path).st_mtime_ns if path is not None and os.path.exists(path) else 0


@lru_cache(maxsize=4)
def _authorities(*named: tuple[str, str, int], own: tuple[Identity, int, int]) -> ssl.SSLContext:
    """The trusted certificates and the client's own. Loading them takes longer than everything else that a client does
    at its start."""
    try:
        given = [path for name, path, _ in named if name == "ca_file"]
        context = ssl.create_default_context(cafile=given[0]) if given else httpx.create_ssl_context(trust_env=True)
    except OSError as error:
        which = ", ".join(f"{name} {path}" for name, path, _ in named) or "the usual ones"
        raise InvalidRequest(f"The certificates to be trusted ({which}) cannot be used: {error}") from error
    identity, _, _ = own
    if identity.cert is not None:
        try:
            # Without a password: OpenSSL would ask for it at the terminal.
            context.load_cert_chain(identity.cert, identity.key, password="")
        except OSError as error:
            files = ", ".join(path for path in (identity.cert, identity.key) if path is not None)
            raise InvalidRequest(f"The certificate of this client ({files}) cannot be used: {error}") from error
    return context


@cache
def _nobody() -> ssl.SSLContext:
    """Trusts no one: for addresses without TLS."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def built(http: httpx.Client | httpx.AsyncClient, leg: Leg, timeout: float) -> httpx.Request:
    """The request of a leg."""
    request = leg.request
    made = http.build_request(
        request.method,
        leg.base + request.target,
        content=request.body,
        headers=dict(request.headers),
        timeout=time_limits(request, timeout),
    )
    if leg.bare and "authorization" in made.headers:
        del made.headers["authorization"]
    return made


def time_limits(request: Request, timeout: float) -> httpx.Timeout:
    """The waiting time of a held request is added."""
    return _limits(request, timeout, timeout + request.wait_s)


def stream_limits(request: Request, timeout: float, silence_s: float) -> httpx.Timeout:
    """For an answer without an end: how long it may be silent."""
    return _limits(request, timeout, silence_s)


def _limits(request: Request, timeout: float, read_s: float) -> httpx.Timeout:
    connect_s = request.at_most(min(timeout, _CONNECT_S))
    return httpx.Timeout(request.at_most(timeout), connect=connect_s, read=request.at_most(read_s))


def reply(response: httpx.Response) -> Reply:
    return Reply(status=response.status_code, headers=response.headers, body=response.content)


def no_reply(error: httpx.HTTPError | ssl.SSLError, base: str, timeout: float) -> NoReply:
    """The meaning of a failed attempt: whether the broker may have seen the request, and a message for people.

    httpx passes an SSLError through when TLS 1.3 refuses a client's certificate: the refusal arrives after the request.
    """
    sent = not isinstance(error, _NOT_SENT)
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return NoReply(reason=address.unreachable(base, _cause(error)), sent=sent)
    if isinstance(error, httpx.TimeoutException):
        return NoReply(reason=address.silent(base, timeout), sent=sent)
    return NoReply(reason=address.broken(base, _cause(error)), sent=sent)


def _cause(error: httpx.HTTPError | ssl.SSLError) -> str:
    """The innermost reason in plain words: the outer ones of a refused connection only say that all attempts failed."""
    reason: BaseException = error
    while (inner := reason.__cause__ or reason.__context__) is not None:
        reason = inner
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return str(reason) or str(error) or type(error).__name__
