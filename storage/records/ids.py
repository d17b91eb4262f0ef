"""Ids of topics, routers and consumers carry the number of the cell that made them. Pure.

An id is below 2^53, so that JSON clients read it exactly. Its bits from 42 up are the cell's number; cell 0 therefore
has the ids of a directory that was never part of a set of cells. The bits below can hold the time in ms until the year
2109: a restored directory continues with ids from the time of the restore.

Source: docs/cells.md#ids.
"""

from __future__ import annotations

from typing import Final

CELL_SHIFT: Final = 42
#: The most cells of a set.
MAX_CELLS: Final = 1 << 11


def cell_of(any_id: int) -> int:
    """The number of the cell that made this id."""
    return any_id >> CELL_SHIFT


def first_id(cell: int) -> int:
    """The lowest id that a cell makes. 0 is no id."""
    return cell << CELL_SHIFT | 1
