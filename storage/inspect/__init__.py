"""Reads any data directory without changing it: `dump` and `verify`."""

from storage.inspect.directory import DataDirectory, NotADataDirectory
from storage.inspect.dump import DumpOptions, NoSuchFile, dump
from storage.inspect.text import LEGEND
from storage.inspect.verify import Verdict, verify
from storage.inspect.wal import Finding

__all__ = [
    "LEGEND",
    "DataDirectory",
    "DumpOptions",
    "Finding",
    "NoSuchFile",
    "NotADataDirectory",
    "Verdict",
    "dump",
    "verify",
]
