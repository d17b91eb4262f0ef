"""Data directories that no broker runs on: bulk reads of one, and the commands that need an engine."""

from storage.offline.stopped import StoppedDirectory, StoppedLog, open_records

__all__ = ["StoppedDirectory", "StoppedLog", "open_records"]
