"""A router: its definition and its progress. Values and state, no I/O.

Source: docs/reference/api.md#routers.
"""

from __future__ import annotations

import asyncio
import enum
from typing import Any

import msgspec

from storage.records import TagMatch
from storage.state.lookup import tag_match

#: A record that has been copied this often is not copied again: this ends copies in a cycle.
MAX_HOPS = 7
#: Writes to a source wait while a router would be further behind than this, in seqs. A router that begins further
#: behind may get this much further behind.
MAX_LAG = 1 << 17


class Guarantee(enum.StrEnum):
    """The guarantee of a definition. Both work the same way: a copy and the cursor are one batch."""

    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE = "exactly_once"


class Start(enum.StrEnum):
    """Where a new router begins: at the head, or at the oldest record."""

    HEAD = "head"
    EARLIEST = "earliest"


class Definition(msgspec.Struct, frozen=True, kw_only=True, rename={"start": "from"}):
    """The definition as requested. `filter` is a tag predicate as in Delete frames: ["tag", "Eq" or "Glob", text]."""

    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: list[str] | None = None
    allow_cycle: bool = False
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    start: Start = Start.HEAD

    @property
    def match(self) -> TagMatch | None:
        """The records to copy; None: all."""
        return None if self.filter is None else tag_match(self.filter)

    def to_map(self) -> dict[str, Any]:
        """As stored in frames and snapshots, and as shown: every field by name."""
        return msgspec.to_builtins(self)

    @classmethod
    def from_map(cls, value: dict[str, Any]) -> Definition:
        """Reads the result of `to_map`; unknown fields are ignored."""
        return msgspec.convert(value, cls)


class Router:
    """One router. `cursor` and `forwarded` are what the log says; the rest belongs to this process.

    `cursor`: every record of the source up to here is copied or does not match. `position` is never below `cursor`:
    records examined since then that do not match move only the position; a later frame tells the log.
    """

    __slots__ = (
        "blocked",
        "cursor",
        "definition",
        "dest_id",
        "forwarded",
        "from_head",
        "hop_limited",
        "lag_limit",
        "leaving",
        "lost",
        "name",
        "position",
        "router_id",
        "source_epoch",
        "source_id",
        "waiters",
    )

    def __init__(
        self, router_id: int, name: str, definition: Definition, source_id: int, dest_id: int, cursor: int
    ) -> None:
        self.router_id = router_id
        self.name = name
        self.definition = definition
        self.source_id = source_id
        self.dest_id = dest_id
        self.cursor = self.position = cursor
        #: The epoch that `cursor` is of, if the source is in another cell. 0: unknown.
        self.source_epoch = 0
        #: Copies made, in total.
        self.forwarded = 0
        #: Since the start: loss ranges written to dest, and records not copied because of MAX_HOPS.
        self.lost = 0
        self.hop_limited = 0
        #: Code of the error that blocks it; None: it is not blocked.
        self.blocked: str | None = None
        #: Its copies were in memory only: it continues at the head of its source, which is in another cell.
        self.from_head = False
        #: How far behind its source it may be, in seqs, before writes to the source wait. None: it does not copy now.
        self.lag_limit: int | None = None
        #: Its deletion is in flight.
        self.leaving = False
        #: Futures of those who wait for a position, and that position.
        self.waiters: dict[asyncio.Future[None], int] = {}

    def begin(self, head: int) -> None:
        """It copies from now on. `head`: the last seq of its source."""
        self.lag_limit = max(0, head - self.position) + MAX_LAG

    def holds_back(self, head: int) -> bool:
        """Whether a write to its source has to wait. `head`: the last seq assigned there."""
        return self.lag_limit is not None and self.blocked is None and head - self.position > self.lag_limit

    def move(self, position: int) -> None:
        """Everything up to here has been examined, and the copies are published at dest."""
        if self.lag_limit is not None:
            # Half as fast as it copies: if it is far behind, writes to its source get the other half.
            self.lag_limit = max(MAX_LAG, self.lag_limit - max(0, position - self.position) // 2)
        self.position = max(self.position, position)
        if self.waiters:
            self._wake([waiter for waiter, wanted in self.waiters.items() if wanted <= self.position])

    async def reach(self, position: int) -> None:
        """Wait until everything up to here has been examined, or the router is blocked or gone."""
        if self.blocked is not None or self.position >= position:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters[waiter] = position
        try:
            await waiter
        finally:
            self.waiters.pop(waiter, None)

    def give_up_waiters(self) -> None:
        """Wake the waiters: the router will not reach their positions soon, because it is blocked or gone."""
        self._wake([*self.waiters])

    def _wake(self, waiters: list[asyncio.Future[None]]) -> None:
        for waiter in waiters:
            del self.waiters[waiter]
            if not waiter.done():
                waiter.set_result(None)


class RouterState(msgspec.Struct, kw_only=True):
    """The present state of a router. `lag`: seqs of the source still to be examined. `forwarded_total`: all copies so
    far.

    `blocked`: the code of the error that stops it. `lost`: loss ranges that it has written to the destination since the
    start. `hop_limited`: records that it has not copied because they had passed too many routers.
    """

    name: str
    definition: Definition
    cursor_seq: int
    lag: int
    forwarded_total: int
    blocked: str | None
    lost: int
    hop_limited: int
