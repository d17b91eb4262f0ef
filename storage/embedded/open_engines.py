"""The engines that this process has open, by path: for a clear error when a directory is opened twice, and for forks.

A forked process has its parent's descriptors and none of its threads. It can use none of the parent's engines, and must
not hold their directories: a child that outlives the parent would keep them locked.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Opened(Protocol):
    """An engine, as far as this module needs it."""

    @property
    def path(self) -> str: ...

    def forked(self) -> None: ...


_engines: weakref.WeakValueDictionary[str, Opened] = weakref.WeakValueDictionary()


def opened(engine: Opened) -> None:
    """The engine holds its directory from now on."""
    _engines[engine.path] = engine


def closed(engine: Opened) -> None:
    """The engine no longer holds its directory."""
    if _engines.get(engine.path) is engine:
        del _engines[engine.path]


def is_open(path: str) -> bool:
    """Whether an engine of this process holds the directory at this absolute path."""
    return path in _engines


def _let_go() -> None:
    for engine in list(_engines.values()):
        engine.forked()
    _engines.clear()


os.register_at_fork(after_in_child=_let_go)
