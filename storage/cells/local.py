"""The local directory of a cell in a bucket: whose it is, whether it may be used again, and how it is made.

The bucket is the truth, and a directory is a copy. It has something that the bucket has not, if the process that owned
the cell was killed: the end of the log that was in no slot yet. So it is used again if nothing can have happened
since: this process holds its lock, the machine was not started anew, and the seal in front of this process's own names
it, so that this process's own goes on with it. Otherwise it is made anew of the newest base and the slots behind it.

    .cell     which directory this is: written when it is complete, and removed before anything in it is
    .cache/   objects that the new directory is made of: segments of the old one that are the same, and what was
              fetched, perhaps while the cell had another owner; removed when the directory is made. After a start that
              failed the next one goes on with it, also in the middle of an object.

Nothing here is synced, because the directory is not used after a restart of the machine. A directory that was copied,
or came from another machine, has another lock file, and counts as none.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from threading import Event
from typing import Final, Protocol

import msgspec
from xxhash import xxh3_64

from storage.backup.bases import Readable, Sealed, lay_out_base, segments_of
from storage.backup.restoring import empty_directory, remove_tree
from storage.bucket import Base, Body, Head, Named, Taken, limits
from storage.errors import AlreadyLocked
from storage.platform import (
    Clock,
    File,
    LockText,
    PosixLock,
    UnsyncedFileSystem,
    ensure_dir,
    layout,
    replace_file,
    take_lock,
    write_whole,
)
from storage.segments import SegmentId, names

NOTE: Final = ".cell"
CACHE: Final = ".cache"
#: So many objects are fetched at a time, in pieces of `limits.PIECE_BYTES`.
AT_ONCE: Final = 8


class Pieces(Readable, Protocol):
    """The objects of a cell. Each call blocks."""

    def get_piece(self, named: Named, offset: int) -> bytes:
        """Return the bytes from there on, as many as a piece has. Raises OSError, also if there are none."""
        ...


class Note(msgspec.Struct, frozen=True):
    """The content of `.cell`."""

    cell: str
    directory: str
    boot: str
    #: The lock file, by device and inode.
    lock: str


class LocalDirectory:
    """All methods block."""

    def __init__(self, root: str, cell: str, nonce: str, clock: Clock) -> None:
        """`nonce`: of this process, and the id of the directory if it is made anew."""
        self._fs = UnsyncedFileSystem()
        self.root = root
        self._cell = cell
        self._clock = clock
        self._nonce = nonce
        self._lock: PosixLock | None = None
        self._found: Note | None = None
        self._cache = layout.join(root, CACHE)
        #: Keys of objects whose bytes are in a file of `.cache`.
        self._cached: dict[str, str] = {}
        #: What `segments_of` said about the last base.
        self._segments: tuple[Head, list[Sealed]] | None = None

    def lock(self) -> bool:
        """Whether this process holds the directory from now on. False: another one does."""
        ensure_dir(self._fs, self.root)
        try:
            lock = take_lock(self._fs, self.root, self._clock)
        except AlreadyLocked:
            return False
        assert isinstance(lock, PosixLock)
        self._lock = lock
        self._found = self._read_note()
        return True

    def release(self) -> None:
        """So that the engine can take the lock."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def is_locked_as(self, directory: str) -> bool:
        """Whether this is the directory with that id, and this process holds its lock."""
        return self._lock is not None and self._found is not None and self._found.directory == directory

    def _read_note(self) -> Note | None:
        path = layout.join(self.root, NOTE)
        if not self._fs.exists(path):
            return None
        with closing(self._fs.open(path, write=False)) as file:
            data = file.pread(file.size(), 0)
        try:
            note = msgspec.json.decode(data, type=Note)
        except msgspec.DecodeError:
            return None
        return note if note == self._note(note.directory) and note.boot else None

    def _note(self, directory: str) -> Note:
        assert self._lock is not None
        return Note(self._cell, directory, self._fs.boot_id(), self._lock.identity())

    # -- using it again ------------------------------------------------------------------------------------------------

    def tail_behind(self, taken: Taken) -> tuple[int, int] | None:
        """If the directory may be used again: file and offset of the first byte of the log that is in no slot."""
        if self._found is None or taken.seal.directory != self._found.directory:
            return None
        if not taken.log:
            return (1, 0) if taken.base.head.number == 0 else None
        last = taken.log[-1]
        path = layout.join(layout.shard_dir(self.root, 0, 1), layout.wal_name(last.file))
        if not self._fs.exists(path):
            return None
        with closing(self._fs.open(path, write=False)) as file:
            same = file.pread(len(last.body), last.offset) == last.body
        return (last.file, last.offset + len(last.body)) if same else None

    def read_tail(self, begin: tuple[int, int], before_file: int) -> Iterable[Body]:
        """What the log has from there on, up to the end of the file in front of `before_file`."""
        folder = layout.shard_dir(self.root, 0, 1)
        for number in layout.wal_numbers(self._fs.listdir(folder)):
            if begin[0] <= number < before_file:
                offset = begin[1] if number == begin[0] else 0
                with closing(self._fs.open(layout.join(folder, layout.wal_name(number)), write=False)) as file:
                    data = file.pread(max(0, file.size() - offset), offset)
                if data:
                    yield Body(number, offset, data)

    def distrust(self) -> None:
        """Let no process use it again. Its segments that are the same as in the bucket count still."""
        with suppress(OSError):  # if the disk refuses even that, the next process finds the damage again
            self._fs.unlink(layout.join(self.root, NOTE))

    # -- making it anew ------------------------------------------------------------------------------------------------

    def keep_own(self, base: Base, objects: Readable) -> None:
        """Keep the files of segments that are as the base has them. The directory is not used any more."""
        with suppress(FileNotFoundError):
            self._fs.unlink(layout.join(self.root, NOTE))
        for id, named, cold in self.segments_of(base, objects):
            if not cold and named.key not in self._cached and self._has(id, named):
                ensure_dir(self._fs, self._cache)
                self._fs.rename(names.path(self.root, id, names.DATA), self._add(named))

    def segments_of(self, base: Base, objects: Readable) -> list[Sealed]:
        """The sealed segments of a base. Raises OSError."""
        if self._segments is None or self._segments[0] != base.head:
            self._segments = base.head, segments_of(self._cell, base.manifest.objects, objects)
        return self._segments[1]

    def _has(self, id: SegmentId, named: Named) -> bool:
        """Whether the directory's own file of the segment is the same."""
        path = names.path(self.root, id, names.DATA)
        if not self._fs.exists(path) or self._fs.file_size(path) != named.size:
            return False
        with closing(self._fs.open(path, write=False)) as file:
            return _digest(file, named.size).intdigest() == named.checksum

    def fetch(self, base: Base, objects: Pieces, stopped: Callable[[], bool] = lambda: False) -> None:
        """Fetch what a directory made of that base needs, and is not here, until `stopped`. What is not of that base is
        dropped. Raises OSError."""
        segments = self.segments_of(base, objects)
        here = {named.key for id, named, cold in segments if cold or self._has(id, named)} | self._cached.keys()
        missing = [each for each in base.manifest.objects if each.key not in here]
        self._drop_others(base)
        if missing:
            ensure_dir(self._fs, self._cache)
        failed = Event()
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="segments") as pool:
            steps = [
                pool.submit(self._fetch, named, objects, lambda: failed.is_set() or stopped()) for named in missing
            ]
            try:
                for fetching in steps:
                    fetching.result()
            finally:
                failed.set()

    def _drop_others(self, base: Base) -> None:
        """Of older bases, also those of an earlier start."""
        if not self._fs.is_dir(self._cache):
            return
        needed = {_file_name(each) for each in base.manifest.objects}
        for name in self._fs.listdir(self._cache):
            if name not in needed:
                self._fs.unlink(layout.join(self._cache, name))
        self._cached = {key: path for key, path in self._cached.items() if path.rpartition("/")[2] in needed}

    def drop_fetched(self) -> None:
        """The directory is used again, so nothing needs what was fetched."""
        self._cached.clear()
        if self._fs.is_dir(self._cache):
            remove_tree(self._fs, self._cache)

    def _fetch(self, named: Named, objects: Pieces, stopped: Callable[[], bool]) -> None:
        """Go on behind what an earlier start has fetched. That is compared with the checksum, like the rest: it may not
        have survived a crash of the machine."""
        with closing(self._fs.open(layout.join(self._cache, _file_name(named)), create=True)) as file:
            for begin in (file.size(), 0):
                if self._fetch_on(named, file, begin, objects, stopped):
                    return
                file.truncate(0)
        raise OSError(errno.EIO, f"{named.key} is missing or damaged")

    def _fetch_on(self, named: Named, file: File, begin: int, objects: Pieces, stopped: Callable[[], bool]) -> bool:
        """Fetch the object from `begin` on, until `stopped`. False: its bytes are wrong."""
        digest = _digest(file, begin)
        while begin < named.size:
            if stopped():
                return True
            piece = objects.get_piece(named, begin)
            write_whole(file, piece, begin)
            digest.update(piece)
            begin += len(piece)
        if begin != named.size or digest.intdigest() != named.checksum:
            return False
        self._add(named)
        return True

    def _add(self, named: Named) -> str:
        path = self._cached[named.key] = layout.join(self._cache, _file_name(named))
        return path

    def get(self, named: Named) -> bytes:
        """As `storage.backup.bases.Readable`: from the cache. Raises OSError."""
        if named.key not in self._cached:
            raise OSError(errno.EIO, f"{named.key} was not fetched")
        with closing(self._fs.open(self._cached[named.key], write=False)) as file:
            return file.pread(named.size, 0)

    def make(self, taken: Taken, objects: Pieces) -> None:
        """Make it of what is in the bucket. Raises BackupDamaged, OSError."""
        assert self._lock is not None
        base = taken.base
        self.keep_own(base, objects)
        self.fetch(base, objects)
        empty_directory(self._fs, self.root, but=(layout.LOCK, CACHE))
        manifest = base.manifest
        log = [Body(slot.file, slot.offset, slot.body) for slot in taken.log]
        lay_out_base(
            self._fs,
            self.root,
            self._cell,
            self,
            manifest.objects,
            log,
            manifest.log_from,
            manifest.instant,
            install=self._install,
            leave_cold=True,
        )
        self.drop_fetched()
        # What an earlier owner noted there would let the engine trust the page cache, and so assign seqs again that
        # an owner on another machine has assigned since. The files are those of the base: what a clean stop says about
        # them holds.
        self._lock.write(LockText(came_up=True).encode())
        self._found = None
        replace_file(self._fs, self.root, NOTE, msgspec.json.encode(self._note(self._nonce)))

    def _install(self, named: Named, path: str) -> bool:
        cached = self._cached.pop(named.key, None)
        if cached is None:
            return False
        self._fs.rename(cached, path)
        return True


def _digest(file: File, size: int) -> xxh3_64:
    """Of so many bytes of the file."""
    digest = xxh3_64()
    for offset in range(0, size, limits.PIECE_BYTES):
        digest.update(file.pread(min(limits.PIECE_BYTES, size - offset), offset))
    return digest


def _file_name(named: Named) -> str:
    return named.key.replace("/", "+")
