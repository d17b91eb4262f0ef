"""Freed memory goes back to the system. glibc keeps what lies between blocks in use until it is asked for it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache


@cache
def _trim() -> Callable[[int], int] | None:
    """malloc_trim; None where the C library has none."""
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None
    return found


def give_back() -> None:
    """Give back all pages, of all arenas, in which nothing is used. It takes as long as there is to give back."""
    trim = _trim()
    if trim is not None:
        trim(0)
