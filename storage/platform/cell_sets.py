"""A set of cells: one directory, whose folders cell-00, cell-01, ... are data directories of one engine each.

    SET_DIR/
      cells.json     what the set is; its number of cells never changes
      cell-00/ ...   data directories
      run/           sockets of the running processes

Source: docs/cells.md#files.
"""

from __future__ import annotations

import re
import uuid
from typing import Final

import msgspec
import xxhash

from storage.errors import MetadataLost, OpenError, UnsupportedFormat
from storage.platform import layout
from storage.platform.directory import ensure_dir, refuse_moved, replace_file
from storage.platform.filesystem import FileSystem

CELLS_FILE: Final = "cells.json"
#: The future content of CELLS_FILE, while an existing directory is made a set (`storage.cells.making`).
INTENT_FILE: Final = "cells.json.init"
_VERSION = 1
_FOLDER = re.compile(r"cell-(\d{2,})")


class CellSet(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `cells.json`."""

    version: int = _VERSION
    #: Random, drawn when the set was made.
    set_id: str
    cells: int


class CellsDiffer(OpenError):
    """The directory has another number of cells than the settings say."""


def home_cell(name: str, cells: int) -> int:
    """The cell that decides about a name in a set of this many cells: the name of a topic, a router, a Kafka group or
    anything else."""
    return xxhash.xxh3_64_intdigest(name.encode()) % cells


def cell_folder(root: str, cell: int) -> str:
    """The data directory of a cell."""
    return layout.join(root, f"cell-{cell:02d}")


def cell_folders(names: list[str]) -> list[int]:
    """The numbers of the cells whose folders are among `names`, ascending."""
    return sorted(int(match[1]) for name in names if (match := _FOLDER.fullmatch(name)))


def run_folder(root: str) -> str:
    """The folder of the sockets."""
    return layout.join(root, "run")


def read_set(fs: FileSystem, root: str, name: str = CELLS_FILE) -> CellSet | None:
    """The set in this directory. None if it is not a set. Raises MetadataLost, UnsupportedFormat, OSError."""
    path = layout.join(root, name)
    if not fs.exists(path):
        return None
    file = fs.open(path, write=False)
    try:
        content = file.pread(file.size(), 0)
    finally:
        file.close()
    try:
        found = msgspec.json.decode(content, type=CellSet)
    except msgspec.DecodeError as error:
        raise MetadataLost(f"{path} is damaged: {error}.") from None
    if found.version != _VERSION:
        raise UnsupportedFormat(f"{path} has version {found.version}; this program knows {_VERSION}.")
    return found


def open_set(fs: FileSystem, root: str, cells: int) -> CellSet:
    """Open the set in this directory. An empty or missing directory becomes a new set. Durable on return.

    Raises CellsDiffer if the directory is a set of another number of cells, or the data directory of one engine. Also
    raises the errors of `read_set`.
    """
    found = read_set(fs, root)
    refuse_moved(fs, root)
    if found is None:
        _refuse_half_a_set(fs, root)
        if fs.is_dir(root) and fs.exists(layout.join(root, layout.FORMAT)):
            raise CellsDiffer(
                f"{root} is the data directory of one engine; `python -m storage cells init {root} --cells {cells}` "
                "makes it the first cell of a set, without copying it."
            )
        if fs.is_dir(root) and fs.exists(layout.join(root, layout.RESTORING)):
            raise OpenError(
                f"A restore or an export into {root} was not completed: empty the directory, and run the command again."
            )
        if fs.exists(cell_folder(root, 0)):
            raise MetadataLost(f"{root} holds cells but no {CELLS_FILE}; it is not started as a new set.")
        found = CellSet(set_id=uuid.uuid4().hex, cells=cells)
        write_set(fs, root, found)
    if found.cells != cells:
        raise CellsDiffer(
            f"{root} is a set of {found.cells} cells, not of {cells}: the number is fixed. To change it, back up the "
            "set and restore the backup into a new one."
        )
    for cell in range(cells):
        ensure_dir(fs, cell_folder(root, cell))
    return found


def refuse_set(fs: FileSystem, root: str) -> None:
    """Raises CellsDiffer if the directory is a set, or is being made one. One engine alone must not open it."""
    if (found := read_set(fs, root)) is not None:
        raise CellsDiffer(f"{root} is a set of {found.cells} cells: start the broker with TOPICS_CELLS={found.cells}.")
    _refuse_half_a_set(fs, root)


def _refuse_half_a_set(fs: FileSystem, root: str) -> None:
    if (intent := read_set(fs, root, INTENT_FILE)) is not None:
        raise CellsDiffer(
            f"{root} is being made a set of cells, and that was not completed: run "
            f"`python -m storage cells init {root} --cells {intent.cells}` again."
        )


def write_set(fs: FileSystem, root: str, made: CellSet) -> None:
    """Write `cells.json`. Durable on return."""
    ensure_dir(fs, root)
    replace_file(fs, root, CELLS_FILE, msgspec.json.encode(made))
