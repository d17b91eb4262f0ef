"""A session for workloads with routers, and a ledger of the routers that were requested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from storage import Durability, Options
from storage.records.values import TagMatch
from storage.state.routers.router import Definition
from tests.support.crash_ledger import Outcome
from tests.support.fake_clock import FakeClock
from tests.support.sent_session import Sent, SentLedger, SentSession
from tests.support.sim_disk import SimDisk


@dataclass(slots=True, eq=False)
class Route:
    """A router that was requested. `begins_at`: the number of the first record that is certainly copied."""

    name: str
    definition: Definition
    begins_at: int
    made: Outcome = Outcome.OPEN
    deleted: Outcome | None = None


@dataclass(slots=True)
class RouteLedger(SentLedger):
    """What was requested and answered. `restarts`: the number of the first record after each end of a process."""

    routes: list[Route] = field(default_factory=list[Route])
    restarts: list[int] = field(default_factory=list[int])


class RouteSession(SentSession[RouteLedger]):
    """One process."""

    settling_turns = 300  # within which everything is forwarded that can be

    def __init__(
        self, disk: SimDisk, options: Options, *, clock: FakeClock | None = None, ledger: RouteLedger | None = None
    ) -> None:
        super().__init__(disk, options, ledger or RouteLedger(), clock)

    async def close(self) -> None:
        await self.settle()
        self.ledger.restarts.append(len(self.ledger.sent))
        await super().close()

    async def drop(self, name: str) -> Outcome:
        """Delete a topic, and its routers with it. Its name is not used again."""
        of_it = [route for route in self.ledger.routes if name in (route.definition.source, route.definition.dest)]
        for route in of_it:
            if route.deleted is None:
                route.deleted = Outcome.OPEN
        outcome = await super().drop(name)
        if outcome is Outcome.DONE:
            for route in of_it:
                route.deleted = Outcome.DONE
        return outcome

    def _sending(self, batch: Sequence[Sent], durability: Durability) -> None:
        for each in batch:
            each.volatile = durability is Durability.EPHEMERAL

    async def remove(self, name: str, tag: str) -> None:
        """Delete the records with this tag."""
        for each in self.ledger.sent:
            each.deleted |= each.tag == tag
        await self._ask(self.engine.delete_records(name, None, TagMatch(tag.encode())))

    async def route(self, name: str, source: str, dest: str, **more: Any) -> None:
        """Make a router, or define it anew."""
        definition = Definition(source=source, dest=dest, **more)
        route = next((each for each in self.ledger.routes if each.name == name and each.deleted is None), None)
        if route is not None and route.made is Outcome.REFUSED:
            self.ledger.routes.remove(route)  # there was none, so this one begins here
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
