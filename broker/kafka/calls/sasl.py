"""SASL/PLAIN: the password is an API key, the user name is ignored.

A broker without keys accepts any password and allows everything.

Source: docs/guides/kafka.md#keys-and-scopes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.auth import ANYBODY, Access
from broker.kafka.apis import ApiKey
from broker.kafka.call import Call, Handler, Peer, decoded
from broker.kafka.errors import ErrorCode
from broker.kafka.messages.session import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from broker.kafka.node import Node

PLAIN: Final = "PLAIN"
_WRONG: Final = "The password is not an API key of this broker."
_NO_HANDSHAKE: Final = "Send SaslHandshake before SaslAuthenticate."


async def handshake(call: Call, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Agree on the mechanism. After version 0, the token follows as a frame without a header."""
    peer = call.connection
    if request.mechanism != PLAIN:
        return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=[PLAIN])
    peer.mechanism = PLAIN
    peer.raw_tokens = call.version == 0
    return SaslHandshakeResponse(mechanisms=[PLAIN])


async def authenticate(call: Call, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Authenticate. On success, the connection has the permissions of the key."""
    peer = call.connection
    if peer.mechanism is None:
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_NO_HANDSHAKE)
    if _admit(peer, request.auth_bytes, call.broker):
        return SaslAuthenticateResponse()
    return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=_WRONG)


def raw_token(peer: Peer, token: bytes, broker: Node) -> bytes | None:
    """Authenticate with a frame without a header. Returns the token of the answer; None: the credentials are wrong."""
    peer.raw_tokens = False
    return b"" if _admit(peer, token, broker) else None


def _admit(peer: Peer, token: bytes, broker: Node) -> bool:
    access = _access_of(token, broker)
    peer.rejected = access is None
    peer.access = access
    return access is not None


def _access_of(token: bytes, broker: Node) -> Access | None:
    """The permissions for `authorization id NUL user NUL password` (RFC 4616); None: the credentials are wrong."""
    parts = token.split(b"\0")
    if len(parts) != 3:
        return None
    return ANYBODY if broker.gate is None else broker.gate.find(parts[2])


HANDLERS: Final[dict[int, Handler]] = {
    ApiKey.SASL_HANDSHAKE: decoded(SaslHandshakeRequest, handshake),
    ApiKey.SASL_AUTHENTICATE: decoded(SaslAuthenticateRequest, authenticate),
}
