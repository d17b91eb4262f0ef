"""Tells the cold store of a data directory from an empty mount point in its place.

    <cold dir>/<cluster id>/.topics-cold    the marker: the cluster id and a newline
    DATA_DIR/meta/cold-store                the note: the same content, says that segments may be in that store

The marker is synced before the note is written, and both before the first segment moves. A note without a marker means
that the wrong directory is there, and the start is refused: segments would be missing, and others would move to a place
that is hidden once the right file system is mounted. While a broker runs, a store without its marker is unavailable.
Object stores have no marker: a start does not wait for them, and they are not mounted.

Source: docs/reference/format.md#cold-tier.
"""

from __future__ import annotations

import contextlib

from storage.errors import OpenError
from storage.platform import FileSystem, layout
from storage.segments.files import replace_file
from storage.segments.tiering.directory import MARKER, DirectoryStore
from storage.segments.tiering.store import ColdUnavailable


class Marker:
    """The marker for one data directory and its cold store, a directory. Blocking."""

    def __init__(self, fs: FileSystem, root: str, store: DirectoryStore, cluster_id: str) -> None:
        self._fs = fs
        self._store = store
        self._folder = f"{store.describe()}/{cluster_id}"
        self._path = f"{self._folder}/{MARKER}"
        self._note = layout.join(layout.meta_dir(root), layout.COLD_STORE)
        self._content = f"{cluster_id}\n".encode()

    def check(self) -> None:
        """For a start; changes nothing. Raises OpenError when the store that was used before is missing; OSError."""
        if not self._fs.exists(self._note):
            return
        if not self._fs.exists(self._path):
            raise OpenError(
                f"{self._path} is not there, so this is not the cold store that segments of this data directory are "
                "in. Is its file system mounted, and TOPICS_COLD_DIR right? If the store was moved without that file, "
                "make it."
            )
        self._store.expect(self._path)

    def mark_used(self, used: bool) -> None:
        """Called before anything moves: both files exist and are durable on return.

        `used`: a version that wrote no marker has moved segments there. Raises ColdError, OSError, SegmentError.
        """
        if not self._fs.exists(self._note):
            root = self._store.describe()
            if used and not self._fs.is_dir(self._folder):
                raise ColdUnavailable("", f"{self._folder} is not there: is the file system mounted?")
            with contextlib.suppress(FileExistsError):
                self._fs.mkdir(self._folder)
            self._fs.sync_dir(root)
            replace_file(self._fs, self._path, self._content)
            replace_file(self._fs, self._note, self._content)
        self._store.expect(self._path)
