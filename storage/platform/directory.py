"""Opens a data directory: lock, FORMAT, shard directories.

Source: docs/reference/format.md#directory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from storage.errors import AlreadyLocked, MetadataLost, OpenError, UnsupportedFormat
from storage.platform import layout
from storage.platform.clock import Clock, SystemClock
from storage.platform.filesystem import FileSystem, Lock, write_whole

MAX_SHARDS = 99
#: How long a start waits for a process that outlives a killed engine, and how often it checks.
_ORPHAN_MS = 2000
_LOOK_AGAIN_S = 0.02
#: If syncing a folder fails with one of these errors, another program created the folder.
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL, errno.ENOTSUP)


class Format(NamedTuple):
    """The contents of FORMAT. `shards` is the count at the directory's creation; a snapshot's count takes
    precedence."""

    cluster_id: str
    shards: int
    version: int = layout.FORMAT_VERSION


def ensure_dir(fs: FileSystem, path: str) -> None:
    """Create a directory and its parents; their entries are durable on return.

    So are the entries of existing folders: the process that created them may have been killed before its sync.
    """
    if path == "/":
        return
    parent = path.rsplit("/", 1)[0] or "/"
    ensure_dir(fs, parent)
    made = not fs.is_dir(path)
    if made:
        try:
            fs.mkdir(path)
        except FileExistsError:
            # Cells that begin a backup together create the same parents.
            if not fs.is_dir(path):
                raise
    try:
        fs.sync_dir(parent)
    except OSError as error:
        if made or error.errno not in _NOT_OURS:
            raise


def take_lock(fs: FileSystem, root: str, clock: Clock | None = None) -> Lock:
    """Lock the directory for this process. Raises AlreadyLocked.

    It fails at once while the lock's owner lives. When the owner was killed, a child process that the embedding
    program forked, or the copying process of an older version, may still have the lock open. The call waits a moment
    for that process to end, so that a start right after a kill succeeds.
    """
    ensure_dir(fs, root)
    path, clock, still = layout.join(root, layout.LOCK), clock or SystemClock(), threading.Condition()
    give_up_ns = clock.monotonic_ns() + _ORPHAN_MS * 1_000_000
    while True:
        try:
            return fs.lock(path)
        except BlockingIOError:
            if clock.monotonic_ns() >= give_up_ns or _holder_is_running(fs, path):
                raise AlreadyLocked(f"{root} is in use by another process (its .lock is held).", path=root) from None
        with still:
            clock.wait(still, _LOOK_AGAIN_S)


def _holder_is_running(fs: FileSystem, path: str) -> bool:
    """Whether the process named in the lock file exists. For a moment, the file may still name the previous owner.

    A process number of another container has no meaning here: then the call waits in vain, or does not wait.
    """
    file = fs.open(path, write=False)
    try:
        pid = file.pread(4096, 0).partition(b"\n")[0]
    finally:
        file.close()
    return not pid.isdigit() or fs.is_running(int(pid))


@dataclass(frozen=True, slots=True)
class LockText:
    """The text of `.lock` about the process that holds it, or held it last.

    `pid`
        It holds the directory, and does not trust that the files there have everything that was written.
    `pid`, `recovering BOOT`, `ENDS`
        It is starting. The previous process was killed in this boot, so the page cache has everything it had written.
    `pid`, `BOOT`
        Its start is complete.
    `pid`, `failed`
        A write has failed. Reads may return other bytes than were written.

    A kill while the text is written leaves the new text, with the end of a longer old text after it. So anything
    after the lines named here has no meaning.
    """

    pid: int = 0
    #: The boot since which the page cache holds everything written; empty if it does not.
    boot: str = ""
    #: The process has completed its start, or has stopped after a failed write.
    came_up: bool = False
    #: By shard, the result of starts that were not completed (see `ShardTrust`); empty: none yet.
    ends: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> LockText:
        first, second, third = (*text.split("\n", 3), "", "", "")[:3]
        pid = int(first) if first.isdigit() else 0
        if second == _FAILED:
            return cls(pid=pid, came_up=True)
        if not second.startswith(_RECOVERING):
            return cls(pid=pid, boot=second.strip(), came_up=bool(second.strip()))
        words = third.split(" ")
        ends = tuple(int(word) for word in words) if all(word.isdigit() for word in words) else ()
        return cls(pid=pid, boot=second.removeprefix(_RECOVERING), ends=ends)

    def encode(self) -> str:
        if self.came_up:
            return f"{self.pid}\n{self.boot or _FAILED}\n"
        # An empty third line hides the end of an older text.
        ends = " ".join(map(str, self.ends))
        return f"{self.pid}\n{_RECOVERING}{self.boot}\n{ends}\n" if self.boot else f"{self.pid}\n\n"


_FAILED, _RECOVERING = "failed", "recovering "


class ShardTrust:
    """Whether a recovery finds everything that was written to each shard's log.

    It does if the previous process was killed while the machine ran on, except in a shard whose log has a torn end: the
    torn write may have been acked. A recovery cuts that end off, and if it is killed after that, the next recovery must
    still know. So before anything is cut, `.lock` gets a number for each shard: 0 if the end was torn, else the number
    of the first log file that this start will write itself. A torn end in such a file belongs to a start that was
    killed before it acked anything, and is no evidence.
    """

    def __init__(self, shards: int, ends: tuple[int, ...] | None = ()) -> None:
        """`ends`: as in `.lock`, empty if it has no numbers yet; None: no shard is trusted."""
        self._shards = shards
        if ends is not None and len(ends) != shards:
            # No numbers yet, or numbers of another layout, whose losses are in the snapshots that replaced it.
            ends = (_NONE_OF_ITS_OWN,) * shards
        self._ends = ends

    def __getitem__(self, shard: int) -> bool:
        return self._ends is not None and self._ends[shard] != 0

    @property
    def ends(self) -> tuple[int, ...] | None:
        """The numbers for `.lock`, one for each shard; None: no shard is trusted."""
        return self._ends

    def after(self, torn: Sequence[int], next_files: Sequence[int]) -> ShardTrust:
        """The trust after the replay. For each shard: the file with a torn end (0: none), and the first file that this
        start will write."""
        if self._ends is None:
            return self
        ends = tuple(
            0 if 0 < file < own else min(own, following)
            for own, file, following in zip(self._ends, torn, next_files, strict=True)
        )
        return ShardTrust(self._shards, ends)


#: Greater than the number of any log file.
_NONE_OF_ITS_OWN = 10**16


def moved_to(fs: FileSystem, root: str) -> str | None:
    """The URL of the cluster that an import of this directory or set has made, or was to make; None: there was none."""
    path = layout.join(root, layout.MOVED)
    if not fs.exists(path):
        return None
    with contextlib.closing(fs.open(path, write=False)) as file:
        return file.pread(4096, 0).decode("utf-8", "replace").strip()


def refuse_moved(fs: FileSystem, root: str) -> None:
    """Raises OpenError if the data of this directory or set was imported into a cluster."""
    url = moved_to(fs, root)
    if url is None:
        return
    path = layout.join(root, layout.MOVED)
    raise OpenError(
        f"{root} was imported into the cluster at {url}, which would not see what is written here. Start the nodes of "
        f"the cluster. If the import was interrupted, or if you want to go on here without the cluster, delete {path}."
    )


def open_format(fs: FileSystem, root: str, wanted_shards: int) -> Format:
    """Read FORMAT, or write it into a new directory. Raises UnsupportedFormat, OpenError."""
    if wanted_shards and not 1 <= wanted_shards <= MAX_SHARDS:
        raise OpenError(f"wal_shards must be 1 to {MAX_SHARDS}, it is {wanted_shards}.")
    path = layout.join(root, layout.FORMAT)
    if fs.exists(layout.join(root, layout.RESTORING)):
        raise OpenError(
            f"A restore or an export into {root} was not completed ({layout.RESTORING} is there), so this is no whole "
            "data directory. Empty the directory, and run the command again."
        )
    refuse_moved(fs, root)
    if not fs.exists(path):
        return _create(fs, root, wanted_shards)
    file = fs.open(path, write=False)
    try:
        lines = file.pread(4096, 0).decode("ascii", "replace").split("\n")
    finally:
        file.close()
    if not lines[0].isdigit():
        raise OpenError(f"{path} is not a FORMAT file of this program.")
    if int(lines[0]) not in layout.FORMAT_VERSIONS:
        known = " and ".join(map(str, layout.FORMAT_VERSIONS))
        raise UnsupportedFormat(f"{path} says format {lines[0]}; this program knows {known}.")
    if len(lines) < 3 or not lines[2].isdigit():
        raise OpenError(f"{path} is damaged: it must have a version, a cluster id and a shard count.")
    return Format(lines[1], int(lines[2]), int(lines[0]))


def _create(fs: FileSystem, root: str, wanted_shards: int) -> Format:
    strangers = [name for name in fs.listdir(root) if name in ("wal", "meta", "topics")]
    if strangers:
        raise MetadataLost(
            f"{root} holds {', '.join(strangers)} but no FORMAT file; it is not started as a new directory."
        )
    return write_format(fs, root, wanted_shards or min(os.cpu_count() or 1, 8))


def write_format(fs: FileSystem, root: str, shards: int) -> Format:
    """Write FORMAT with a new cluster id; durable on return. Raises OSError."""
    made = Format(uuid.uuid4().hex, shards)
    put_format(fs, root, made)
    return made


def new_format(shards: int) -> bytes:
    """The file FORMAT of a new directory, with a new cluster id."""
    return format_text(Format(uuid.uuid4().hex, shards))


def format_text(content: Format) -> bytes:
    """The file FORMAT."""
    return f"{content.version}\n{content.cluster_id}\n{content.shards}\n".encode()


def put_format(fs: FileSystem, root: str, content: Format) -> None:
    """Replace FORMAT: after a crash, the old or the new one is there. Durable on return. Raises OSError."""
    replace_file(fs, root, layout.FORMAT, format_text(content))


def replace_file(fs: FileSystem, folder: str, name: str, content: bytes) -> None:
    """Write a small file: after a crash, the old or the new one is there. Durable on return. Raises OSError."""
    path = layout.join(folder, name)
    temporary = path + layout.TMP_SUFFIX
    # Use a new inode: the pages of a file left by an earlier try may have failed to be written.
    with contextlib.suppress(FileNotFoundError):
        fs.unlink(temporary)
    file = fs.open(temporary, create=True, exclusive=True)
    try:
        write_whole(file, content, 0)
        file.sync()
    finally:
        file.close()
    fs.rename(temporary, path)
    fs.sync_dir(folder)


def write_laid_out(fs: FileSystem, root: str, lsns: Sequence[range]) -> None:
    """Record that the log's statements about segments between these LSNs do not hold in this directory: its segments
    are copies as of the first LSN. Durable on return. Raises OSError."""
    text = "".join(f"{each.start} {each.stop}\n" for each in lsns)
    replace_file(fs, layout.meta_dir(root), layout.LAID_OUT, text.encode())


def read_laid_out(fs: FileSystem, root: str) -> tuple[range, ...]:
    """Those LSNs; none in a directory that was not made from a copy. Raises OSError."""
    path = layout.join(layout.meta_dir(root), layout.LAID_OUT)
    if not fs.exists(path):
        return ()
    file = fs.open(path, write=False)
    try:
        lines = file.pread(file.size(), 0).decode("ascii").splitlines()
    finally:
        file.close()
    return tuple(range(int(start), int(stop)) for start, stop in map(str.split, lines))


def make_folders(fs: FileSystem, root: str, shards: int) -> list[str]:
    """The shard directories. They and meta/ are created if missing; their entries are durable on return."""
    wal, meta = layout.join(root, "wal"), layout.meta_dir(root)
    directories = [layout.shard_dir(root, shard, shards) for shard in range(shards)]
    for directory in dict.fromkeys((meta, wal, *directories)):
        if not fs.is_dir(directory):
            fs.mkdir(directory)
    for directory in (root, wal, meta):
        fs.sync_dir(directory)
    return directories
