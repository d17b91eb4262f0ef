"""How much freed memory glibc keeps for a process, and in how many heaps.

Buffers of a read or a batch have a few hundred KiB. By default glibc returns them to the system when they are freed,
and each page of the next ones is allocated again, which took a third of a read's time.

Source: docs/adr/0096-what-the-heap-keeps.md.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Final

#: Blocks of this size are mapped one by one, and returned when they are freed.
BLOCK_BYTES: Final = 4 << 20
#: This much may stay unused at the end of each heap.
FREE_BYTES: Final = 16 << 20
#: Threads share this many heaps, because each heap keeps its own unused memory.
HEAPS: Final = 4

#: mallopt's names of its parameters (malloc.h), and the variables that set them as well.
_TRIM_THRESHOLD: Final = -1, "MALLOC_TRIM_THRESHOLD_", "trim_threshold"
_MMAP_THRESHOLD: Final = -3, "MALLOC_MMAP_THRESHOLD_", "mmap_threshold"
_ARENA_MAX: Final = -8, "MALLOC_ARENA_MAX", "arena_max"

_bounded = False


def bound_heaps(block_bytes: int = BLOCK_BYTES, free_bytes: int = FREE_BYTES, heaps: int = HEAPS) -> None:
    """Set these bounds for the whole process; only its first call does. `heaps` 0: as many as glibc makes.

    Values from the environment (MALLOC_TRIM_THRESHOLD_ and similar variables, GLIBC_TUNABLES) are kept. Without glibc
    nothing is set.
    """
    global _bounded
    if _bounded:
        return
    _bounded = True
    try:
        mallopt: Callable[[int, int], int] = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    for (number, variable, tunable), value in (
        (_MMAP_THRESHOLD, block_bytes),
        (_TRIM_THRESHOLD, free_bytes),
        (_ARENA_MAX, heaps),
    ):
        if value and variable not in os.environ and f"malloc.{tunable}=" not in tunables:
            mallopt(number, value)
