"""Metadata snapshots: what they hold, how they are written, and when the log behind them is trimmed."""

from storage.snapshot import contents, file
from storage.snapshot.contents import Section
from storage.snapshot.snapshotter import Snapshotter

__all__ = [
    "Section",
    "Snapshotter",
    "contents",
    "file",
]
