"""Descriptions of topics, partitions and brokers for v2: one broker leads all partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.auth import narrowed
from broker.kafka import BROKER_ID, settings

if TYPE_CHECKING:
    from storage import Engine


def names(engine: Engine, prefixes: tuple[str, ...]) -> list[str]:
    """All topics that the caller may see, sorted."""
    named = engine.catalog.named
    return [topic.name for prefix in narrowed(prefixes, "") for topic in named(prefix, "") if not topic.provisional]


def described(engine: Engine, topic: str) -> dict[str, Any]:
    """Raises TopicNotFound."""
    config = engine.topic(topic).config
    largest = engine.options.max_record_bytes
    configs = {name: settings.value_of(each, config, largest) for name, each in settings.SETTINGS.items()}
    return {"name": topic, "configs": configs, "partitions": partitions(engine, topic)}


def partitions(engine: Engine, topic: str) -> list[dict[str, Any]]:
    """Raises TopicNotFound."""
    return [
        {
            "partition": number,
            "leader": BROKER_ID,
            "replicas": [{"broker": BROKER_ID, "leader": True, "in_sync": True}],
        }
        for number in range(engine.topic(topic).config.partitions)
    ]
