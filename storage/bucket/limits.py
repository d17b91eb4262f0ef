"""How long a request may take, and how many bytes it carries. Pure.

A store that is silent has to be noticed soon, and an object of a base may need minutes on a slow line. So a create has
time for its bytes at BYTES_PER_S, and a read goes on as long as bytes arrive. Source: docs/reference/bucket.md.
"""

from __future__ import annotations

from typing import Final

#: A request of few bytes; a read in which no byte arrives.
TIMEOUT_S: Final = 10.0
#: A read in all. Pieces that are read side by side share the line.
READ_S: Final = 600.0
#: Objects above this have more time. Signs, heads and most slots are smaller.
SMALL_BYTES: Final = 1 << 20
#: The slowest line that a create has time for.
BYTES_PER_S: Final = 500_000
#: Larger objects of bases are read in pieces of this size, so that an error costs one piece, and memory is bounded.
PIECE_BYTES: Final = 8 << 20
#: The largest `segment_max_bytes` of a cell in a bucket: a segment is in memory while it is put.
MAX_SEGMENT_BYTES: Final = 256 << 20
#: A request for an object of a base is repeated for as long as so many may take.
_TRIES: Final = 3


def create_s(size: int, timeout_s: float = TIMEOUT_S) -> float:
    """How long a create of so many bytes may take. There is a client for each of these times, so they are few."""
    if size <= SMALL_BYTES:
        return timeout_s
    return timeout_s + (1 << (size - 1).bit_length()) / BYTES_PER_S


def try_s(size: int) -> float:
    """For how long a request for so many bytes of a base is repeated."""
    return _TRIES * create_s(size)
