"""Finds the cells of topics in advance, for requests that cannot follow `not_mine`: streams and their commands."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from broker.cells import PeerUnavailable
from broker.gateway.forward import Forwarder, cell_in
from broker.gateway.heads import NOT_MINE, front, with_body
from storage.records import split

if TYPE_CHECKING:
    from broker.gateway.gateway import Gateway

#: The most topics remembered. Beyond that, the one that was asked for first is forgotten, and asked for again if
#: needed.
MAX_KNOWN: Final = 10_000
_MOST_BYTES: Final = 16 << 20
#: How long a cell may take.
PATIENCE_S: Final = 5.0


class Locating:
    """Asks cells which topics they have, and remembers the answers."""

    def __init__(self, gateway: Gateway, forwarder: Forwarder) -> None:
        self._gateway = gateway
        self._forwarder = forwarder
        self._known: OrderedDict[str, None] = OrderedDict()

    def forget(self, topics: Iterable[str]) -> None:
        """Ask for these topics, or partitions, again."""
        for each in topics:
            self._known.pop(each, None)
            self._gateway.owners.forget(each)

    async def cell(self, topic: str, headers: dict[bytes, bytes]) -> int:
        """The cell that has a topic, or a partition, by its address. The first time, its home cell is asked. Raises
        PeerUnavailable."""
        owners = self._gateway.owners
        cell = owners.cell(topic)
        if topic in self._known:
            return cell
        given = [(name, headers[name]) for name in (b"host", b"authorization") if name in headers]
        title, partition = split(topic)
        target = b"/v0/topics/%b" % quote(title, safe="").encode()
        if partition:
            target += b"/consumers?page_size=1&partition=%d" % partition
        exchange = await self._forwarder.begin(cell, with_body(front(b"GET", target, given), b""), changes=False)
        try:
            async with asyncio.timeout(PATIENCE_S):
                head = await exchange.head()
                body = await exchange.body(_MOST_BYTES)
        except TimeoutError:
            raise PeerUnavailable(cell, "none") from None
        finally:
            exchange.close()
        if head.status == NOT_MINE:
            owners.learn(topic, cell_in(body), cell)
        self._known[topic] = None
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return owners.cell(topic)
