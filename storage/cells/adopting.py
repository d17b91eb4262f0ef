"""Makes a copy of a cluster's objects a cluster of its own: `python -m storage cluster adopt URL`.

    nothing runs and nothing is missing → check the store → each cell: take it over, read all of it, begin new epochs,
    put a base, release it → create the next object `cluster`, with a new id and this address

The object `cluster` is created last, and nodes do not start on a copy. So a run that was interrupted is completed by
the same command. The generation of each cell grows by AHEAD: whatever the original has done since, the copy is ahead of
it. Readers of the original learn from the epochs that its topics were created again, because the copy may end earlier.

Source: docs/cluster.md#a-copy-becomes-a-cluster.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from typing import Final

import msgspec

from storage.backup.restoring import remove_tree
from storage.bucket import (
    ANYONE,
    TTL_S,
    Bucket,
    Candidate,
    Cluster,
    Driver,
    Location,
    open_location,
    probe,
    read_record,
    revise,
)
from storage.cells.founding import Progress, cell_name
from storage.cells.owner import CellOwner
from storage.cells.stopped import ClusterInUse, Stopped, read_stopped
from storage.errors import OpenError
from storage.options import Options
from storage.platform import (
    FileSystem,
    PosixFileSystem,
    SystemClock,
    cell_folder,
    cell_folders,
    layout,
    replace_file,
    take_lock,
)

#: What is added to the generation of each cell.
AHEAD: Final = 1000
#: In the folder while it is used: what a killed run has left there may be deleted.
MARK: Final = "ADOPTING"
#: What the seals call the process. Another copy is told by the address in them.
ADOPTER: Final = "adopt"


class Adopted(msgspec.Struct, frozen=True, kw_only=True):
    """What was made. `topics`: in all cells; partitions count."""

    url: str
    cluster_id: str
    original_cluster_id: str
    cells: int
    topics: int


async def adopt(
    location: Location,
    folder: str,
    progress: Progress = lambda what, done, total: None,
    *,
    open_store: Callable[[Location], Bucket] = open_location,
    ttl_s: float = TTL_S,
) -> Adopted:
    """Make the copy at this place a cluster. `folder`: missing or empty, or left by a run that was killed; has the
    files of one cell meanwhile, and is gone at the end.

    Raises OpenError, also ClusterInUse and ClusterDamaged; StoreRefused, Unanswered, GivenUp, and the errors of a
    start: no node starts there then, and the command can be run again.
    """
    nonce, fs = secrets.token_hex(16), PosixFileSystem()
    _check_folder(fs, folder)
    with closing(Driver(open_store(location), SystemClock())) as driver:
        record = driver.run(read_record(location))
        if record.url == str(location) and not record.adopted_id:
            raise OpenError(f"{location} is not a copy: the cluster was made there. Start its nodes.")
        if record.url != str(location):
            progress("checking the store", 0, 1)
            probe(lambda: open_store(location), "probe", nonce)
            cells = read_stopped(driver, record.cells, ttl_s, progress)
            topics = 0
            with _used(fs, folder):
                for each in cells:
                    progress("adopting cells", each.cell, record.cells)
                    topics += await _adopt_cell(location, folder, each, record.cells, open_store(location), ttl_s)
            progress("adopting cells", record.cells, record.cells)
            made = _made(driver, location, record)
        else:  # by a run that was interrupted before it could say so
            made, topics = record, 0
    return Adopted(
        url=made.url,
        cluster_id=made.cluster_id,
        original_cluster_id=made.adopted_id,
        cells=made.cells,
        topics=topics,
    )


def _check_folder(fs: FileSystem, folder: str) -> None:
    if fs.exists(folder) and not fs.is_dir(folder):
        raise OpenError(f"{folder} is no directory. Give the command one of its own (--work-dir).")
    found = set(fs.listdir(folder)) if fs.exists(folder) else set[str]()
    if MARK not in found and found - {layout.LOCK, f"{MARK}.tmp"}:
        raise OpenError(f"{folder} is not empty. Give the command a directory of its own (--work-dir).")


@contextmanager
def _used(fs: FileSystem, folder: str) -> Generator[None]:
    """Raises AlreadyLocked."""
    lock = take_lock(fs, folder)
    try:
        replace_file(fs, folder, MARK, b"")
        _empty(fs, folder)
        yield
    finally:
        _empty(fs, folder)
        with suppress(FileNotFoundError):  # it could not be written
            fs.unlink(layout.join(folder, MARK))
        fs.unlink(layout.join(folder, layout.LOCK))
        lock.release()
        fs.rmdir(folder)


def _empty(fs: FileSystem, folder: str) -> None:
    for number in cell_folders(fs.listdir(folder)):
        remove_tree(fs, cell_folder(folder, number))


def _made(driver: Driver, location: Location, record: Cluster) -> Cluster:
    """Raises ClusterInUse if somebody else was faster."""
    changes = {"cluster_id": uuid.uuid4().hex, "url": str(location), "adopted_id": record.cluster_id}
    made = driver.run(revise(record, **changes))
    if made is None:
        raise ClusterInUse(f"{location} was adopted by another process at the same time. Start its nodes.")
    return made


async def _adopt_cell(location: Location, folder: str, cell: Stopped, cells: int, bucket: Bucket, ttl_s: float) -> int:
    """How many topics it has; 0 if an earlier run did it."""
    owner = cell.reading.owner
    if (owner.node, owner.address, owner.successor) == (ADOPTER, str(location), ANYONE):
        return 0
    candidate = Candidate(ADOPTER, secrets.token_hex(16), address=str(location), ahead=AHEAD)
    process = CellOwner(
        bucket,
        cell_name(cell.cell),
        cell_folder(folder, cell.cell),
        candidate,
        options=Options(cell=cell.cell, cells=cells, new_epochs=True, put_interval_ms=0),
        ttl_s=ttl_s,
    )
    if not await process.start(wait=False):
        raise ClusterInUse(f"Another process owns {cell_name(cell.cell)} by now. Stop it, and run the command again.")
    topics = len(process.engine.catalog.topics)
    await process.close()
    _empty(PosixFileSystem(), folder)
    if not process.released:
        raise ClusterInUse(f"{cell_name(cell.cell)} could not be released: the store does not answer. Run it again.")
    return topics
