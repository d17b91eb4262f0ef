"""File names in a data directory, and nothing else.

DATA_DIR/
  .lock  FORMAT  RESTORING  MOVED
  meta/snapshot-<n, 16 digits>.bin  meta/reserve  meta/cold-store
  wal/CURRENT, wal-<n, 16 digits>.log, reserve            when there is 1 shard
  wal/shard-NN/CURRENT, wal-<n>.log, reserve              when there are more
  quarantine/

Source: docs/reference/format.md#directory.
"""

from __future__ import annotations

import re

#: The version in FORMAT of a new directory.
FORMAT_VERSION = 1
#: The version in FORMAT of a directory that has or had packed segments.
PACKED_FORMAT_VERSION = 2
FORMAT_VERSIONS = (FORMAT_VERSION, PACKED_FORMAT_VERSION)
LOCK = ".lock"
FORMAT = "FORMAT"
CURRENT = "CURRENT"
RESERVE = "reserve"
COLD_STORE = "cold-store"
#: This file exists until a restore is complete. While it exists, no engine may start in the directory.
RESTORING = "RESTORING"
#: The address of the cluster that has the data of this directory since an import. While it exists, no engine may start
#: in the directory: the cluster would not see what it writes.
MOVED = "MOVED"
#: In meta/: the part of the log whose statements about segments do not hold here.
LAID_OUT = "laid-out"
TMP_SUFFIX = ".tmp"

_WAL = re.compile(r"wal-(\d{16})\.log")
_SHARD = re.compile(r"shard-(\d{2,})")
_SNAPSHOT = re.compile(r"snapshot-(\d{16})\.bin")


def join(*parts: str) -> str:
    """A path below a data directory."""
    return "/".join(parts)


def meta_dir(root: str) -> str:
    return join(root, "meta")


def quarantine_dir(root: str) -> str:
    return join(root, "quarantine")


def shard_dir(root: str, shard: int, shards: int) -> str:
    return join(root, "wal") if shards == 1 else join(root, "wal", f"shard-{shard:02d}")


def shard_folders(names: list[str]) -> list[str]:
    """The folders of shards among `names`, in order."""
    matches = [match for name in names if (match := _SHARD.fullmatch(name))]
    return [match[0] for match in sorted(matches, key=lambda match: int(match[1]))]


def wal_name(number: int) -> str:
    return f"wal-{number:016d}.log"


def snapshot_name(number: int) -> str:
    return f"snapshot-{number:016d}.bin"


def wal_numbers(names: list[str]) -> list[int]:
    """Numbers of the WAL files among `names`, ascending."""
    return sorted(int(match[1]) for name in names if (match := _WAL.fullmatch(name)))


def snapshot_numbers(names: list[str]) -> list[int]:
    """Numbers of the snapshots among `names`, ascending."""
    return sorted(int(match[1]) for name in names if (match := _SNAPSHOT.fullmatch(name)))


def quarantine_name(shard: int, file: int, offset: int, digest: str) -> str:
    """The name for a quarantined tail; the same bytes always get the same name."""
    return f"shard-{shard:02d}-wal-{file:016d}-{offset}-{digest}.bin"
