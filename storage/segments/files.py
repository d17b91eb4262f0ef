"""What all writers of segment files need: making files and folders durable, finishing writes, telling errors apart.

When a write fails for want of space, the OSError passes through: nothing of the write counts, and it may be repeated.
Any other error, and any failed sync, raises SegmentBroken: from then on nobody knows what the file's pages hold, and
the file must never be synced again (docs/reference/guarantees.md#crash-points-of-a-write).
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Generator

from storage.platform import Buffer, File, FileSystem, layout, write_whole
from storage.segments import names
from storage.segments.errors import SegmentBroken
from storage.segments.names import SegmentId

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def make_folder(fs: FileSystem, root: str, topic_id: int) -> str:
    """Make the folder of a log and all above it; durable on return. Raises OSError."""
    # A folder that exists may have been made by a process that was killed before it synced the parent.
    for parent, path in (
        (root, names.topics_folder(root)),
        (names.topics_folder(root), names.folder(root, topic_id)),
    ):
        with contextlib.suppress(FileExistsError):
            fs.mkdir(path)
        fs.sync_dir(parent)
    return path


def create_files(fs: FileSystem, root: str, id: SegmentId) -> tuple[File, File]:
    """A new .data (or .zdata) and a new .idx, empty and open. Their names are not durable yet. Raises OSError, and then
    neither exists.

    EEXIST: one of them exists. Only the caller knows whether the manifest names it or a failure left it.
    """
    with contextlib.ExitStack() as made:
        opened: list[File] = []
        for ext in (id.records_ext, names.IDX):
            path = names.path(root, id, ext)
            file = fs.open(path, create=True, exclusive=True)
            made.callback(discard, fs, file, path)
            opened.append(file)
        made.pop_all()
    return opened[0], opened[1]


def discard(fs: FileSystem, file: File, path: str) -> None:
    """Close and unlink an unfinished file. If that fails, a later sweep removes it."""
    with contextlib.suppress(OSError):
        file.close()
    with contextlib.suppress(OSError):
        fs.unlink(path)


@contextlib.contextmanager
def writing(path: str) -> Generator[None]:
    """Translates errors of writes and truncations of a file, as the module says."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise
        raise SegmentBroken(f"{path}: {error}") from error


def write_all(file: File, path: str, data: Buffer, offset: int) -> None:
    """Write all of it, in as many calls as that takes."""
    with writing(path):
        write_whole(file, data, offset)


def datasync(file: File, path: str) -> None:
    """Sync the file. Raises SegmentBroken."""
    try:
        file.datasync()
    except OSError as error:
        raise SegmentBroken(f"{path}: {error}") from error


def replace_file(fs: FileSystem, path: str, data: bytes) -> None:
    """Replace a file as a whole: after a crash the old or the new one is there. Raises OSError, SegmentBroken."""
    temporary = path + layout.TMP_SUFFIX
    # Use a new inode: pages of one that an earlier attempt left may have failed to be written.
    with contextlib.suppress(FileNotFoundError):
        fs.unlink(temporary)
    file = fs.open(temporary, create=True, exclusive=True)
    try:
        write_all(file, temporary, data, 0)
        datasync(file, temporary)
        file.close()
        fs.rename(temporary, path)
    except BaseException:
        discard(fs, file, temporary)
        raise
    fs.sync_dir(path.rpartition("/")[0])


def remove_folder(fs: FileSystem, root: str, topic_id: int) -> None:
    """Remove all files of a deleted log. Durable on return; may be repeated. Raises OSError."""
    folder = names.folder(root, topic_id)
    with contextlib.suppress(FileNotFoundError):
        for name in fs.listdir(folder):
            fs.unlink(layout.join(folder, name))
        fs.sync_dir(folder)
        fs.rmdir(folder)
    if fs.exists(names.topics_folder(root)):
        fs.sync_dir(names.topics_folder(root))
