"""Freed memory goes back to the system. glibc keeps what lies between blocks in use until it is asked for it, and much
at the end of each thread's heap.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from functools import cache
from typing import Final

#: mallopt's names of its parameters (malloc.h).
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
#: Blocks of this size are mapped one by one, and so much at the end of a thread's heap may stay unused.
BLOCK_BYTES: Final = 4 << 20


def bound_heaps() -> None:
    """What threads let go of goes back: once, before there are any.

    glibc raises both bounds, up to 64 MiB, once a large block has been freed. The end of a thread's heap is given back
    by that bound alone: malloc_trim looks at what lies between blocks there.
    """
    try:
        mallopt: Callable[[int, int], int] = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_MMAP_THRESHOLD, BLOCK_BYTES)
    mallopt(_TRIM_THRESHOLD, BLOCK_BYTES)


@cache
def _trim() -> Callable[[int], int] | None:
    """malloc_trim; None where the C library has none."""
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None
    return found


def give_back(thorough: bool) -> None:
    """Give back all pages, of all arenas, in which nothing is used. It takes as long as there is to give back.

    `thorough`: what only the collector finds is looked for first; that stops everything for a moment.
    """
    gc.collect(2 if thorough else 0)
    trim = _trim()
    if trim is not None:
        trim(0)
