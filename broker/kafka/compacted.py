"""Topics with cleanup.policy=compact: each record needs a key, because compaction works by key. Pure."""

from __future__ import annotations

from typing import Final

from storage import CleanupPolicy, TopicConfig

#: The policies that compact.
COMPACTED: Final = (CleanupPolicy.COMPACT, CleanupPolicy.BOTH)


def is_compacted(config: TopicConfig) -> bool:
    """Whether records without a key are refused."""
    return config.cleanup_policy in COMPACTED


def key_missing(topic: str, partition: int) -> str:
    """The error message for a record without a key, in Kafka's words."""
    return f"Compacted topic cannot accept message without key in topic partition {topic}-{partition}."
