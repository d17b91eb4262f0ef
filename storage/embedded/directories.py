"""The directories of engines: by a name below one folder, and the ones that engines of this process hold.

The open ones are recorded to give a clear error when a directory is opened twice, and for forks.

A forked process has its parent's descriptors and none of its threads. It can use none of the parent's engines, and must
not hold their directories: a child that outlives the parent would keep them locked.

Source: docs/guides/embedding.md.
"""

from __future__ import annotations

import os
import re
import weakref
from typing import Protocol

from storage.errors import InvalidRequest

# Lower case only: on some file systems A and a are the same folder. No dots, so that no name leaves the folder.
_NAME = re.compile(r"[a-z0-9_-]{1,64}")


def keyed_path(root: str | os.PathLike[str], name: str) -> str:
    """The directory of the engine with this name. Raises InvalidRequest for an invalid name."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest("The name of an engine is 1 to 64 characters from a-z 0-9 _ -.", field="name")
    return os.path.join(os.fspath(root), name)


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
