"""Limits on requests about consumers.

Source: docs/reference/api.md#conventions, docs/reference/api.md#consumers.
"""

from __future__ import annotations

import re

from storage.errors import InvalidRequest, TopicIncompatible
from storage.log import check_text
from storage.records import Durability, TopicType
from storage.state import Topic
from storage.state.consumers import ConsumerConfig, Start

CONSUMER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:%-]{0,511}")
MAX_PERSIST_EVERY = 1_000_000_000
MAX_ATTEMPT_KEY_BYTES = 128


def check_consumer_name(name: str) -> None:
    """Raises InvalidRequest for a name that does not match the pattern."""
    if not CONSUMER_NAME.fullmatch(name):
        raise InvalidRequest(
            "A consumer name is 1 to 512 characters from A-Z a-z 0-9 . _ : % - and begins with a letter, a digit or _.",
            field="consumer",
        )


def check_consumer_config(config: ConsumerConfig) -> None:
    """Raises InvalidRequest for settings out of range."""
    if not 1 <= config.persist_every <= MAX_PERSIST_EVERY:
        raise InvalidRequest(f"persist_every must be 1 to {MAX_PERSIST_EVERY}.", field="persist_every")


def check_attempt_key(key: str | None) -> None:
    """Raises InvalidRequest for a key that is empty, too long or not text."""
    if key is not None:
        check_text(key, "attempt_key", MAX_ATTEMPT_KEY_BYTES)


def check_kind(topic: Topic) -> None:
    """Raises InvalidRequest for an ephemeral topic and TopicIncompatible for a queue: neither can have consumers."""
    if topic.config.durability is Durability.EPHEMERAL:
        raise InvalidRequest(
            f"{topic.name} is ephemeral, and a cursor must not outlive its records: it has no consumers.", field="topic"
        )
    if topic.config.type is TopicType.QUEUE:
        raise TopicIncompatible(f"{topic.name} is a queue: its jobs are claimed, it has no consumers.", field="type")


def start_seq(topic: Topic, start: Start, field: str = "start") -> int:
    """The cursor that `start` means now. Losses before the oldest record do not count for this reader.

    Raises InvalidRequest for a seq that is negative or beyond the head.
    """
    log = topic.log
    if start == "head":
        return log.head
    if start == "earliest":
        return log.marks.live_floor - 1
    if not 0 <= start <= log.head:
        raise InvalidRequest(f"{field} must be 0 to {log.head}, the newest seq of {topic.name}.", field=field)
    return start
