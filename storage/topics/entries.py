"""Entries say which cell of a set has a topic that is not in its home cell. Pure.

Both the home cell and the cell with the topic have the entry. It stays when the topic is deleted, so that a new topic
of that name is created in the same cell.

Source: docs/cells.md#names.
"""

from __future__ import annotations

from typing import Final

#: The kind of the entries. The key is the topic's name, the value the cell's number in decimal.
ENTRY_KIND: Final = "cell_of_topic"
#: The end of the value in the home cell while the other cell may not have its own entry yet.
OPEN_ENTRY: Final = b"?"


def entry_cell(value: bytes) -> int:
    """The cell that an entry names."""
    return int(value.removesuffix(OPEN_ENTRY))
