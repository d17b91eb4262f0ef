"""Returns freed memory to the system. glibc retains free memory between used blocks until it is asked for it, and much
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
#: Blocks of this size are mapped one by one, and this much at the end of a thread's heap may stay unused.
BLOCK_BYTES: Final = 4 << 20


def bound_heaps() -> None:
    """Make glibc return the memory that threads free. Call it once, before there are any threads.

    glibc raises both limits, up to 64 MiB, once a large block has been freed. Only that limit returns the end of a
    thread's heap: malloc_trim handles the memory between its blocks.
    """
    try:
        mallopt: Callable[[int, int], int] = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_MMAP_THRESHOLD, BLOCK_BYTES)
    mallopt(_TRIM_THRESHOLD, BLOCK_BYTES)


@cache
def _trim() -> Callable[[int], int] | None:
    """malloc_trim; None if the C library has none."""
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None
    return found


def give_back(thorough: bool) -> None:
    """Return all unused pages of all arenas. The time grows with the amount.

    `thorough`: run the garbage collector first; that stops everything for a moment.
    """
    gc.collect(2 if thorough else 0)
    trim = _trim()
    if trim is not None:
        trim(0)
