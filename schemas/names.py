"""Valid names of topics and consumers.

Source: docs/reference/api.md#conventions.
"""

from __future__ import annotations

import re

MAX_TOPIC_NAME_BYTES = 255

#: For the OpenAPI document. `is_topic_name` checks names.
TOPIC_NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._:-]{0,254}$"

ROUTER_NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._:>-]{0,254}$"

#: With %, because consumers of groups have percent-encoded group ids in their names.
CONSUMER_NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._:%-]{0,511}$"

_TOPIC_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,254}")
_CONSUMER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:%-]{0,511}")


def is_topic_name(name: str) -> bool:
    """Whether `name` is a valid topic name: 1 to 255 of A-Z a-z 0-9 . _ : -, not beginning with . : or -."""
    # Not re.match with "$", which accepts a trailing newline.
    return _TOPIC_NAME.fullmatch(name) is not None


def is_consumer_name(name: str) -> bool:
    """Whether `name` is a valid consumer name: like a topic name, but also %, and up to 512 characters."""
    return _CONSUMER_NAME.fullmatch(name) is not None
