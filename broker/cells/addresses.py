"""The partition that the query of a request names. Pure.

Source: docs/cells.md#partitions-in-several-cells.
"""

from __future__ import annotations

import re
from typing import Final

from storage.records import address

_PARTITION: Final = re.compile(rb"(?:^|&)partition=([0-9]{1,4})(?:&|$)")


def address_in(topic: str, query: bytes) -> str:
    """The address of the partition of this topic; the topic's name if the query names none."""
    if b"partition=" not in query:
        return topic
    found = _PARTITION.search(query)
    return topic if found is None else address(topic, int(found[1]))
