"""Maps group ids to names of consumers. Pure.

The committed offsets of a group are the cursors of consumers named `group:<id>`, one in each partition. Bytes of the id
that the name of a consumer may not contain are written as %XX. Different ids have different names.

Source: docs/guides/kafka.md#how-kafka-maps-to-topics.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_to_bytes

GROUP_PREFIX: Final = "group:"
#: The longest name of a consumer, in characters.
_MAX_NAME: Final = 512
_ESCAPED: Final = re.compile(rb"[^A-Za-z0-9._:-]")


def consumer_name(group_id: str) -> str | None:
    """The name of the group's consumers; None if the id is empty or too long."""
    escaped = _ESCAPED.sub(lambda found: b"%%%02X" % found[0][0], group_id.encode("utf-8"))
    name = GROUP_PREFIX + escaped.decode("ascii")
    return name if group_id and len(name) <= _MAX_NAME else None


def group_of(consumer: str) -> str | None:
    """The id of the consumer's group; None if it belongs to no group."""
    if not consumer.startswith(GROUP_PREFIX):
        return None
    try:
        group_id = unquote_to_bytes(consumer.removeprefix(GROUP_PREFIX)).decode("utf-8")
    except UnicodeDecodeError:
        return None
    return group_id if consumer_name(group_id) == consumer else None
