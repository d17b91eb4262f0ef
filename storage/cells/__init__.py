"""Sets of cells: directories of several engines. What makes, backs up or runs one needs the engine, and is in files of
its own."""

from __future__ import annotations

from storage.cells.sets import CellSet, cell_folder, home_cell, open_set, read_set, refuse_set, run_folder

__all__ = [
    "CellSet",
    "cell_folder",
    "home_cell",
    "open_set",
    "read_set",
    "refuse_set",
    "run_folder",
]
