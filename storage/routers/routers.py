"""The routers of an engine: all operations, and the lifetime of their forwarders.

All methods belong to the loop that started the engine.

Source: docs/reference/api.md#routers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

import structlog

from storage.errors import NotMine, RouterNotFound, StorageError
from storage.log import Appender
from storage.platform import Method
from storage.reads import Reader
from storage.routers.admin import RouterAdmin, check_router_name
from storage.routers.departures import Departures
from storage.routers.forwarder import Forwarder, Forwarding
from storage.routers.graph import Graph
from storage.routers.orders import GRAPH_CELL, Orders
from storage.routers.sources import ForeignSources
from storage.routers.waiting import Waited, Waiting
from storage.routers.windows import Windows
from storage.state import Catalog, Log, refuse_partitions
from storage.state.routers import Definition, Router, RouterState
from storage.telemetry import Tracer
from storage.topics import Placing, States, TopicAdmin

_log = structlog.get_logger("storage")

PERSIST_INTERVAL_S = 1.0
#: How long the deletion of a topic waits for its routers in other cells.
GONE_S = 5.0
#: A router that has not caught up for this long, and has fallen this many seqs further behind, is logged.
BEHIND_AFTER_MS, BEHIND_BY = 60_000, 10_000


class Routers:
    """See the module."""

    def __init__(
        self,
        appender: Appender,
        reader: Reader,
        topics: TopicAdmin,
        states: States,
        placing: Placing,
        tracer: Callable[[], Tracer | None],
    ) -> None:
        """`tracer`: see `Forwarding`."""
        self._logs = logs = appender.logs
        self._admin = RouterAdmin(logs, topics, placing)
        self._orders = Orders(logs, self._admin, placing, self._made, self.state)
        #: In cell 0 of a set: the routers of all cells.
        self.graph = Graph(logs, states, placing, self._orders)
        #: Routers of this cell that have ended, until cell 0 is notified.
        self._ended: set[str] = set()
        self._telling: asyncio.Task[None] | None = None
        self._forwarders: dict[int, Forwarder] = {}
        self._stopped = False
        self.windows = Windows(logs, reader)
        self.foreign = ForeignSources(logs, self._foreign_changed)
        self.forwarding = Forwarding(appender, self.windows, self.foreign, tracer)
        self._waiting = Waiting(logs, self.foreign)
        #: The methods that other cells call about sources.
        self.departures = Departures(logs, topics, self.windows, self._waiting)
        #: Routers whose sources in other cells are gone, while they are being deleted.
        self._ending: dict[int, asyncio.Task[None]] = {}

    @property
    def methods_for_neighbours(self) -> dict[str, Method]:
        """What other cells call, by name."""
        return {**self.departures.methods, **self._orders.methods, **self.graph.methods}

    # -- life ----------------------------------------------------------------------------------------------------------

    def adopt(self, catalog: Catalog) -> None:
        """Use this catalog from now on."""
        catalog.routes.on_drop = self._dropped
        self._logs.publisher.on_routed = self._on_commit

    def start(self) -> None:
        """After recovery: forwarding continues from the cursors."""
        for router in list(self._logs.catalog.routes.by_id.values()):
            self._kick(router)
        if self._has_graph:
            self.graph.start()
        self._logs.runtime.supervisor.start("routers", PERSIST_INTERVAL_S, self._persist)

    async def stop(self) -> None:
        """Stop forwarding and write the cursors."""
        self._stopped = True
        await self.graph.stop()
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)
        for forwarder in list(self._forwarders.values()):
            await forwarder.stop()
        await self.foreign.stop()
        await asyncio.gather(*self._ending.values(), return_exceptions=True)
        await self.windows.stop()
        if self._logs.ready:
            await self._persist()

    def _kick(self, router: Router) -> None:
        forwarder = self._forwarders.get(router.router_id)
        if forwarder is None or forwarder.router is not router:
            forwarder = self._forwarders[router.router_id] = Forwarder(self.forwarding, router)
        if not self._stopped:
            forwarder.kick()

    def _on_commit(self, log: Log) -> None:
        """Something was committed to this log: wake routers that read it, and routers into it that were refused."""
        routes = self._logs.catalog.routes
        if not routes.by_id or not self._logs.ready:
            return
        for router in routes.out_of.get(log.topic_id, ()):
            self._kick(router)
        for router in routes.into.get(log.topic_id, ()):
            if router.blocked is not None:
                forwarder = self._forwarders.get(router.router_id)
                if forwarder is not None:
                    forwarder.retry()

    def _foreign_changed(self, topic_id: int, error: str | None) -> None:
        """A source in another cell has new records, is gone, or cannot be read for now."""
        source = self.foreign.known(topic_id)
        for router in list(self._logs.catalog.routes.out_of.get(topic_id, ())):
            forwarder = self._forwarders.get(router.router_id)
            if source is not None and source.gone:
                self._end(router)
            elif forwarder is not None and error is not None:
                forwarder.block(error)
            elif forwarder is not None:
                forwarder.unblock()

    def _end(self, router: Router) -> None:
        if router.router_id not in self._ending and not self._stopped:
            task = self._logs.runtime.loop.create_task(self._delete_ended(router), name="storage-router-end")
            self._ending[router.router_id] = task
            task.add_done_callback(lambda _: self._ending.pop(router.router_id, None))

    async def _delete_ended(self, router: Router) -> None:
        try:
            ended = await self._admin.end(router)
        except StorageError as error:
            _log.warning("router_not_ended", router=router.name, error=str(error))  # `_persist` tries again
            return
        if ended:
            _log.warning("router_ended", router=router.name, source=router.definition.source, reason="recreated")

    def _dropped(self, router: Router) -> None:
        if self._logs.neighbours is not None and self._logs.ready and not self._stopped:
            self._ended.add(router.name)
            if self._telling is None or self._telling.done():
                self._telling = self._logs.runtime.loop.create_task(self._tell(), name="storage-routers-ended")
        if router.source_id not in self._logs.catalog.routes.out_of:
            self.foreign.release(router.source_id)
        router.give_up_waiters()
        forwarder = self._forwarders.pop(router.router_id, None)
        if forwarder is not None:
            forwarder.retry()  # it finds that its router is gone

    async def _tell(self) -> None:
        """Tell cell 0 which routers have ended. If a call fails, cell 0 asks later."""
        await asyncio.sleep(0)  # several may end at once
        names, self._ended = [*self._ended], set()
        if self._has_graph:
            await self.graph.methods["graph_report"](names)
        else:
            with suppress(StorageError):
                await self._ask_graph("graph_report", names)

    async def _ask_graph(self, method: str, argument: Any) -> Any:
        neighbours = self._logs.neighbours
        assert neighbours is not None
        return await neighbours.call(GRAPH_CELL, method, argument)

    async def _persist(self) -> None:
        """Write cursors that have moved without a copy."""
        if not self.forwarding.running:
            self.windows.forget()
        self.departures.forget()
        self._report_lag()
        for topic_id in self.foreign.gone():
            self._foreign_changed(topic_id, None)
        for forwarder in list(self._forwarders.values()):
            if forwarder.router.position > forwarder.router.cursor:
                try:
                    await forwarder.persist()
                except StorageError as error:
                    _log.warning("router_cursor_not_written", router=forwarder.router.name, error=str(error))

    def _report_lag(self) -> None:
        now_ms = self._logs.monotonic_ms()
        for forwarder in self._forwarders.values():
            router = forwarder.router
            lag = self._lag(router)
            if not lag or router.blocked is not None:  # a blocked router was logged already
                forwarder.behind = None
            elif forwarder.behind is None:
                forwarder.behind = (now_ms, lag)
            elif now_ms - forwarder.behind[0] >= BEHIND_AFTER_MS:
                if lag >= forwarder.behind[1] + BEHIND_BY:
                    _log.warning("router_behind", router=router.name, lag=lag)
                forwarder.behind = (now_ms, lag)

    def _lag(self, router: Router) -> int:
        source = self._logs.catalog.by_id.get(router.source_id)
        foreign = self.foreign.known(router.source_id) if source is None else None
        head = source.log.head if source is not None else foreign.head if foreign is not None else 0
        return max(0, head - router.position)

    # -- operations ----------------------------------------------------------------------------------------------------

    async def put(self, name: str, definition: Definition) -> tuple[RouterState, bool]:
        """Create the router or change its definition. True if it was created. Durable on return. A cancelled call
        continues.

        Raises InvalidRequest, TopicNotFound, TopicIncompatible, RouterCycle, LimitReached, Unavailable; in a set of
        cells other than in cell 0, NotMine.
        """
        self._check_graph(name)
        return await asyncio.shield(asyncio.ensure_future(self._put(name, definition)))

    async def _put(self, name: str, definition: Definition) -> tuple[RouterState, bool]:
        if self._has_graph:
            return await self.graph.put(name, definition)
        router, created = await self._admin.put(name, definition)
        return self._made(router), created

    def _made(self, router: Router) -> RouterState:
        """Count the router as created or changed."""
        self._kick(router)
        return self.state_of(router)

    @property
    def _has_graph(self) -> bool:
        neighbours = self._logs.neighbours
        return neighbours is not None and neighbours.me == GRAPH_CELL

    def _check_graph(self, name: str) -> None:
        """Raises NotMine where the routers of the set are not changed, NotReady."""
        self._logs.check_open()
        if self._logs.neighbours is not None and not self._has_graph:
            raise NotMine(name, GRAPH_CELL)

    async def change(self, name: str, changed: Callable[[Definition], Definition]) -> RouterState:
        """Change the router's definition by a function of the present one. Durable on return. A cancelled call
        continues. Raises RouterNotFound, and as `changed` and `put`."""
        self._check_graph(name)
        return await asyncio.shield(asyncio.ensure_future(self._change(name, changed)))

    async def _change(self, name: str, changed: Callable[[Definition], Definition]) -> RouterState:
        if self._has_graph:
            return await self.graph.change(name, changed)
        return self._made(await self._admin.alter(name, changed))

    async def delete(self, name: str) -> bool:
        """Delete the router; False when there is none. Durable on return. A cancelled call continues."""
        self._check_graph(name)
        delete = self.graph.delete if self._has_graph else self._admin.delete
        return await asyncio.shield(asyncio.ensure_future(delete(name)))

    async def describe(self, name: str) -> RouterState:
        """The state of a router of this engine or, in a set, of the cell that runs it. Raises InvalidRequest,
        RouterNotFound, NotMine, Unavailable."""
        if self._logs.neighbours is None:
            return self.state(name)
        self._check_graph(name)
        return await self.graph.describe(name)

    async def check_ends(self, topic: str, look: bool) -> None:
        """Raises TopicIncompatible if a router of the set has this topic as source or dest, and Unavailable if cell 0
        cannot be asked. `look`: leave out those that have ended."""
        if self._logs.neighbours is None:
            return
        ask = self.graph.methods["graph_ends"] if self._has_graph else partial(self._ask_graph, "graph_ends")
        names = await ask([topic, look])
        if names:
            refuse_partitions(topic, names[0])

    async def out_of(self, topic: str) -> set[tuple[str, int]]:
        """(name, router_id) of the routers out of a topic of this engine into other cells; none if they cannot be asked
        for now."""
        if self._logs.neighbours is None:
            return set()
        return await self._ask_about("graph_out_of", [topic, self._logs.neighbours.me])

    async def topic_gone(self, name: str, topic_id: int, routers: set[tuple[str, int]]) -> list[str]:
        """A topic of this engine was deleted, which these routers led out of. Returns the names of those that have
        ended; the others end when their cells can be reached again."""
        if self._logs.neighbours is None or not routers:
            return []
        still = await self._ask_about("graph_topic_gone", [topic_id, name, self._logs.neighbours.me], routers)
        return sorted(name for name, _ in routers - still)

    async def _ask_about(self, method: str, argument: Any, otherwise: Iterable[Any] = ()) -> set[tuple[str, int]]:
        try:
            async with asyncio.timeout(GONE_S):
                if self._has_graph:
                    found = await self.graph.methods[method](argument)
                else:
                    found = await self._ask_graph(method, argument)
        except (StorageError, TimeoutError):
            found = otherwise
        return {(name, router_id) for name, router_id in found}

    def state(self, name: str) -> RouterState:
        """Of a router of this engine. Raises InvalidRequest, RouterNotFound."""
        check_router_name(name)
        router = self._logs.catalog.routes.by_name.get(name)
        if router is None:
            raise RouterNotFound(name)
        return self.state_of(router)

    def state_of(self, router: Router) -> RouterState:
        return RouterState(
            name=router.name,
            definition=router.definition,
            cursor_seq=router.position,
            lag=self._lag(router),
            forwarded_total=router.forwarded,
            blocked=router.blocked,
            lost=router.lost,
            hop_limited=router.hop_limited,
        )

    def page(
        self, prefix: str = "", after: str = "", limit: int = 100, *, source: str | None = None, dest: str | None = None
    ) -> list[RouterState]:
        """Routers in bytewise order of their names, from those after `after`."""
        found = (
            router
            for router in self._logs.catalog.routes.named(prefix, after)
            if source in (None, router.definition.source) and dest in (None, router.definition.dest)
        )
        return [self.state_of(router) for router in islice(found, limit)]

    async def caught_up(self, topic: str) -> Waited | None:
        """Wait, at most 1 s, until a topic has what the sources of its routers have now. None if it has no routers.

        Watches begin with this too. A missing topic has no routers.
        """
        catalog = self._logs.catalog
        found = catalog.topics.get(topic)
        if found is None or found.topic_id not in catalog.routes.into:
            return None
        return await self._waiting.caught_up(found.topic_id)

    def lags(self, topic: str) -> bool:
        """Whether `caught_up` would wait."""
        catalog = self._logs.catalog
        found = catalog.topics.get(topic)
        return found is not None and found.topic_id in catalog.routes.into and self._waiting.lags(found.topic_id)
