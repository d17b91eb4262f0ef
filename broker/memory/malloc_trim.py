"""Returns freed memory to the system. glibc keeps free memory between used blocks and at the end of each thread's
heap, until `malloc_trim` is called.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from functools import cache


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
