"""Limits on partitions, and what a topic with several partitions cannot be. Pure.

Source: docs/reference/api.md#partitions.
"""

from __future__ import annotations

from typing import NoReturn

from storage.errors import InvalidRequest, LimitReached, TopicIncompatible
from storage.options import Options
from storage.records import MAX_PARTITIONS, TopicConfig, TopicType
from storage.state.catalog import Catalog, Topic


def check_partitions(
    catalog: Catalog, options: Options, name: str, config: TopicConfig, topic: Topic | None, within: str = ""
) -> None:
    """Check the partitions of a config for the topic (None: a new one); `within` is the config's path in the
    request.

    Raises InvalidRequest, LimitReached, TopicIncompatible.
    """
    there = topic.config.partitions if topic is not None else 1
    wanted, limit, field = config.partitions, options.max_partitions, f"{within}partitions"
    if not 1 <= wanted <= MAX_PARTITIONS:
        raise InvalidRequest(f"partitions must be 1 to {MAX_PARTITIONS}.", field=field)
    if wanted < there:
        raise TopicIncompatible(f"{name} has {there} partitions; they can be added, not removed.", field=field)
    if limit and wanted > max(limit, there):
        raise LimitReached(f"A topic can have {limit} partitions at most.", limit="max_partitions", max=limit)
    if config.dead_letter is not None and config.dead_letter in catalog.partitioned:
        refuse_dead_letter(config.dead_letter, f"{within}dead_letter")
    if wanted == 1:
        return
    if config.type is TopicType.QUEUE:
        raise _needs_one("a queue has one", field)
    if there > 1:
        return
    routes = catalog.routes
    if topic is not None and (topic.topic_id in routes.out_of or topic.topic_id in routes.into):
        raise _needs_one(f"{name} is an end of a router", field)
    queue = queue_with_dead_letter(catalog, name)
    if queue is not None:
        refuse_dead_letters(name, queue.name)


def check_unpartitioned(catalog: Catalog, name: str, what: str, field: str) -> None:
    """Raises TopicIncompatible for a topic with several partitions; `what` says what such a topic cannot be."""
    if name in catalog.partitioned:
        raise _needs_one(f"{name} has several, so it cannot be {what}", field)


def queue_with_dead_letter(catalog: Catalog, name: str) -> Topic | None:
    """A queue whose dead letter topic has that name."""
    return next((each for each in catalog.by_id.values() if each.config.dead_letter == name), None)


def refuse_dead_letter(name: str, field: str) -> NoReturn:
    """Raises TopicIncompatible: the topic has several partitions, so it cannot be a dead letter topic."""
    raise _needs_one(f"{name} has several, so it takes no dead letters", field)


def refuse_dead_letters(name: str, queue: str) -> NoReturn:
    """Raises TopicIncompatible: the topic takes the dead letters of that queue, so it cannot have several
    partitions."""
    raise _needs_one(f"{name} takes the dead letters of {queue}", "partitions")


def refuse_partitions(name: str, router: str) -> None:
    """Raises TopicIncompatible: the topic is an end of that router, so it cannot have several partitions."""
    raise _needs_one(f"{name} is an end of the router {router}", "partitions")


def _needs_one(why: str, field: str) -> TopicIncompatible:
    return TopicIncompatible(f"This takes a topic of one partition: {why}.", field=field)
