"""Which cell decides about a name. Pure.

Source: docs/cells.md#names.
"""

from __future__ import annotations

import xxhash


def home_cell(name: str, cells: int) -> int:
    """The cell that decides about a topic, a router, a Kafka group or another name, of a set of so many cells."""
    return xxhash.xxh3_64_intdigest(name.encode()) % cells
