"""Makes a cluster of the data of one machine: `python -m storage cluster import DIR URL`.

    start each engine → stop it, with its last snapshot as the base of the cell → create the rest of its log as slots →
    release the cell → create the object `cluster`

Nothing is lost, and nothing begins anew: seqs, epochs, groups, and leases, also those that are not durable, are as a
clean stop leaves them. The number of cells is that of the set; one engine becomes one cell. The directory is as after
a start and a stop.

The object `cluster` is created last. A run that was interrupted leaves cells that no node starts on; the command then
says how to go on.

Before the first cell is copied, the directory gets the file MOVED, with which no broker starts there: it would take
writes that the cluster does not see. A run that fails takes it away, if no cluster can be there.

Source: docs/cluster.md#from-one-machine-and-back.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import uuid
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

import msgspec

from storage.backup.bases import BaseTarget
from storage.bucket import (
    ANYONE,
    Bucket,
    Candidate,
    Driver,
    Location,
    Manifest,
    NoCluster,
    Slots,
    Unanswered,
    begin_cell,
    begun_by,
    check_clock,
    delete,
    found,
    open_location,
    probe,
    put_base,
    read_cluster,
    show_first,
    sign,
)
from storage.cells.founding import IMPORTER, Progress, cell_name
from storage.cells.owner import BucketObjects
from storage.engine import Engine
from storage.errors import ColdNotConfigured, OpenError
from storage.log import split
from storage.options import Options
from storage.platform import (
    FileSystem,
    PosixFileSystem,
    SystemClock,
    cell_folder,
    cell_folders,
    layout,
    moved_to,
    new_format,
    open_set,
    read_set,
    refuse_moved,
    replace_file,
    take_lock,
)

PROGRESS_S: Final = 0.2
#: The most bytes of the log in one slot.
SLOT_BYTES: Final = 8 << 20


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What was made. `records`: that are there; `copied_bytes`: to the bucket."""

    directory: str
    url: str
    cluster_id: str
    cells: int
    topics: int
    records: int
    copied_bytes: int


async def import_directory(
    root: str,
    location: Location,
    progress: Progress = lambda what, done, total: None,
    *,
    open_store: Callable[[Location], Bucket] = open_location,
    fs: FileSystem | None = None,
) -> Imported:
    """Make a cluster of the data directory or set `root`, on which no broker runs. `fs`: where `root` is.

    Raises OpenError, AlreadyLocked, StoreRefused, ClockWrong, Unanswered, GivenUp, OSError and the errors of a start.
    No cluster is there then, and the directory is as after a start. If the store does not answer the last request,
    there may be a cluster, and the directory has the file MOVED.
    """
    fs, nonce = fs or PosixFileSystem(), secrets.token_hex(16)
    set_ = read_set(fs, root)
    if set_ is None and not fs.exists(layout.join(root, layout.FORMAT)):
        raise OpenError(f"{root} is not a data directory: it has no file named {layout.FORMAT}.")
    if set_ is None:
        _refuse_part_of_set(fs, root)
    cells = 1 if set_ is None else set_.cells
    lock = None if set_ is None else take_lock(fs, root)
    topics = records = copied = 0
    mark = _Mark(fs, root, location)
    try:
        with closing(Driver(open_store(location), SystemClock())) as driver:
            progress("checking the store", 0, 1)
            _refuse_used(driver, location, cells, mark)
            refuse_moved(fs, root)
            if set_ is not None:
                open_set(fs, root, cells)
            probe(lambda: open_store(location), "probe", nonce)
            _check_clock(driver, nonce)
            for cell in range(cells):
                progress("copying cells", cell, cells)
                folder = root if set_ is None else cell_folder(root, cell)
                importer = _Cell(driver, fs, cell_name(cell), nonce, folder, mark.put, progress)
                await importer.run(Options(cell=cell, cells=cells) if set_ is not None else Options())
                topics, records = topics + importer.topics, records + importer.records
                copied += importer.copied_bytes
            progress("copying cells", cells, cells)
            mark.stays = True  # an answer may be lost
            mine = uuid.uuid4().hex
            try:
                made = driver.run(found(location, mine, cells))
            except Unanswered:
                raise OpenError(
                    f"The store did not answer the last request: {location} is a cluster now, or none. Run the command "
                    "again when the store answers, and it says which."
                ) from None
            if made.cluster_id != mine:
                mark.stays = False
                raise OpenError(f"{made.url} was made a cluster by another process meanwhile. Use another prefix.")
    finally:
        mark.remove_if_failed()
        if lock is not None:
            lock.release()
    return Imported(
        directory=root,
        url=made.url,
        cluster_id=made.cluster_id,
        cells=made.cells,
        topics=topics,
        records=records,
        copied_bytes=copied,
    )


def _refuse_part_of_set(fs: FileSystem, root: str) -> None:
    above, _, name = root.rpartition("/")
    if cell_folders([name]) and (found := read_set(fs, above)) is not None:
        raise OpenError(f"{root} is one of the {found.cells} cells of a set. Import the set: {above}.")


def _refuse_used(driver: Driver, location: Location, cells: int, mark: _Mark) -> None:
    try:
        there = driver.run(read_cluster(location))
    except NoCluster:
        for cell in map(cell_name, range(cells)):
            if driver.run(begun_by(cell)) is not None:
                raise OpenError(
                    f"{location}/{cell} has objects of a cluster or of an import that was interrupted. Use another "
                    f"prefix, or delete everything below {location} first.{mark.hint}"
                ) from None
    else:
        if mark.names(location):
            raise OpenError(
                f"{there.url} is a cluster of {there.cells} cells already, and {mark.path} says that the directory was "
                "imported there. Start the nodes of the cluster."
            )
        raise OpenError(f"{there.url} is a cluster of {there.cells} cells already. Use another prefix.")


