"""What topics may be called.

Source: docs/reference/api.md#conventions.
"""

from __future__ import annotations

import re

MAX_TOPIC_NAME_BYTES = 255

#: As shown in the OpenAPI document; `is_topic_name` decides.
TOPIC_NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._:-]{0,254}$"

ROUTER_NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._:>-]{0,254}$"

#: Consumers of groups may have names made of others, percent-encoded: hence the %.
CONSUMER_NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._:%-]{0,511}$"

_TOPIC_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,254}")
_CONSUMER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:%-]{0,511}")


def is_topic_name(name: str) -> bool:
    """Whether `name` may name a topic: 1 to 255 of A-Z a-z 0-9 . _ : -, not beginning with . : or -."""
    # Not re.match with "$", which would let a trailing newline pass.
    return _TOPIC_NAME.fullmatch(name) is not None


def is_consumer_name(name: str) -> bool:
    """Whether `name` may name a consumer: as a topic's, with % besides, at most 512."""
    return _CONSUMER_NAME.fullmatch(name) is not None
