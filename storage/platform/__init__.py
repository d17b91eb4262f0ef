"""The machine below the engine: clock, file system, I/O backends, data directories and sets of them, other cells.

The rest of storage gets these injected; no other code in storage makes a system call or reads the time.
"""

from storage.platform import layout
from storage.platform.cell_sets import (
    CELLS_FILE,
    INTENT_FILE,
    CellsDiffer,
    CellSet,
    cell_folder,
    cell_folders,
    home_cell,
    open_set,
    read_set,
    refuse_set,
    run_folder,
    write_set,
)
from storage.platform.clock import Clock, EngineTime, SystemClock
from storage.platform.directory import (
    MAX_SHARDS,
    Format,
    LockText,
    ShardTrust,
    ensure_dir,
    format_text,
    make_folders,
    moved_to,
    new_format,
    open_format,
    put_format,
    read_laid_out,
    refuse_moved,
    replace_file,
    take_lock,
    write_format,
    write_laid_out,
)
from storage.platform.filesystem import (
    Buffer,
    File,
    FileSystem,
    Lock,
    Read,
    Readable,
    SyncFailed,
    write_buffers,
    write_whole,
)
from storage.platform.heaps import bound_heaps
from storage.platform.layout import PACKED_FORMAT_VERSION
from storage.platform.neighbours import CALL_S, Era, Eras, Method, Neighbours
from storage.platform.overlay import OverlayFileSystem
from storage.platform.posix import PosixFileSystem, PosixLock
from storage.platform.runtime import Runtime
from storage.platform.slices import in_slices
from storage.platform.unsynced import UnsyncedFileSystem

__all__ = [
    "CALL_S",
    "CELLS_FILE",
    "INTENT_FILE",
    "MAX_SHARDS",
    "PACKED_FORMAT_VERSION",
    "Buffer",
    "CellSet",
    "CellsDiffer",
    "Clock",
    "EngineTime",
    "Era",
    "Eras",
    "File",
    "FileSystem",
    "Format",
    "Lock",
    "LockText",
    "Method",
    "Neighbours",
    "OverlayFileSystem",
    "PosixFileSystem",
    "PosixLock",
    "Read",
    "Readable",
    "Runtime",
    "ShardTrust",
    "SyncFailed",
    "SystemClock",
    "UnsyncedFileSystem",
    "bound_heaps",
    "cell_folder",
    "cell_folders",
    "ensure_dir",
    "format_text",
    "home_cell",
    "in_slices",
    "layout",
    "make_folders",
    "moved_to",
    "new_format",
    "open_format",
    "open_set",
    "put_format",
    "read_laid_out",
    "read_set",
    "refuse_moved",
    "refuse_set",
    "replace_file",
    "run_folder",
    "take_lock",
    "write_buffers",
    "write_format",
    "write_laid_out",
    "write_set",
    "write_whole",
]
