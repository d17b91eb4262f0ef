"""Opens the store that TOPICS_COLD_DIR names: a path, or a URL."""

from __future__ import annotations

import re

from storage.errors import OpenError
from storage.options import Options
from storage.platform import FileSystem
from storage.segments.tiering.directory import DirectoryStore
from storage.segments.tiering.marker import Marker
from storage.segments.tiering.object_store import SCHEMES, TIMEOUT_S, open_url
from storage.segments.tiering.store import ColdStore
from storage.segments.tiering.tier import ColdTier

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def open_store(location: str, fs: FileSystem, *, timeout_s: float = TIMEOUT_S) -> ColdStore:
    """The store at a path (made if missing) or a URL (without a request yet; `timeout_s`: see object_store.py).

    Raises ValueError for an invalid location, OpenError when the directory cannot be made, the extra `cold` is not
    installed, or the environment lacks what the store needs.
    """
    scheme = _SCHEME.match(location)
    if scheme is None:
        if not location:
            raise ValueError("TOPICS_COLD_DIR is empty")
        return DirectoryStore(fs, location)
    if scheme[1].lower() not in SCHEMES:
        # Only the scheme is shown: the rest may contain a credential.
        raise ValueError(
            f"TOPICS_COLD_DIR is a path or a URL of {', '.join(f'{name}://' for name in SCHEMES)}; "
            f"{scheme[1]}:// is not known"
        )
    try:
        return open_url(location, fs, timeout_s)
    except ValueError as error:
        raise ValueError(f"TOPICS_COLD_DIR: {error}") from None


def open_tier(store: ColdStore | None, options: Options, fs: FileSystem, path: str, cluster_id: str) -> ColdTier | None:
    """The cold tier of the data directory at `path`, in `store` or where the options say; None: it has none.

    Raises OpenError, also when the directory is not the one that segments of this data directory were moved to.
    """
    if store is None and options.cold_dir:
        try:
            store = open_store(options.cold_dir, fs, timeout_s=options.cold_timeout_s)
        except ValueError as error:
            raise OpenError(f"{error}.") from error
    if not isinstance(store, DirectoryStore):
        return None if store is None else ColdTier(store, cluster_id)
    marker = Marker(fs, path, store, cluster_id)
    marker.check()
    return ColdTier(store, cluster_id, marker.mark_used)
