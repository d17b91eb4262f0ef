"""Metadata snapshots: their contents, how they are written, and when the log that they replace is trimmed."""

from storage.snapshot import contents, file
from storage.snapshot.contents import Section
from storage.snapshot.snapshotter import Snapshotter

__all__ = [
    "Section",
    "Snapshotter",
    "contents",
    "file",
]
