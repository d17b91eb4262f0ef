"""Topics of cleanup.policy=compact: every record needs a key, since compaction goes by it. Pure."""

from __future__ import annotations

from typing import Final

from storage import CleanupPolicy, TopicConfig

#: The policies of such topics.
COMPACTED: Final = (CleanupPolicy.COMPACT, CleanupPolicy.BOTH)


def is_compacted(config: TopicConfig) -> bool:
    """Whether records without a key are refused."""
    return config.cleanup_policy in COMPACTED


def key_missing(topic: str, partition: int) -> str:
    """What is wrong with one, in Kafka's words."""
    return f"Compacted topic cannot accept message without key in topic partition {topic}-{partition}."
