"""An engine on a simulated disk with routers, and a ledger of what it answered: what router workloads are written with.

Every record is told by its data, so a copy is known wherever it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from storage import Durability, Engine, NewRecord, Options, TopicConfig
from storage.errors import StorageError, StorageFailed
from storage.routers.router import Definition
from storage.segment.errors import SegmentError
from tests.support.crash_ledger import Outcome
from tests.support.crash_session import ROOT
from tests.support.fake_clock import FakeClock
from tests.support.sim_disk import SimDisk

#: Turns of the loop in which everything that can be forwarded has been forwarded.
SETTLING_TURNS = 300


@dataclass(slots=True, eq=False)
class Sent:
    """A record as it was sent. `safe`: nothing may take it from its topic any more."""

    number: int
    topic: str
    tag: str | None
    size: int
    outcome: Outcome = Outcome.OPEN
    safe: bool = False
    deleted: bool = False
    #: In memory only, when it was sent.
    volatile: bool = False

    @property
    def data(self) -> bytes:
        return b'{"n":%d,"p":"%b"}' % (self.number, b"." * self.size)


@dataclass(slots=True, eq=False)
class Route:
    """A router that somebody has asked for. `begins_at`: number of the first record that is certainly for it."""

    name: str
    definition: Definition
    begins_at: int
    made: Outcome = Outcome.OPEN
    deleted: Outcome | None = None


@dataclass(slots=True)
class RouteLedger:
    """What was asked and answered. `restarts`: numbers of the first record behind each end of a process."""

    sent: list[Sent] = field(default_factory=list)
    routes: list[Route] = field(default_factory=list)
    #: Topics whose records may be evicted.
    capped: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    restarts: list[int] = field(default_factory=list)

    def copy(self) -> RouteLedger:
        return copy.deepcopy(self)

    def all_safe(self) -> None:
        """What was answered so far can no longer be lost, but for what is in memory only."""
        for sent in self.sent:
            sent.safe = sent.safe or (sent.outcome is Outcome.DONE and not sent.volatile)


class RouteSession:
    """One process."""

    def __init__(
        self, disk: SimDisk, options: Options, *, clock: FakeClock | None = None, ledger: RouteLedger | None = None
    ) -> None:
        self.disk = disk
        self.options = options
        self.clock = clock or FakeClock()
        self.ledger = ledger or RouteLedger()
        self.engine = self._made()

    def _made(self) -> Engine:
        return Engine(ROOT, self.options, fs=self.disk, clock=self.clock, threaded=False)

    async def start(self) -> None:
        if self.engine.closing:
            self.engine = self._made()
        await self.engine.start()

    async def close(self) -> None:
        await self.settle()
        self.ledger.restarts.append(len(self.ledger.sent))
        await self.engine.close()
        if not self.engine.failed_shards:
            self.ledger.all_safe()

    async def settle(self, turns: int = SETTLING_TURNS) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)

    async def pass_time(self, ms: float) -> None:
        await self.clock.advance(ms)
        if ms >= 3 * self.options.disk_sync_ms and not self.engine.failed_shards:
            self.ledger.all_safe()

    async def together(self, *operations: Awaitable[Any]) -> None:
        await asyncio.gather(*operations)

    async def absorb(self) -> None:
        with contextlib.suppress(OSError, SegmentError):
            await self._ask(self.engine.upkeep.absorb_all())

    async def snapshot(self) -> None:
        with contextlib.suppress(OSError):
            await self._ask(self.engine.snapshotter.take())

    async def put(self, name: str, config: TopicConfig) -> None:
        if config.cap_records or config.cap_bytes:
            self.ledger.capped.add(name)
        await self._ask(self.engine.put_topic(name, config))

    async def drop(self, name: str) -> None:
        """Delete a topic; its name is not used again."""
        self.ledger.gone.add(name)
        for route in self.ledger.routes:
            if name in (route.definition.source, route.definition.dest) and route.deleted is None:
                route.deleted = Outcome.OPEN
        outcome, _ = await self._ask(self.engine.delete_topic(name))
        for route in self.ledger.routes:
            if name in (route.definition.source, route.definition.dest) and outcome is Outcome.DONE:
                route.deleted = Outcome.DONE

    async def append(self, name: str, count: int = 1, *, size: int = 10, tag: str | None = None) -> None:
        """Append records made for the occasion, if there is such a topic."""
        if not any(state.topic == name for state in self.engine.topics()):
            return
        durability = self.engine.state(name).config.durability
        volatile = durability is Durability.EPHEMERAL
        batch = [Sent(len(self.ledger.sent) + n, name, tag, size, volatile=volatile) for n in range(count)]
        self.ledger.sent += batch
        outcome, _ = await self._ask(
            self.engine.append(name, [NewRecord(msgspec.Raw(each.data), tag=tag) for each in batch])
        )
        for each in batch:
            each.outcome = outcome
            each.safe = outcome is Outcome.DONE and durability is Durability.FSYNC

    async def remove(self, name: str, tag: str) -> None:
        """Delete what has this tag."""
        for each in self.ledger.sent:
            each.deleted |= each.tag == tag
        from storage.records import TagMatch

        await self._ask(self.engine.delete_records(name, None, TagMatch(tag.encode())))

    async def route(self, name: str, source: str, dest: str, **more: Any) -> None:
        """Make a router, or define it anew."""
        definition = Definition(source=source, dest=dest, **more)
        route = next((each for each in self.ledger.routes if each.name == name and each.deleted is None), None)
        if route is not None and route.made is Outcome.REFUSED:
            self.ledger.routes.remove(route)  # there was none: this one begins here
            route = None
        if route is None:
            route = Route(name, definition, len(self.ledger.sent))
            self.ledger.routes.append(route)
        outcome, _ = await self._ask(self.engine.routers.put(name, definition))
        if route.made is not Outcome.DONE:
            route.made = outcome

    async def unroute(self, name: str) -> None:
        route = next((each for each in self.ledger.routes if each.name == name and each.deleted is None), None)
        if route is None:
            return
        route.deleted = Outcome.OPEN
        outcome, _ = await self._ask(self.engine.routers.delete(name))
        route.deleted = None if outcome is Outcome.REFUSED else outcome

    async def _ask(self, operation: Awaitable[Any]) -> tuple[Outcome, Any]:
        try:
            return Outcome.DONE, await operation
        except StorageFailed:
            return Outcome.OPEN, None
        except StorageError:
            return Outcome.REFUSED, None
