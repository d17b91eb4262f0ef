"""The orders and questions of cell 0, which has the graph of all routers of a set, to the cells that run them.

    router_make, router_unmake, router_look     one at a time, by the name of the router
    router_list, router_state, router_end       may be called at any time, twice or late

An order that cell 0 has given up is not carried out later: see `storage.platform.Era`.

Source: docs/cells.md#routers-and-dead-letters-between-cells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from storage.errors import RouterNotFound, StorageError
from storage.log import Logs
from storage.platform import Eras, Method
from storage.routers.admin import RouterAdmin
from storage.state.routers import Definition, Router, RouterState
from storage.topics import Placing

#: The cell that has the graph.
GRAPH_CELL: Final = 0
#: Routers of one answer of `router_list`.
PAGE: Final = 1000

T = TypeVar("T")


class Orders:
    """The methods of a cell that runs routers. Used only on the event loop."""

    def __init__(
        self,
        logs: Logs,
        admin: RouterAdmin,
        placing: Placing,
        made: Callable[[Router], RouterState],
        state: Callable[[str], RouterState],
    ) -> None:
        """`made` is called with a router that was created or changed, and returns its state. `state` finds one by its
        name."""
        self._logs = logs
        self._admin = admin
        self._placing = placing
        self._made = made
        self._state = state
        self._eras = Eras()

    @property
    def methods(self) -> dict[str, Method]:
        """The methods by name."""
        return {
            "router_make": lambda argument: self._go_on(self._make(*argument)),
            "router_unmake": lambda argument: self._go_on(self._unmake(*argument)),
            "router_look": lambda argument: self._look(*argument),
            "router_list": self._list,
            "router_state": self._describe,
            "router_end": self._end,
        }

    async def _go_on(self, work: Coroutine[Any, Any, T]) -> T:
        """An order that has begun continues when its caller has gone. Later questions wait for it."""
        return await asyncio.shield(asyncio.ensure_future(work))

    async def _make(self, era: int, name: str, definition: dict[str, Any]) -> tuple[int, bool, Any] | tuple[int]:
        """(router_id, whether it is new, its state) of the router, created or changed. (cell,) if its destination is in
        that cell, or will be created there."""
        wanted = Definition.from_map(definition)
        for end in (wanted.source, wanted.dest):
            if end not in self._logs.catalog.topics:
                await self._placing.find(end)  # a cell that hangs is waited for here, and not with the lock
        # The era is checked while the lock is held, so that what a later order finds does not change afterwards.
        async with self._admin.one_at_a_time:
            self._eras.enter(GRAPH_CELL, era)
            self._logs.check_open()
            neighbours = self._logs.neighbours
            assert neighbours is not None
            if wanted.dest not in self._logs.catalog.topics:
                cell = await self._placing.here(wanted.dest)
                if cell != neighbours.me:
                    return (cell,)
            router, created = await self._admin.put_held(name, wanted)
            return router.router_id, created, msgspec.to_builtins(self._made(router))

    async def _unmake(self, era: int, name: str) -> bool:
        """Whether there was such a router. Now there is none."""
        async with self._admin.one_at_a_time:
            self._eras.enter(GRAPH_CELL, era)
            return await self._admin.delete_held(name)

    async def _look(self, era: int, name: str) -> tuple[int, dict[str, Any]] | None:
        """(router_id, definition) of the router with that name. None if there is none, and no earlier order can create
        it."""
        async with self._admin.one_at_a_time:
            self._eras.enter(GRAPH_CELL, era)
            router = self._admin.find_held(name)
            return None if router is None else (router.router_id, router.definition.to_map())

    async def _list(self, argument: Any) -> list[tuple[str, int]]:
        """(name, router_id) of routers in bytewise order of their names, from those after this name."""
        self._logs.check_open()
        return [
            (router.name, router.router_id) for router in islice(self._logs.catalog.routes.named(after=argument), PAGE)
        ]

    async def _describe(self, argument: Any) -> Any:
        """The state of a router. None if there is none with that name."""
        self._logs.check_open()
        try:
            return msgspec.to_builtins(self._state(argument))
        except RouterNotFound:
            return None

    async def _end(self, argument: Any) -> None:
        """This topic of another cell was deleted: end the routers that copy from it."""
        topic_id = argument
        self._logs.check_open()
        for router in [*self._logs.catalog.routes.out_of.get(topic_id, ())]:
            with suppress(StorageError):  # it finds out itself, and ends
                await self._admin.end(router)
