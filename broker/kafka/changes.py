"""Changes the settings of a topic, based on its current settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from storage import TopicConfig, TopicIncompatible
from storage.log import check_cleanup
from storage.state import check_partitions

if TYPE_CHECKING:
    from storage import Engine


def check(engine: Engine, name: str, config: TopicConfig) -> None:
    """Raises the error that the engine would raise if the topic were created or changed with this config."""
    topic = engine.catalog.topics.get(name)
    if topic is not None and topic.config.type is not config.type:
        raise TopicIncompatible(f"{name} is a {topic.config.type}; its type cannot be changed.", field="type")
    check_cleanup(config)
    check_partitions(engine.catalog, engine.options, name, config, topic)


async def change(engine: Engine, name: str, changed: Callable[[TopicConfig], TopicConfig]) -> None:
    """Change a topic's settings; durable on return. Raises TopicNotFound, and the errors of `changed` and the engine.

    No other change can happen between the read and the write. A topic that is being deleted is not created again.
    """
    await engine.change_topic(name, changed)