def _check_clock(driver: Driver, nonce: str) -> None:
    """The engines start here, and would expire what is not due. Raises ClockWrong, Unanswered."""
    clock = SystemClock()
    driver.run(show_first(IMPORTER, nonce))
    try:
        driver.run(check_clock(sign(nonce), lambda: clock.wall_ns() / 1e9))
    finally:
        driver.run(delete(sign(nonce)))


class _Mark:
    """The file MOVED of a directory."""

    def __init__(self, fs: FileSystem, root: str, location: Location) -> None:
        self._fs = fs
        self._root = root
        self._location = location
        self.path = layout.join(root, layout.MOVED)
        self._is_there = False
        #: Also if the import fails from now on.
        self.stays = False

    @property
    def hint(self) -> str:
        """What to do about the file of an earlier run."""
        return f" Delete {self.path}, too." if self._fs.exists(self.path) else ""

    def names(self, location: Location) -> bool:
        """Whether there is a file, of an import to that place."""
        return moved_to(self._fs, self._root) == str(location)

    def put(self) -> None:
        """While the lock of the directory is held. Durable on return."""
        if not self._is_there:
            self._is_there = True
            replace_file(self._fs, self._root, layout.MOVED, f"{self._location}\n".encode())

    def remove_if_failed(self) -> None:
        if self._is_there and not self.stays:
            with contextlib.suppress(FileNotFoundError):  # it could not be written
                self._fs.unlink(self.path)
            self._fs.sync_dir(self._root)


class _Cell:
    """Copies one engine."""

    def __init__(
        self,
        driver: Driver,
        fs: FileSystem,
        name: str,
        nonce: str,
        folder: str,
        mark: Callable[[], None],
        progress: Progress,
    ) -> None:
        """`mark` is called when the engine holds the lock of its directory."""
        self._driver = driver
        self._fs = fs
        self._name = name
        self._nonce = nonce
        self._candidate = Candidate(IMPORTER, nonce)
        self._folder = folder
        self._mark = mark
        self._progress = progress
        self.topics = self.records = self.copied_bytes = 0

    async def run(self, options: Options) -> None:
        options = msgspec.structs.replace(options, wal_shards=1, segment_pack_bytes=0)
        try:
            await self._copy(options)
        except ColdNotConfigured:
            raise OpenError(
                f"{self._folder} has segments in a cold tier, which an import does not read. Back it up with "
                "--include-cold, and import the directory that a restore makes of that."
            ) from None

    async def _copy(self, options: Options) -> None:
        async with Engine.open(self._folder, options, fs=self._fs) as engine:
            self._mark()
            self.topics = len(engine.catalog.topics)
            self.records = sum(topic.log.count for topic in engine.catalog.topics.values())
            begun = self._driver.run(begin_cell(self._name, self._candidate, new_format(shards=1)))
            if begun.nonce != self._nonce:
                raise OpenError(
                    f"{self._name} was begun by another process at the same time: somebody makes a cluster there. Use "
                    "another prefix."
                )
            failed: list[Exception] = []
            copied: list[bool] = []

            async def last() -> None:
                try:
                    await self._put_base(engine)
                except Exception as error:  # the engine stops in any case
                    failed.append(error)
                else:
                    copied.append(True)

            log = engine.shards[0].log
            await engine.close(last)
            if failed:
                raise failed[0]
            if not copied or engine.failed_shards:
                raise OpenError(f"{self._folder} could not be stopped cleanly: a write to it has failed.")
            self._put_log(log.end_lsn)

    async def _put_base(self, engine: Engine) -> None:
        made: list[BaseTarget] = []
        objects, fs = BucketObjects(self._driver), self._fs

        def target(going: Any) -> BaseTarget:
            made.append(BaseTarget(objects, self._name, f"{self._nonce}-1", (), fs, self._folder, going))
            return made[0]

        taking = asyncio.ensure_future(engine.backups.take_base(target, clean=True))
        try:
            while not (await asyncio.wait([taking], timeout=PROGRESS_S))[0]:
                if engine.backups.progress is not None:
                    self._progress(f"copying {self._name}", *engine.backups.progress)
        except BaseException:
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
            raise
        [log_lsn], [instant_lsn] = taking.result()
        self._log_from = split(log_lsn)
        self.copied_bytes = made[0].copied_bytes
        manifest = Manifest(
            tuple(made[0].named.values()), (0,), self._log_from, split(instant_lsn), trimmed=0, clean=True
        )
        seal = self._candidate.seal(0, 1)
        await engine.runtime.run_io(self._driver.run, put_base(self._name, self._nonce, 1, 1, 1, seal, manifest))

    def _put_log(self, end_lsn: int) -> None:
        """What the log has behind the base, which is little after a clean stop."""
        fs, slots = self._fs, Slots(self._name, self._candidate.seal(0, 1))
        last, end = split(end_lsn)
        number, offset = self._log_from
        while (number, offset) < (last, end):
            path = layout.join(layout.shard_dir(self._folder, 0, 1), layout.wal_name(number))
            if fs.exists(path):
                with closing(fs.open(path, write=False)) as file:
                    stop = end if number == last else file.size()
                    while offset < stop:
                        data = file.pread(min(SLOT_BYTES, stop - offset), offset)
                        self._driver.run(slots.append(number, offset, data))
                        offset += len(data)
                        self.copied_bytes += len(data)
            number, offset = number + 1, 0
        self._driver.run(slots.give_to(ANYONE))
