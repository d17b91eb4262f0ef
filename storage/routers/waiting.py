"""Makes a read of a topic wait for the routers into it, so that it finds the records that the sources had when it
began.

This follows chains, also into other cells: first the routers into a router's source, then the router itself. Blocked
routers are named in the answer, and nobody waits for them.

Source: docs/reference/api.md#routers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from storage.errors import StorageError
from storage.log import Logs
from storage.routers.sources import ForeignSources
from storage.state import Catalog
from storage.state.routers import MAX_HOPS, Router

MAX_WAIT_S = 1.0


class Waited(NamedTuple):
    """How long a read has waited for routers, in ms, and the names of those that were blocked."""

    wait_ms: float
    blocked: list[str]


def upstream(catalog: Catalog, topic_id: int) -> list[Router]:
    """All routers on paths into a topic, nearest first. Each appears once, also in cycles."""
    found: dict[int, Router] = {}
    seen = {topic_id}
    queue = deque([topic_id])
    while queue:
        for router in catalog.routes.into.get(queue.popleft(), ()):
            found[router.router_id] = router
            if router.source_id not in seen:
                seen.add(router.source_id)
                queue.append(router.source_id)
    return list(found.values())


class Waiting:
    """Waits for the routers of one engine."""

    def __init__(self, logs: Logs, foreign: ForeignSources) -> None:
        self._logs = logs
        self._foreign = foreign

    def lags(self, topic_id: int) -> bool:
        """Whether `caught_up` would wait."""
        return self._behind(upstream(self._logs.catalog, topic_id))

    def _behind(self, routers: Iterable[Router]) -> bool:
        return any(
            router.blocked is None
            and (self._logs.catalog.is_foreign(router.source_id) or router.position < self._head(router))
            for router in routers
        )

    def _head(self, router: Router) -> int:
        source = self._logs.catalog.by_id.get(router.source_id)
        return source.log.head if source is not None else 0

    async def caught_up(self, topic_id: int) -> Waited:
        """Wait, at most 1 s, until every router into the topic that is not blocked has passed the present heads."""
        begin = asyncio.get_running_loop().time()
        blocked = await self.wait_caught_up(topic_id, MAX_HOPS)
        return Waited((asyncio.get_running_loop().time() - begin) * 1000, blocked)

    async def wait_caught_up(self, topic_id: int, hops: int) -> list[str]:
        """The same. Returns the names of blocked routers. Records from more than `hops` routers away cannot arrive."""
        routers = upstream(self._logs.catalog, topic_id)
        away: set[str] = set()
        if hops > 0 and self._behind(routers):
            heads = {router.source_id: self._head(router) for router in routers}
            try:
                async with asyncio.timeout(MAX_WAIT_S):
                    await self._pass(topic_id, heads, set(), hops, away)
            except TimeoutError:
                pass
        return sorted(away.union(router.name for router in routers if router.blocked is not None))

    async def _pass(self, topic_id: int, heads: dict[int, int], seen: set[int], hops: int, away: set[str]) -> None:
        catalog = self._logs.catalog
        for router in list(catalog.routes.into.get(topic_id, ())):
            if router.router_id in seen:
                continue
            seen.add(router.router_id)
            target = heads.get(router.source_id, 0)
            if catalog.is_foreign(router.source_id):
                target = await self._head_there(router, hops, away)
            elif hops > 1 and router.source_id in catalog.routes.into:
                await self._pass(router.source_id, heads, seen, hops - 1, away)
                target = self._head(router)  # the copies that were waited for are below this seq
            await router.reach(target)

    async def _head_there(self, router: Router, hops: int, away: set[str]) -> int:
        """The head of a source in another cell, once that source has what its own sources have."""
        source = self._foreign.get(router.source_id)
        if source is None or router.blocked is not None:
            return 0
        try:
            head, blocked = await source.caught_up(router, hops - 1)
        except StorageError:
            away.add(router.name)
            return 0
        away.update(blocked)
        return head
