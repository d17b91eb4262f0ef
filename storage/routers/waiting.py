"""Lets a read of a topic wait for the routers into it, so that it finds what the sources held when it began.

This follows chains: first the routers into a router's source, then the router itself. Blocked routers are named in the
answer and not waited for.

Source: docs/reference/api.md#routers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

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


def lags(catalog: Catalog, topic_id: int) -> bool:
    """Whether `caught_up` would wait."""
    return _behind(catalog, upstream(catalog, topic_id))


def _behind(catalog: Catalog, routers: Iterable[Router]) -> bool:
    return any(router.blocked is None and router.position < _head(catalog, router) for router in routers)


async def caught_up(catalog: Catalog, topic_id: int) -> Waited:
    """Wait, at most 1 s, until every router into the topic that is not blocked has passed the present heads."""
    routers = upstream(catalog, topic_id)
    begin = asyncio.get_running_loop().time()
    if _behind(catalog, routers):
        heads = {router.source_id: _head(catalog, router) for router in routers}
        try:
            async with asyncio.timeout(MAX_WAIT_S):
                await _pass(catalog, topic_id, heads, set(), MAX_HOPS)
        except TimeoutError:
            pass
    elapsed_ms = (asyncio.get_running_loop().time() - begin) * 1000
    return Waited(elapsed_ms, sorted(router.name for router in routers if router.blocked is not None))


def _head(catalog: Catalog, router: Router) -> int:
    source = catalog.by_id.get(router.source_id)
    return source.log.head if source is not None else 0


async def _pass(catalog: Catalog, topic_id: int, heads: dict[int, int], seen: set[int], hops: int) -> None:
    """Records from more than `hops` routers away cannot arrive."""
    for router in list(catalog.routes.into.get(topic_id, ())):
        if router.router_id in seen:
            continue
        seen.add(router.router_id)
        target = heads.get(router.source_id, 0)
        if hops > 1 and router.source_id in catalog.routes.into:
            await _pass(catalog, router.source_id, heads, seen, hops - 1)
            target = _head(catalog, router)  # the copies that were waited for are below this seq
        await _reach(router, target)


async def _reach(router: Router, target: int) -> None:
    if router.blocked is None and router.position < target:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (target, waiter)
        router.waiters.append(entry)
        try:
            await waiter
        finally:
            if entry in router.waiters:
                router.waiters.remove(entry)
