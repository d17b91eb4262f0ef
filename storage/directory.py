"""Opens a data directory: lock, FORMAT, shard directories. Source: storage.md §1."""

from __future__ import annotations

import errno
import os
import threading
import uuid
from typing import NamedTuple

from storage import layout
from storage.clock import Clock, SystemClock
from storage.errors import AlreadyLocked, MetadataLost, OpenError, UnsupportedFormat
from storage.filesystem import FileSystem, Lock, write_whole

MAX_SHARDS = 99
#: How long a start waits for what a killed process has left running, and how often it looks.
_ORPHAN_MS = 2000
_LOOK_AGAIN_S = 0.02
#: A folder that we may not sync is none that this program made.
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL, errno.ENOTSUP)


class Format(NamedTuple):
    """What FORMAT says. `shards` is the count that the directory was made with; a snapshot's wins."""

    cluster_id: str
    shards: int


def ensure_dir(fs: FileSystem, path: str) -> None:
    """Make a directory and its parents; their entries are durable on return.

    Also those of folders found here: the process that made them may have been killed before it synced.
    """
    if path == "/":
        return
    parent = path.rsplit("/", 1)[0] or "/"
    ensure_dir(fs, parent)
    made = not fs.is_dir(path)
    if made:
        fs.mkdir(path)
    try:
        fs.sync_dir(parent)
    except OSError as error:
        if made or error.errno not in _NOT_OURS:
            raise


def take_lock(fs: FileSystem, root: str, clock: Clock | None = None) -> Lock:
    """Hold the directory for this process. Raises AlreadyLocked.

    At once where whoever made the lock lives. Where it was killed, a process of its own may have it open still, at
    the end of what it was doing (`copy_process`): that is waited for, so that a start right behind a kill succeeds.
    """
    ensure_dir(fs, root)
    path, clock, still = layout.join(root, layout.LOCK), clock or SystemClock(), threading.Condition()
    give_up_ns = clock.monotonic_ns() + _ORPHAN_MS * 1_000_000
    while True:
        try:
            return fs.lock(path)
        except BlockingIOError:
            if clock.monotonic_ns() >= give_up_ns or _holder_runs(fs, path):
                raise AlreadyLocked(f"{root} is in use by another process (its .lock is held).", path=root) from None
        with still:
            clock.wait(still, _LOOK_AGAIN_S)


def _holder_runs(fs: FileSystem, path: str) -> bool:
    """Whether the process that the lock file names is there. The name may be that of the holder before, for a moment.

    Another container's number means nothing here: then it is waited for in vain, or not at all.
    """
    file = fs.open(path, write=False)
    try:
        pid = file.pread(4096, 0).partition(b"\n")[0]
    finally:
        file.close()
    return not pid.isdigit() or fs.runs(int(pid))


def lock_text(pid: int, boot: str = "") -> str:
    """Content of .lock: the pid, and once recovery is complete the boot id, or `failed`."""
    return f"{pid}\n{boot}\n" if boot else f"{pid}\n"


def page_cache_kept(previous: str, boot_id: str) -> bool:
    """Whether the last process died without the machine: nothing it had written is lost."""
    lines = previous.split("\n")
    return len(lines) > 1 and bool(boot_id) and lines[1] == boot_id


def came_up(previous: str) -> bool:
    """Whether the last process that held the lock had completed its start; only then it notes its boot id."""
    return bool(previous.partition("\n")[2].strip())


def open_format(fs: FileSystem, root: str, wanted_shards: int) -> Format:
    """Read FORMAT, or write it into a new directory. Raises UnsupportedFormat, OpenError."""
    if wanted_shards and not 1 <= wanted_shards <= MAX_SHARDS:
        raise OpenError(f"wal_shards must be 1 to {MAX_SHARDS}, it is {wanted_shards}.")
    path = layout.join(root, layout.FORMAT)
    if fs.exists(layout.join(root, layout.RESTORING)):
        raise OpenError(
            f"A restore into {root} has not come to its end ({layout.RESTORING} is there), so this is no whole data "
            "directory. Empty it and restore again."
        )
    if not fs.exists(path):
        return _create(fs, root, wanted_shards)
    file = fs.open(path, write=False)
    try:
        lines = file.pread(4096, 0).decode("ascii", "replace").split("\n")
    finally:
        file.close()
    if not lines[0].isdigit():
        raise OpenError(f"{path} is not a FORMAT file of this program.")
    if int(lines[0]) != layout.FORMAT_VERSION:
        raise UnsupportedFormat(f"{path} says format {lines[0]}; this program knows {layout.FORMAT_VERSION}.")
    if len(lines) < 3 or not lines[2].isdigit():
        raise OpenError(f"{path} is damaged: it must have a version, a cluster id and a shard count.")
    return Format(lines[1], int(lines[2]))


def _create(fs: FileSystem, root: str, wanted_shards: int) -> Format:
    strangers = [name for name in fs.listdir(root) if name in ("wal", "meta", "topics")]
    if strangers:
        raise MetadataLost(
            f"{root} holds {', '.join(strangers)} but no FORMAT file; it is not started as a new directory."
        )
    return write_format(fs, root, wanted_shards or min(os.cpu_count() or 1, 8))


def write_format(fs: FileSystem, root: str, shards: int) -> Format:
    """Put FORMAT in place, with a cluster id of its own; durable on return. Raises OSError."""
    made = Format(uuid.uuid4().hex, shards)
    path = layout.join(root, layout.FORMAT)
    temporary = path + layout.TMP_SUFFIX
    file = fs.open(temporary, create=True)
    try:
        file.truncate(0)
        write_whole(file, f"{layout.FORMAT_VERSION}\n{made.cluster_id}\n{shards}\n".encode(), 0)
        file.sync()
    finally:
        file.close()
    fs.rename(temporary, path)
    fs.sync_dir(root)
    return made


def make_folders(fs: FileSystem, root: str, shards: int) -> list[str]:
    """The shard directories. They and meta/ are made where missing; what these folders hold is durable on return."""
    wal, meta = layout.join(root, "wal"), layout.meta_dir(root)
    directories = [layout.shard_dir(root, shard, shards) for shard in range(shards)]
    for directory in dict.fromkeys((meta, wal, *directories)):
        if not fs.is_dir(directory):
            fs.mkdir(directory)
    for directory in (root, wal, meta):
        fs.sync_dir(directory)
    return directories
