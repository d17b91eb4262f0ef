"""Topics whose partitions are in several cells of a set. Pure.

Partition 0 is in the cell that decides about the topic, and its log has the placement: which cell each partition is in.
The other partitions in that cell are like those of any topic. A partition in another cell has the topic_id of partition
0 as its `root_id`. It counts, and is found, once the topic's cell has said so; a value of its log remembers that.

    log of partition 0      (SPREAD, CELLS)    the placement, written together with the number of partitions
    log of a partition      (SPREAD, COUNTS)   the topic's cell has said that this partition counts
    the engine              (TO_TELL, root_id) other cells may have partitions of that topic, or of one that is gone,
                                               and have not been told yet which of them count

Source: docs/cells.md#partitions-in-several-cells.
"""

from __future__ import annotations

from typing import Final

import msgspec

#: The kind of these values in the log of a partition, and their keys.
SPREAD: Final = "spread"
CELLS: Final = "cells"
COUNTS: Final = "counts"
#: The kind of the value of an engine. Its key is the topic_id of partition 0.
TO_TELL: Final = "spread_to_tell"


class Placement(msgspec.Struct, frozen=True, array_like=True):
    """`cells`: the cell of each partition. `grown_ms`: when the topic grew last, and `before` the number of partitions
    until then; 0: it never grew."""

    cells: tuple[int, ...]
    before: int = 0
    grown_ms: int = 0

    def of(self, cell: int) -> list[int]:
        """The partitions in that cell."""
        return [partition for partition, each in enumerate(self.cells) if each == cell]


class ToTell(msgspec.Struct, frozen=True, array_like=True):
    """`title`: the topic's name. `cells`: those that may have partitions of it."""

    title: str
    cells: tuple[int, ...]


_placement = msgspec.msgpack.Decoder(Placement)
_to_tell = msgspec.msgpack.Decoder(ToTell)
encode = msgspec.msgpack.Encoder().encode


def placement_of(value: bytes) -> Placement:
    """The placement in a value of the log of partition 0."""
    return _placement.decode(value)


def to_tell_of(value: bytes) -> ToTell:
    """The content of such a value of an engine."""
    return _to_tell.decode(value)
