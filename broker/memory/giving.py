"""Freed memory goes back to the system. glibc keeps what lies between blocks in use until it is asked for it."""

from __future__ import annotations

import ctypes
import gc
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


def give_back(thorough: bool) -> None:
    """Give back all pages, of all arenas, in which nothing is used. It takes as long as there is to give back.

    `thorough`: what only the collector finds is looked for first; that stops everything for a moment.
    """
    gc.collect(2 if thorough else 0)
    trim = _trim()
    if trim is not None:
        trim(0)
