"""Routers, and waiting until they have caught up.

Source: docs/reference/api.md#routers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from broker.auth import narrowed
from broker.service.predicates import check_topic_name, tag_match
from broker.service.topics import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, decode_cursor, encode_cursor
from schemas import RouterChange, RouterRequest
from storage.routers import check_router_name
from storage.state import tag_predicate
from storage.state.routers import Definition, Guarantee, Start

if TYPE_CHECKING:
    from storage import Engine
    from storage.routers import RouterState, Waited


async def put(engine: Engine, router: str, asked: RouterRequest) -> tuple[RouterState, bool]:
    """Create the router or replace its definition. True: it was created. Durable on return.

    Raises InvalidRequest, TopicNotFound, TopicIncompatible, RouterCycle, LimitReached, Unavailable.
    """
    return await engine.routers.put(router, definition_of(router, asked))


def definition_of(router: str, asked: RouterRequest) -> Definition:
    """The definition in a request. Raises InvalidRequest."""
    check_router_name(router)
    check_topic_name(asked.source, "source")
    check_topic_name(asked.dest, "dest")
    match = tag_match(asked.filter, "filter")
    return Definition(
        source=asked.source,
        dest=asked.dest,
        preserve_node=asked.preserve_node,
        preserve_tag=asked.preserve_tag,
        create_dest=asked.create_dest,
        filter=None if match is None else tag_predicate(match),
        allow_cycle=asked.allow_cycle,
        guarantee=Guarantee(asked.guarantee),
        start=Start(asked.start),
    )


async def change(engine: Engine, router: str, asked: RouterChange) -> RouterState:
    """Change the given fields of a router's definition. Durable on return.

    Raises InvalidRequest, RouterNotFound, TopicIncompatible, RouterCycle, Unavailable.
    """
    check_router_name(router)
    ends(asked.source, asked.dest)
    match = tag_match(asked.filter, "filter")
    named = asked.model_dump(include=asked.model_fields_set, by_alias=True)
    if "filter" in named:
        named["filter"] = None if match is None else tag_predicate(match)
    return await engine.routers.change(router, lambda old: Definition.from_map({**old.to_map(), **named}))


async def describe(engine: Engine, router: str) -> RouterState:
    """The state of a router. Raises InvalidRequest, RouterNotFound, Unavailable."""
    return await engine.routers.describe(router)


def ends(source: str | None, dest: str | None) -> list[str]:
    """The topics that a list of routers is filtered by. Raises InvalidRequest."""
    given = {"source": source, "dest": dest}
    found = {field: name for field, name in given.items() if name is not None}
    for field, name in found.items():
        check_topic_name(name, field)
    return [*found.values()]


def page(
    engine: Engine,
    *,
    prefix: str,
    source: str | None,
    dest: str | None,
    page_size: int | None,
    cursor: str | None,
    only: tuple[str, ...] = (),
) -> tuple[list[RouterState], str | None]:
    """A page of routers, ordered by name, and the cursor of the next page, if there is one.

    `only`: allowed beginnings of names; () = any.
    """
    ends(source, dest)
    size = min(page_size or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)
    after = decode_cursor(cursor) if cursor else ""
    found = [
        router
        for each in narrowed(only, prefix)
        for router in engine.routers.page(each, after, size + 1, source=source, dest=dest)
    ][: size + 1]
    if len(found) <= size:
        return found, None
    return found[:size], encode_cursor(found[size - 1].name)


async def delete(engine: Engine, router: str) -> bool:
    """Delete a router; False: it did not exist. On return, that is durable and the router copies nothing more."""
    return await engine.routers.delete(router)


async def caught_up(engine: Engine, topic: str) -> Waited | None:
    """Wait, at most 1 s, until routers to the topic have caught up: read your writes. None: there are no routers."""
    return await engine.routers.caught_up(topic)


async def all_caught_up(engine: Engine, topics: Iterable[str]) -> float | None:
    """`caught_up` for several topics at once. Returns the longest wait in ms; None: no routers."""
    waited = await asyncio.gather(*(engine.routers.caught_up(topic) for topic in topics))
    return max((each.wait_ms for each in waited if each is not None), default=None)
