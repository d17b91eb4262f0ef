"""Turns of TLS handshakes, by client address.

A handshake keeps the event loop for about a millisecond, so only a few begin in each of its rounds. The addresses that
wait take turns: a client with a thousand connections delays another address by one handshake. While many wait, the
newest handshake of an address goes first, and so does an address that has just come: a probe behind a flood from its
own address is answered, and what has waited for long is most likely given up by its client.

Source: docs/adr/0088-turns-by-address.md.
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from typing import Any, Final, Protocol

#: Handshakes begun in a round of the loop.
EACH_ROUND: Final = 4
#: The newest goes first while more than this many wait.
CROWD: Final = 32
#: Handshakes that wait. One more, and the one that has waited for longest is given up.
MAX_WAITING: Final = 4096

_MAPPED: Final = bytes(10) + b"\xff\xff"


def address_of(peer: tuple[Any, ...] | str) -> bytes:
    """What counts as one client: an IPv4 address, also one mapped to IPv6, or a /64 of IPv6, which is one network.

    `peer` is the address that `accept` returned. Those that are not of IP, such as a Unix socket's, are one client.
    """
    if not isinstance(peer, tuple) or not peer:
        return b""
    host = str(peer[0]).partition("%")[0]
    if ":" not in host:
        return socket.inet_pton(socket.AF_INET, host)
    packed = socket.inet_pton(socket.AF_INET6, host)
    return packed[12:] if packed.startswith(_MAPPED) else packed[:8]


class Newcomer(Protocol):
    """A connection whose handshake waits."""

    @property
    def address(self) -> bytes: ...

    def begin(self) -> None:
        """It is its turn."""
        ...

    def give_up(self) -> None:
        """Too many others wait: close it."""
        ...


class ByAddress:
    """What waits, in the order in which it will begin. Pure."""

    __slots__ = ("_by_address", "_by_age")

    def __init__(self) -> None:
        #: The next address first; of each, the newest last.
        self._by_address: OrderedDict[bytes, OrderedDict[Newcomer, None]] = OrderedDict()
        self._by_age: OrderedDict[Newcomer, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_age)

    @property
    def is_crowded(self) -> bool:
        return len(self._by_age) > CROWD

    def add(self, newcomer: Newcomer) -> None:
        self._by_age[newcomer] = None
        same = self._by_address.get(newcomer.address)
        if same is None:
            same = self._by_address[newcomer.address] = OrderedDict()
            if self.is_crowded:
                self._by_address.move_to_end(newcomer.address, last=False)
        same[newcomer] = None

    def take(self) -> Newcomer:
        """The next one; there must be one."""
        address, same = next(iter(self._by_address.items()))
        newcomer, _ = same.popitem(last=self.is_crowded)
        if same:
            self._by_address.move_to_end(address)
        else:
            del self._by_address[address]
        del self._by_age[newcomer]
        return newcomer

    def take_oldest(self) -> Newcomer:
        """The one that has waited for longest, whatever its address; there must be one."""
        oldest = next(iter(self._by_age))
        self.discard(oldest)
        return oldest

    def discard(self, newcomer: Newcomer) -> None:
        """It waits no longer, or never did."""
        if newcomer not in self._by_age:
            return
        del self._by_age[newcomer]
        same = self._by_address[newcomer.address]
        del same[newcomer]
        if not same:
            del self._by_address[newcomer.address]


class HandshakeQueue:
    """The handshakes of a broker that wait, whichever port they come in by; begins them. Needs a running loop."""

    __slots__ = ("_left", "_round_is_due", "_waiting")

    def __init__(self) -> None:
        self._left = EACH_ROUND
        self._round_is_due = False
        self._waiting = ByAddress()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def wait(self, newcomer: Newcomer) -> None:
        """Begin it now, or in a later round of the loop."""
        if not self._round_is_due:
            self._round_is_due = True
            asyncio.get_running_loop().call_soon(self._next_round)
        if self._left > 0 and not self._waiting:
            self._left -= 1
            newcomer.begin()
            return
        self._waiting.add(newcomer)
        if len(self._waiting) > MAX_WAITING:
            self._waiting.take_oldest().give_up()

    def forget(self, newcomer: Newcomer) -> None:
        """It waits no longer."""
        self._waiting.discard(newcomer)

    def _next_round(self) -> None:
        self._left = EACH_ROUND
        while self._left > 0 and self._waiting:
            self._left -= 1
            self._waiting.take().begin()
        self._round_is_due = self._left < EACH_ROUND
        if self._round_is_due:
            asyncio.get_running_loop().call_soon(self._next_round)
