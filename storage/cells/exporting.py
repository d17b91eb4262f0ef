"""Makes data directories of a cluster on which nothing runs: `python -m storage cluster export URL DIR`.

    nothing runs and nothing is missing → mark DIR → lay out the newest base and the log of each cell, start and stop
    its engine, and check all files → DIR is a set of cells, or the directory of one engine if there is one cell

The cluster stays as it is. A directory with the mark is opened by no broker, so a run that was interrupted leaves
nothing that could be taken for the whole: empty the directory, and run the command again.

Source: docs/cluster.md#from-one-machine-and-back.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable
from contextlib import closing

import msgspec

from storage.backup.bases import lay_out_base
from storage.backup.restoring import check_target, empty_directory
from storage.bucket import TTL_S, Body, Bucket, Driver, Location, open_location, read_cluster
from storage.cells.founding import Progress, cell_name
from storage.cells.stopped import Stopped, StoppedObjects, read_stopped
from storage.engine import Engine
from storage.errors import OpenError
from storage.inspect import DataDirectory, Finding, verify
from storage.options import Options
from storage.platform import (
    CellSet,
    FileSystem,
    Lock,
    LockText,
    PosixFileSystem,
    SystemClock,
    cell_folder,
    ensure_dir,
    layout,
    replace_file,
    take_lock,
    write_set,
)


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What was made. `crashed`: cells whose owner did not stop cleanly. Writes of class disk of its last second may be
    in the directory of its node alone."""

    directory: str
    url: str
    cluster_id: str
    cells: int
    copied_bytes: int
    crashed: list[int]


async def export_cluster(
    location: Location,
    root: str,
    progress: Progress = lambda what, done, total: None,
    *,
    open_store: Callable[[Location], Bucket] = open_location,
    ttl_s: float = TTL_S,
    fs: FileSystem | None = None,
) -> Exported:
    """Make `root`, which is missing or empty, of all cells. Durable on return. `fs`: where `root` is.

    Raises OpenError, also ClusterInUse and ClusterDamaged; Unanswered, BackupRefused, BackupDamaged, OSError. The
    directory is empty then.
    """
    fs = fs or PosixFileSystem()
    check_target(fs, str(location), root)
    with closing(Driver(open_store(location), SystemClock())) as driver:
        cluster = driver.run(read_cluster(location))
        cells = await asyncio.to_thread(read_stopped, driver, cluster.cells, ttl_s, progress)
        total = sum(each.size for cell in cells for each in cell.reading.base.manifest.objects)
        total += sum(len(slot.body) for cell in cells for slot in cell.reading.log)
        copied = 0

        task = asyncio.current_task()

        def show(what: str, done: int, total: int) -> None:
            if task is not None and task.cancelling():  # an interrupt does not wait for the rest of the cell
                raise asyncio.CancelledError
            progress(what, done, total)

        def on(size: int) -> None:
            nonlocal copied
            copied += size
            show("copying", copied, total)

        ensure_dir(fs, root)
        lock = take_lock(fs, root)
        try:
            replace_file(fs, root, layout.RESTORING, f"{location}\n".encode())
            for cell in cells:
                await _make(fs, cell_folder(root, cell.cell), cell, cluster.cells, StoppedObjects(driver, on))
                on(sum(len(slot.body) for slot in cell.reading.log))
                _verify(fs, cell_folder(root, cell.cell), show)
            if cluster.cells > 1:
                write_set(fs, root, CellSet(set_id=uuid.uuid4().hex, cells=cluster.cells))
            else:
                _move_up(fs, root, lock)
            fs.sync_dir(root)  # otherwise a loss of power could take the mark away before the rest is there
            fs.unlink(layout.join(root, layout.RESTORING))
            fs.sync_dir(root)
        except BaseException:
            with contextlib.suppress(OSError):  # otherwise the mark stays
                empty_directory(fs, root)
            raise
        finally:
            lock.release()
    return Exported(
        directory=root,
        url=cluster.url,
        cluster_id=cluster.cluster_id,
        cells=cluster.cells,
        copied_bytes=copied,
        crashed=[each.cell for each in cells if not each.is_clean],
    )


async def _make(fs: FileSystem, folder: str, cell: Stopped, cells: int, objects: StoppedObjects) -> None:
    """The data directory of a cell, as after a clean stop."""
    manifest = cell.reading.base.manifest
    log = [Body(slot.file, slot.offset, slot.body) for slot in cell.reading.log]
    ensure_dir(fs, folder)
    lay_out_base(fs, folder, cell_name(cell.cell), objects, manifest.objects, log, manifest.log_from, manifest.instant)
    # What the last stop says about the files holds: they are as they were in the bucket.
    replace_file(fs, folder, layout.LOCK, LockText(came_up=True).encode().encode())
    # Only a cell in a bucket begins its log in the middle of a file, and has no packed segments. A start with another
    # number of shards lays the log out anew, from the start of a file.
    for shards in (2, 1):
        options = Options(cell=cell.cell, cells=cells, plain_segments=True, make_hot=True, wal_shards=shards)
        async with Engine.open(folder, options, fs=fs):
            pass


def _move_up(fs: FileSystem, root: str, lock: Lock) -> None:
    """The directory of the only cell becomes `root`. The mark is still there."""
    folder = cell_folder(root, 0)
    with closing(fs.open(layout.join(folder, layout.LOCK), write=False)) as file:
        lock.write(file.pread(file.size(), 0).decode())
    fs.unlink(layout.join(folder, layout.LOCK))
    for name in fs.listdir(folder):
        fs.rename(layout.join(folder, name), layout.join(root, name))
    fs.rmdir(folder)


def _verify(fs: FileSystem, folder: str, progress: Progress) -> None:
    problems: list[Finding] = []
    verify(
        DataDirectory(fs, folder),
        lambda finding: problems.append(finding) if finding.problem else None,
        lambda done, total: progress("verifying", done, total),
    )
    if problems:
        raise OpenError(f"{problems[0].path}: {problems[0].text}")
