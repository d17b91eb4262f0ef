"""Opens a segment's records for reading, whether they are in a .data or packed in a .zdata. Nothing else does."""

from __future__ import annotations

from storage.platform import File, FileSystem, Readable
from storage.segments import names
from storage.segments.names import SegmentId
from storage.segments.packed import BlockCache, PackedData


def open_data(fs: FileSystem, root: str, id: SegmentId) -> Readable:
    """The .data of a hot segment, or an object that reads like it. Raises FileNotFoundError, SegmentShort, OSError."""
    path = names.records_path(root, id)
    return read_as_data(fs.open(path, write=False), path, id)


def read_as_data(file: File, path: str, id: SegmentId, cache: BlockCache | None = None) -> Readable:
    """The same for a file that is already open. Closes the file on failure."""
    if not id.packed:
        return file
    try:
        return PackedData(file, path, id, cache)
    except BaseException:
        file.close()
        raise
