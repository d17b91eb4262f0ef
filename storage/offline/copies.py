"""Bulk reads of copies: of a backup, and of a cluster in its bucket. Nothing is restored, and nothing is changed there.

A copy is recovered like a stopped directory (`storage.offline.stopped`), on its files where they are. `root` of a copy
looks like a path, and names what it is of, so that a task of another process can open the same copy:

    BACKUP@7, BACKUP/cell-01@7          backup 7
    s3://bucket/prefix/cell-01@2c       base 0x2c of a cell

The log behind a base is read once, by `ClusterCopies.stopped`. Its records in no segment are in `Stopped.tail`.

Source: docs/guides/spark.md#reading.
"""

from __future__ import annotations

import errno
import os
import re
from contextlib import closing
from functools import partial
from typing import Final, TypeVar

from storage.backup.bases import copy_of_base
from storage.backup.copies import Copy, CopyFileSystem, Extent, bytes_of, copy_of_backup
from storage.backup.restoring import cell_in
from storage.backup.source import has_backups, newest_number
from storage.bucket import (
    Base,
    BaseMissing,
    Body,
    CellMissing,
    Cluster,
    DamagedSlot,
    Driver,
    Location,
    Named,
    NoCluster,
    Steps,
    Unanswered,
    get_object,
    head_of,
    lay_out,
    open_location,
    parse_location,
    read_base,
    read_cell,
    read_cluster,
)
from storage.errors import OpenError
from storage.log import position
from storage.offline.stopped import Stopped, StoppedDirectory, StoppedSet
from storage.platform import (
    FileSystem,
    LockText,
    PosixFileSystem,
    SystemClock,
    UnsyncedFileSystem,
    cell_folder,
    cell_folders,
    layout,
    read_laid_out,
    write_laid_out,
)
from storage.segments.tiering import ColdError, ColdMissing, open_store

T = TypeVar("T")

_ROOT: Final = re.compile(r"(?P<where>.+)@(?P<number>[0-9a-f]+)")


class BackupCopies:
    """The backups at a path: of one engine, or of a set. The caller keeps others from writing there."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self._copies: dict[str, Copy] = {}

    def folders(self) -> list[str]:
        """The backup directories: one for each cell of a set."""
        cells = cell_folders(self._fs.listdir(self._path))
        return [cell_folder(self._path, each) for each in cells] or [self._path]

    def stopped(self, cold_dir: str = "") -> Stopped:
        """The newest backup. Raises BackupRefused, and what a restore raises."""
        found: dict[int, StoppedDirectory] = {}
        for folder in self.folders():
            number = newest_number(self._fs, folder)
            cell, cells = cell_in(self._fs, folder, number, lock=False)
            copy = self.open(f"{folder}@{number:x}")
            one = StoppedDirectory(
                copy.fs, copy.root, cold_dir, cell=cell, cells=cells, prepare=copy.mark_deleted, copied=True
            )
            if cell is None:
                return one
            found[cell] = one
        return StoppedSet(found)

    def open(self, root: str) -> Copy:
        """The copy of that name. Raises BackupRefused, BackupDamaged, OSError."""
        if root not in self._copies:
            match = _ROOT.fullmatch(root)
            assert match is not None, root
            self._copies[root] = copy_of_backup(self._fs, match["where"], root, int(match["number"], 16))
        return self._copies[root]

    def shown(self, path: str) -> str:
        """A path in a copy as people know it."""
        return path

    def close(self) -> None:
        for each in self._copies.values():
            each.close()


class ClusterCopies:
    """A cluster in a bucket, whose nodes may run. Each cell is seen as of the last slot that exists."""

    def __init__(self, location: Location, cluster: Cluster, driver: Driver) -> None:
        self._location = location
        self._cluster = cluster
        self._driver = driver
        self._objects = _Objects(driver, location)
        self._copies: dict[str, Copy] = {}

    def stopped(self, scratch: str) -> Stopped:
        """All cells, each as of an instant of its own. The logs behind their bases are put into the empty directory
        `scratch`. Raises OpenError, DataError, OSError."""
        return StoppedSet({cell: self._cell(cell, scratch) for cell in range(self._cluster.cells)})

    def _cell(self, cell: int, scratch: str) -> StoppedDirectory:
        name = f"cell-{cell:02d}"
        found = _answered(self._driver, read_cell(name), name)
        base, slots = found.base, found.log
        root = f"/{self._location.scheme}/{self._location}/{name}".replace(f"{self._location.scheme}://", "", 1)
        root = f"{root}@{base.head.number:x}"
        manifest = base.manifest
        copy = self._copy(root, name, manifest.objects)
        log = [Body(each.file, each.offset, each.body) for each in slots]
        end = _add_log(copy.fs, layout.join(scratch, name), log, manifest.log_from)
        lock = LockText(came_up=True).encode().encode()
        copy.fs.add(layout.LOCK, bytes_of(lock))

        def prepare(fs: FileSystem) -> None:
            copy.mark_deleted(fs)
            if not fs.exists(layout.meta_dir(root)):
                fs.mkdir(layout.meta_dir(root))
            before = [each for each in read_laid_out(fs, root) if each.stop > position(*manifest.log_from)]
            write_laid_out(fs, root, [*before, range(position(*manifest.instant), end)])

        return StoppedDirectory(
            copy.fs, root, cell=cell, cells=self._cluster.cells, prepare=prepare, copied=True, make_hot=True
        )

    def open(self, root: str) -> Copy:
        """The base of that name, without the log behind it. Raises FileNotFoundError if it was deleted; OSError."""
        if root not in self._copies:
            match = _ROOT.fullmatch(root)
            assert match is not None, root
            cell = match["where"].rpartition("/")[2]
            try:
                base = self._driver.run(_base_of(cell, int(match["number"], 16)))
            except BaseMissing:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.shown(root)) from None
            except Unanswered:
                raise OSError(errno.EIO, f"{self.shown(root)}: the store does not answer") from None
            self._copies[root] = self._copy(root, cell, base.manifest.objects)
        return self._copies[root]

    def _copy(self, root: str, cell: str, named: tuple[Named, ...]) -> Copy:
        return copy_of_base(root, cell, self._objects, named, self._objects.read_at)

    def shown(self, path: str) -> str:
        """A path in a copy as people know it."""
        return path.replace(f"/{self._location.scheme}/", f"{self._location.scheme}://", 1)

    def close(self) -> None:
        self._driver.close()


def find_cluster(url: str) -> ClusterCopies | None:
    """The cluster at s3://bucket/prefix, gs:// or az://; None: there is none. Raises OpenError, ValueError."""
    location = parse_location(url)
    driver = Driver(open_location(location), SystemClock())
    try:
        return ClusterCopies(location, _answered(driver, read_cluster(location), str(location)), driver)
    except NoCluster:
        driver.close()
        return None
    except BaseException:
        driver.close()
        raise


