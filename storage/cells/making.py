"""Makes the directory of one engine the first cell of a new set, without copying its data.

    the directory starts and stops as one engine → intent file → its files are moved into cell-00 →
    cells that decide about names of its topics are told that cell 0 has them → the intent becomes cells.json

The intent file is written first and renamed last. A directory with an intent file is opened neither as one engine nor
as a set. After a crash at any step, the same call continues from there.

Source: docs/cells.md#an-existing-directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from typing import Any, Final

import msgspec

from storage.engine import Engine
from storage.errors import InvalidRequest, OpenError
from storage.options import Options
from storage.platform import (
    CELLS_FILE,
    INTENT_FILE,
    CellsDiffer,
    CellSet,
    FileSystem,
    cell_folder,
    ensure_dir,
    home_cell,
    layout,
    read_set,
    replace_file,
    take_lock,
)
from storage.records import MAX_CELLS
from storage.segments import names
from storage.topics import ENTRY_KIND, entry_cell

#: The contents of a data directory. FORMAT is moved first: without it, a program that does not know sets refuses the
#: rest.
_MOVED: Final = (layout.FORMAT, "meta", "wal", names.TOPICS, "quarantine")
#: How many entries are written in one batch.
_ROUND: Final = 1000


class MadeSet(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `make_set`."""

    directory: str
    set_id: str
    cells: int
    #: The number of topics of cell 0.
    topics: int
    #: How many of them have a name whose home is another cell.
    entries: int


async def make_set(fs: FileSystem, root: str, cells: int, options: Options | None = None, **seams: Any) -> MadeSet:
    """Make the data directory `root` cell 0 of a set of `cells` cells. No engine may have it open. Durable on return.

    `options`: as for its engine, for the cold store. `seams`: for tests. After an error or a crash, the same call
    continues where this one ended. After an error before the intent is written, the data directory is as it was.

    Raises InvalidRequest, CellsDiffer, AlreadyLocked, the errors of a start, OSError.
    """
    if not 2 <= cells <= MAX_CELLS:
        raise InvalidRequest(f"A set has 2 to {MAX_CELLS} cells, not {cells}.", field="cells")
    seams["fs"] = fs
    options = options or Options()
    if _check(fs, root, cells) is None:
        # Everything that a start would refuse is refused before anything changes.
        async with Engine.open(root, options, **seams):
            pass
    lock = take_lock(fs, root)
    try:
        intent = _check(fs, root, cells)
        if intent is None:
            intent = CellSet(set_id=uuid.uuid4().hex, cells=cells)
            replace_file(fs, root, INTENT_FILE, msgspec.json.encode(intent))
        _move(fs, root, lock.previous())
        topics, entries = await write_entries(root, cells, options, seams)
        fs.rename(layout.join(root, INTENT_FILE), layout.join(root, CELLS_FILE))
        fs.sync_dir(root)
    finally:
        lock.release()
    return MadeSet(directory=root, set_id=intent.set_id, cells=cells, topics=topics, entries=entries)


def _check(fs: FileSystem, root: str, cells: int) -> CellSet | None:
    """The intent of an earlier call. None if the directory is still that of one engine. Raises CellsDiffer,
    OpenError."""
    if (found := read_set(fs, root) if fs.is_dir(root) else None) is not None:
        raise CellsDiffer(
            f"{root} is a set of {found.cells} cells already, and their number is fixed. To change it, back up the set "
            "and restore the backup into a new one."
        )
    intent = read_set(fs, root, INTENT_FILE)
    if intent is not None and intent.cells != cells:
        raise CellsDiffer(
            f"{root} is being made a set of {intent.cells} cells: run the command with `--cells {intent.cells}` again."
        )
    if intent is None and not fs.exists(layout.join(root, layout.FORMAT)):
        raise OpenError(
            f"{root} is not a data directory: it has no file {layout.FORMAT}. An empty directory becomes a set at the "
            f"first start of the broker with TOPICS_CELLS={cells}."
        )
    return intent


def _move(fs: FileSystem, root: str, lock_text: str) -> None:
    """Move all files of the engine into the folder of cell 0. Files that are not the engine's stay."""
    target = cell_folder(root, 0)
    ensure_dir(fs, target)
    if not fs.exists(layout.join(target, layout.LOCK)):
        # The content says whether the page cache has everything that was written. The file in `root` is locked by this
        # process.
        replace_file(fs, target, layout.LOCK, lock_text.encode())
    for name in _MOVED:
        if fs.exists(layout.join(root, name)):
            fs.rename(layout.join(root, name), layout.join(target, name))
    fs.sync_dir(target)
    fs.sync_dir(root)


async def write_entries(root: str, cells: int, options: Options, seams: dict[str, Any]) -> tuple[int, int]:
    """Write an entry for each topic whose home is another cell, in its cell and in its home cell. Returns how many
    topics there are, and how many of them have an entry. Durable on return."""
    # These entries are not limited.
    options = msgspec.structs.replace(options, max_states=1 << 31)
    entries: list[dict[str, int]] = [{} for _ in range(cells)]
    topics = foreign = 0
    for cell in range(cells):
        async with _cell(root, cell, cells, options, seams) as engine:
            for name in engine.catalog.topics:
                topics += 1
                if (home := home_cell(name, cells)) != cell:
                    foreign += 1
                    entries[cell][name] = entries[home][name] = cell
            for name, value in engine.states.items(ENTRY_KIND):
                # A topic of that name that was deleted: its next home has to know where the next one is made.
                its_cell, home = entry_cell(value), home_cell(name, cells)
                if name not in engine.catalog.topics and home != its_cell:
                    entries[its_cell].setdefault(name, its_cell)
                    entries[home].setdefault(name, its_cell)
            await _put(engine, entries[cell])
            entries[cell] = {}
    for cell in range(cells):
        if entries[cell]:  # the entries of cells opened after this one
            async with _cell(root, cell, cells, options, seams) as engine:
                await _put(engine, entries[cell])
    return topics, foreign


def _cell(
    root: str, cell: int, cells: int, options: Options, seams: dict[str, Any]
) -> contextlib.AbstractAsyncContextManager[Engine]:
    its_options = msgspec.structs.replace(options, cell=cell, cells=cells)
    return Engine.open(cell_folder(root, cell), its_options, **seams)


async def _put(engine: Engine, entries: dict[str, int]) -> None:
    todo = [*entries.items()]
    for at in range(0, len(todo), _ROUND):
        puts = (engine.states.put(ENTRY_KIND, name, b"%d" % cell) for name, cell in todo[at : at + _ROUND])
        await asyncio.gather(*puts)
