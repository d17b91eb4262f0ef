"""Changing topics as their settings stand at that moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from storage import TopicConfig, TopicIncompatible
from storage.log import check_cleanup
from storage.state import check_partitions

if TYPE_CHECKING:
    from storage import Engine


def check(engine: Engine, name: str, config: TopicConfig) -> None:
    """Raises as the engine would, were the topic made or changed to be so."""
    topic = engine.catalog.topics.get(name)
    if topic is not None and topic.config.type is not config.type:
        raise TopicIncompatible(f"{name} is a {topic.config.type}; its type cannot be changed.", field="type")
    check_cleanup(config)
    check_partitions(engine.catalog, engine.options, name, config, topic)


async def change(engine: Engine, name: str, changed: Callable[[TopicConfig], TopicConfig]) -> None:
    """Give a topic other settings; durable on return. Raises as `changed`, TopicNotFound, and as the engine does.

    No other change comes between looking and writing, and a topic that is being deleted is not made again.
    """
    await engine.change_topic(name, changed)
