"""Routers, and waiting for them.

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
    """Make the router or replace its definition. True when it was made. On return the change is durable.

    Raises InvalidRequest, TopicNotFound, TopicIncompatible, RouterCycle, LimitReached, Unavailable.
    """
    return await engine.routers.put(router, definition_of(router, asked))


def definition_of(router: str, asked: RouterRequest) -> Definition:
    """What a request makes of the router. Raises InvalidRequest."""
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
    """Change what is named of the router's definition. On return the change is durable.

    Raises InvalidRequest, RouterNotFound, TopicIncompatible, RouterCycle, Unavailable.
    """
    check_router_name(router)
    ends(asked.source, asked.dest)
    match = tag_match(asked.filter, "filter")
    named = asked.model_dump(include=asked.model_fields_set, by_alias=True)
    if "filter" in named:
        named["filter"] = None if match is None else tag_predicate(match)
    return await engine.routers.change(router, lambda old: Definition.from_map({**old.to_map(), **named}))


def describe(engine: Engine, router: str) -> RouterState:
    """Raises InvalidRequest, RouterNotFound."""
    return engine.routers.state(router)


def ends(source: str | None, dest: str | None) -> list[str]:
    """The topics by which routers are asked for. Raises InvalidRequest."""
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
    """One page of routers in byte order, and the cursor of the next one when more follow.

    `only`: none but those that begin with one of these; () = any.
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
    """False when there was none. On return the deletion is durable, and nothing is copied any more."""
    return await engine.routers.delete(router)


async def caught_up(engine: Engine, topic: str) -> Waited | None:
    """Read your writes: wait, at most 1 s, for what routers have still to bring to the topic. None: there are none."""
    return await engine.routers.caught_up(topic)


async def all_caught_up(engine: Engine, topics: Iterable[str]) -> float | None:
    """`caught_up` of several topics at once: how long the slowest took, in ms. None: no router leads to any."""
    waited = await asyncio.gather(*(engine.routers.caught_up(topic) for topic in topics))
    return max((each.wait_ms for each in waited if each is not None), default=None)