def is_backup(fs: FileSystem, path: str) -> bool:
    """Whether a directory has backups, of one engine or of a set."""
    return has_backups(fs, path) or has_backups(fs, cell_folder(path, 0))


def _base_of(cell: str, number: int) -> Steps[Base]:
    head = yield from head_of(cell, number)
    return (yield from read_base(cell, head))


def _answered(driver: Driver, steps: Steps[T], what: str) -> T:
    """Raises OpenError: the store does not answer, or objects are missing or damaged."""
    try:
        return driver.run(steps)
    except Unanswered:
        raise OpenError(f"{what}: the store does not answer.") from None
    except (BaseMissing, DamagedSlot, CellMissing) as error:
        raise OpenError(f"{what}: {error}.") from error


def _add_log(copy: CopyFileSystem, scratch: str, log: list[Body], redo: tuple[int, int]) -> int:
    """Write the log behind a base to a local directory, and show its files in the copy. Returns the LSN of its end."""
    fs = UnsyncedFileSystem()
    end = position(*lay_out(fs, scratch, log, redo))
    folder = layout.shard_dir(scratch, 0, 1)
    for name in fs.listdir(folder):
        path = layout.join(folder, name)
        shown = path.removeprefix(f"{scratch}/")
        copy.add(shown, Extent(0, fs.file_size(path), partial(_read_file, fs, path)))
    return end


def _read_file(fs: FileSystem, path: str, size: int, offset: int) -> bytes:
    with closing(fs.open(path, write=False)) as file:
        return file.pread(size, offset)


class _Objects:
    """As `storage.backup.bases.Readable`."""

    def __init__(self, driver: Driver, location: Location) -> None:
        self._driver = driver
        self._store = open_store(str(location), PosixFileSystem())

    def get(self, named: Named) -> bytes:
        try:
            data = self._driver.run(get_object(named))
        except Unanswered as error:
            raise OSError(errno.EIO, f"{named.key}: the store does not answer") from error
        if data is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), named.key)
        if not named.fits(data):
            raise OSError(errno.EIO, f"{named.key} is damaged")
        return data

    def read_at(self, key: str, size: int, offset: int) -> bytes:
        """Bytes of an object. Raises FileNotFoundError, OSError."""
        try:
            return self._store.get_range(key, offset, size)
        except ColdMissing:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key) from None
        except ColdError as error:
            raise OSError(errno.EIO, f"{key}: {error}") from error


__all__ = ["BackupCopies", "ClusterCopies", "find_cluster", "is_backup"]
