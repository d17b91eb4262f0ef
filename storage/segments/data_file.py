"""The one place that opens a segment's records for reading, whatever file they are in."""

from __future__ import annotations

from storage.platform.filesystem import File, FileSystem, Readable
from storage.segments import names
from storage.segments.names import SegmentId
from storage.segments.packed import BlockCache, PackedData


def open_data(fs: FileSystem, root: str, id: SegmentId) -> Readable:
    """The .data of a hot segment, or what reads as that. Raises FileNotFoundError, SegmentShort, OSError."""
    path = names.records_path(root, id)
    return read_as_data(fs.open(path, write=False), path, id)


def read_as_data(file: File, path: str, id: SegmentId, cache: BlockCache | None = None) -> Readable:
    """The same of a file that is open; it is closed when that fails."""
    if not id.packed:
        return file
    try:
        return PackedData(file, path, id, cache)
    except BaseException:
        file.close()
        raise
