"""Passes a client's request to another cell, which answers it.

The cell that has the data decides what the client may do: the permissions of its key are sent with the request. Only
cells can connect to the socket for these calls, so no client can claim permissions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from broker.auth import ANYBODY, Access, Grant, Key, KeyAccess, Scope
from broker.content import slices
from broker.kafka.call import LARGE_REQUEST_BYTES, Call, Peer
from broker.kafka.codec import Message, decode, encode
from storage import Unavailable

if TYPE_CHECKING:
    from broker.kafka.node import Node

METHOD: Final = "kafka_request"
#: The most times that a request is passed on: to the home cell of a name, and from there to the cell that has it.
MAX_HOPS: Final = 2
#: How long a request waits for a cell that is restarting, and how often it tries again.
PATIENCE_S: Final = 5.0
RETRY_S: Final = 0.05
#: How long another cell may take for what later requests of a connection wait behind: then it counts as away. Kafka's
#: offsets.commit.timeout.ms is the same, and the shortest session of a member is 6 s.
AWAY_AFTER_S: Final = 5.0

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)
Handle = Callable[[Call, Q], Awaitable[R]]

#: The kinds of requests that cells pass on: how to decode each, and its handler.
_ANSWERED: dict[int, tuple[type[Message], Handle[Any, Any]]] = {}


class _Forwarded(msgspec.Struct, array_like=True):
    """A request on its way to another cell. `scopes` is None if the broker uses no keys."""

    api_key: int
    version: int
    hops: int
    client_id: str | None
    software: str
    address: str
    local: tuple[str, int]
    key_number: int
    scopes: list[str] | None
    prefixes: tuple[str, ...]
    #: Whether the answer may be a large list.
    large: bool
    body: bytes


def passable(api_key: int, kind: type[Q], handle: Handle[Q, R]) -> None:
    """Allow cells to pass on requests of this kind."""
    _ANSWERED[api_key] = kind, handle


async def ask(
    call: Call,
    cell: int,
    request: Message,
    kind: type[R],
    *,
    patience_s: float = PATIENCE_S,
    large: bool = False,
    is_last: bool = False,
    timeout_s: float = 30.0,
) -> R:
    """Ask another cell for the answer to a request of this call.

    A cell that cannot be reached is tried again for `patience_s`, as long as nothing was sent to it. `large`: the
    request or its answer may be a large list, so it is encoded on a thread. `is_last`: that cell answers by itself, and
    does not pass it on. Raises PeerUnavailable, PeerError.
    """
    cells = call.broker.cells
    assert cells is not None
    written = await _encoded(request, call.version, large=large)
    hops = MAX_HOPS if is_last else call.hops + 1
    forwarded = msgspec.msgpack.encode(_forwarded(call, written, hops, large=large))
    deadline = monotonic() + patience_s
    while True:
        try:
            body = await cells.peers.call(cell, METHOD, forwarded, timeout_s=timeout_s)
        except Unavailable as error:
            if error.outcome != "none" or monotonic() >= deadline:
                raise
            await asyncio.sleep(RETRY_S)
        else:
            return await _decoded(kind, call.version, body)


def receiving(broker: Node) -> Callable[[Any], Awaitable[bytes]]:
    """The method that answers requests passed on by other cells."""

    async def answer(argument: Any) -> bytes:
        forwarded = msgspec.msgpack.decode(argument, type=_Forwarded)
        kind, handle = _ANSWERED[forwarded.api_key]
        call = _call(forwarded, broker)
        found = await handle(call, await _decoded(kind, forwarded.version, forwarded.body))
        return await _encoded(found, forwarded.version, large=forwarded.large)

    return answer


async def _encoded(message: Message, version: int, *, large: bool) -> bytes:
    if not large:
        return bytes(encode(message, version))
    async with slices.exclusive():
        return bytes(await asyncio.to_thread(encode, message, version))


async def _decoded(kind: type[R], version: int, body: bytes) -> R:
    if len(body) <= LARGE_REQUEST_BYTES:
        return decode(kind, version, body)
    async with slices.exclusive():
        return await asyncio.to_thread(decode, kind, version, body)


def _forwarded(call: Call, body: bytes, hops: int, *, large: bool) -> _Forwarded:
    access, peer = call.access, call.connection
    rights = access.grant if isinstance(access, KeyAccess) else None
    return _Forwarded(
        call.api_key,
        call.version,
        hops,
        call.client_id,
        peer.software,
        peer.address,
        peer.local,
        access.number if isinstance(access, KeyAccess) else 0,
        None if rights is None else sorted(rights.scopes),
        access.prefixes,
        large,
        body,
    )


def _call(forwarded: _Forwarded, broker: Node) -> Call:
    peer = Peer(_access(forwarded), forwarded.local, forwarded.address)
    peer.software = forwarded.software
    call = Call(forwarded.api_key, forwarded.version, forwarded.client_id, peer, broker)
    call.hops = forwarded.hops
    return call


def _access(forwarded: _Forwarded) -> Access:
    """The permissions of the client's key. The cell that the client is connected to counts its requests."""
    if forwarded.scopes is None:
        return ANYBODY
    scopes = frozenset(Scope(each) for each in forwarded.scopes)
    key = Key(b"", forwarded.key_number, Grant(scopes, forwarded.prefixes))
    return KeyAccess(key, max_inflight=0, max_streams=0)
