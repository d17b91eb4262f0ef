"""Turns of TLS handshakes, by client address.

A handshake blocks the event loop for about a millisecond, so only a few begin in each round. Addresses that wait take
turns: a client with a thousand connections delays another address by one handshake. While many wait, the newest
handshake of an address goes first, and so does a new address. So a probe is answered even during a flood from its own
address, and the clients of the oldest handshakes have most likely given up.

Source: docs/adr/0088-turns-by-address.md.
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from typing import Any, Final, Protocol

#: Handshakes that begin in a round of the loop.
EACH_ROUND: Final = 4
#: The newest goes first while more than this many wait.
CROWD: Final = 32
#: The most handshakes that wait. Above that, the connection that has waited longest is closed.
MAX_WAITING: Final = 4096

_MAPPED: Final = bytes(10) + b"\xff\xff"


def address_of(peer: tuple[Any, ...] | str) -> bytes:
    """The address that identifies a client: an IPv4 address, also a mapped one, or the /64 network of an IPv6 address.

    `peer` is the address that `accept` returned. All addresses other than IP, such as Unix sockets, are one client.
    """
    if not isinstance(peer, tuple) or not peer:
        return b""
    host = str(peer[0]).partition("%")[0]
    if ":" not in host:
        return socket.inet_pton(socket.AF_INET, host)
    packed = socket.inet_pton(socket.AF_INET6, host)
    return packed[12:] if packed.startswith(_MAPPED) else packed[:8]


class PendingHandshake(Protocol):
    """A connection whose handshake waits."""

    @property
    def address(self) -> bytes: ...

    def begin(self) -> None:
        """Begin the handshake: it is its turn."""
        ...

    def give_up(self) -> None:
        """Close the connection: too many others wait."""
        ...


class ByAddress:
    """Waiting handshakes, in the order in which they will begin. Pure."""

    __slots__ = ("_by_address", "_by_age")

    def __init__(self) -> None:
        #: The next address is first. Within an address, the newest is last.
        self._by_address: OrderedDict[bytes, OrderedDict[PendingHandshake, None]] = OrderedDict()
        self._by_age: OrderedDict[PendingHandshake, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_age)

    @property
    def is_crowded(self) -> bool:
        return len(self._by_age) > CROWD

    def add(self, handshake: PendingHandshake) -> None:
        self._by_age[handshake] = None
        same = self._by_address.get(handshake.address)
        if same is None:
            same = self._by_address[handshake.address] = OrderedDict()
            if self.is_crowded:
                self._by_address.move_to_end(handshake.address, last=False)
        same[handshake] = None

    def take(self) -> PendingHandshake:
        """Remove and return the next one. There must be one."""
        address, same = next(iter(self._by_address.items()))
        handshake, _ = same.popitem(last=self.is_crowded)
        if same:
            self._by_address.move_to_end(address)
        else:
            del self._by_address[address]
        del self._by_age[handshake]
        return handshake

    def take_oldest(self) -> PendingHandshake:
        """Remove and return the one that has waited longest, of any address. There must be one."""
        oldest = next(iter(self._by_age))
        self.discard(oldest)
        return oldest

    def discard(self, handshake: PendingHandshake) -> None:
        """Remove one, if it waits."""
        if handshake not in self._by_age:
            return
        del self._by_age[handshake]
        same = self._by_address[handshake.address]
        del same[handshake]
        if not same:
            del self._by_address[handshake.address]


class HandshakeQueue:
    """Begins the handshakes of a broker, of all its ports, in turn. Needs a running loop."""

    __slots__ = ("_left", "_round_is_due", "_waiting")

    def __init__(self) -> None:
        self._left = EACH_ROUND
        self._round_is_due = False
        self._waiting = ByAddress()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def wait(self, handshake: PendingHandshake) -> None:
        """Begin a handshake now, or in a later round of the loop."""
        if not self._round_is_due:
            self._round_is_due = True
            asyncio.get_running_loop().call_soon(self._next_round)
        if self._left > 0 and not self._waiting:
            self._left -= 1
            handshake.begin()
            return
        self._waiting.add(handshake)
        if len(self._waiting) > MAX_WAITING:
            self._waiting.take_oldest().give_up()

    def forget(self, handshake: PendingHandshake) -> None:
        """Remove a handshake, if it waits."""
        self._waiting.discard(handshake)

    def _next_round(self) -> None:
        self._left = EACH_ROUND
        while self._left > 0 and self._waiting:
            self._left -= 1
            self._waiting.take().begin()
        self._round_is_due = self._left < EACH_ROUND
        if self._round_is_due:
            asyncio.get_running_loop().call_soon(self._next_round)
