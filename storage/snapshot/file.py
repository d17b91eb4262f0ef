"""Writes a snapshot's bytes into meta/: tmp, fsync, rename, directory fsync. Blocking.

Source: docs/reference/format.md#snapshots.
"""

from __future__ import annotations

import contextlib

from storage.log import no_space
from storage.platform import FileSystem, layout, write_whole


def write(fs: FileSystem, root: str, number: int, data: bytes) -> None:
    """Write the snapshot; durable on return. A crash before that leaves a whole snapshot or none. Raises OSError.

    On a full disk, the reserve makes room. It is created again, twice the size, when there is space again.
    """
    directory = layout.meta_dir(root)
    path = layout.join(directory, layout.snapshot_name(number))
    reserve = layout.join(directory, layout.RESERVE)
    try:
        _write_file(fs, path + layout.TMP_SUFFIX, data)
    except OSError as error:
        if not no_space(error) or not fs.exists(reserve):
            raise
        fs.unlink(reserve)  # the reserve is for this moment
        _write_file(fs, path + layout.TMP_SUFFIX, data)
    fs.rename(path + layout.TMP_SUFFIX, path)
    fs.sync_dir(directory)
    with contextlib.suppress(OSError):  # without room for the reserve, the next snapshot may have to wait for space
        _make_reserve(fs, directory, 2 * len(data))


def _write_file(fs: FileSystem, path: str, data: bytes) -> None:
    file = fs.open(path, create=True)
    try:
        file.truncate(0)
        write_whole(file, data, 0)
        file.sync()
    except OSError:
        with contextlib.suppress(OSError):
            fs.unlink(path)
        raise
    finally:
        file.close()


def _make_reserve(fs: FileSystem, directory: str, size: int) -> None:
    path = layout.join(directory, layout.RESERVE)
    if fs.exists(path):
        if fs.file_size(path) >= size:
            return
        fs.unlink(path)
    file = fs.open(path, create=True)
    try:
        file.allocate(size)
        file.sync()
    finally:
        file.close()
    fs.sync_dir(directory)
