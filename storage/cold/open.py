"""Opens the store that TOPICS_COLD_DIR names: a path, or a URL."""

from __future__ import annotations

import re

from storage.cold.directory import DirectoryStore
from storage.cold.object_store import SCHEMES, TIMEOUT_S, open_url
from storage.cold.store import ColdStore
from storage.filesystem import FileSystem

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def open_store(location: str, fs: FileSystem, *, timeout_s: float = TIMEOUT_S) -> ColdStore:
    """The store at a path (made where missing) or a URL (asked nothing yet; `timeout_s`: see object_store.py).

    Raises ValueError for a location that is none, OpenError when the directory cannot be made, when the extra `cold`
    is not installed, or when the environment has not what the store needs.
    """
    scheme = _SCHEME.match(location)
    if scheme is None:
        if not location:
            raise ValueError("TOPICS_COLD_DIR is empty")
        return DirectoryStore(fs, location)
    if scheme[1].lower() not in SCHEMES:
        # Of the location only the scheme is shown: the rest may hold a credential.
        raise ValueError(
            f"TOPICS_COLD_DIR is a path or a URL of {', '.join(f'{name}://' for name in SCHEMES)}; "
            f"{scheme[1]}:// is not known"
        )
    try:
        return open_url(location, fs, timeout_s)
    except ValueError as error:
        raise ValueError(f"TOPICS_COLD_DIR: {error}") from None
