"""Writes a backup to a backup directory. Blocking. Each step, and what a crash after it leaves:

    1  .data of sealed segments: tmp, fsync, rename     files that no manifest names: the next backup uses or
                                                         removes them
    2  the state file, fsynced; every folder fsynced     the same
    3  the manifest: tmp, fsync, rename, folder fsync    this backup, and the two before
    4  older manifests unlinked, folder fsynced          this backup and the one before
    5  files that neither of them names unlinked               the same

So the newest manifest always names only files that are complete and durable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import structlog
import xxhash

from storage.backup import manifest as files
from storage.backup.copying import Going, Source, checksum_of, copy
from storage.backup.errors import BackupRefused
from storage.backup.manifest import Manifest, ManifestDamaged, ManifestUnsupported, Piece, Shared
from storage.platform import File, FileSystem, Lock, ensure_dir, layout, write_whole
from storage.segments import SegmentId, replace_file

RETAINED = 2
_MAX_MARKER_BYTES = 4096
_log = structlog.get_logger("storage")


def read_whole(fs: FileSystem, path: str) -> bytes:
    """All of a file. Raises OSError."""
    with contextlib.closing(fs.open(path, write=False)) as file:
        return file.pread(file.size(), 0)


def read_marker(fs: FileSystem, root: str) -> str | None:
    """The cluster that a directory holds backups of; None: it holds none. Raises BackupRefused, OSError."""
    path = layout.join(root, files.MARKER)
    if not fs.exists(path):
        return None
    lines = read_whole(fs, path)[:_MAX_MARKER_BYTES].decode("ascii", "replace").split("\n")
    if not lines[0].isdigit() or len(lines) < 2 or not lines[1]:
        raise BackupRefused(f"{path} is damaged: it must say a version and a cluster id.")
    if int(lines[0]) != files.VERSION:
        raise BackupRefused(f"{path} says version {lines[0]}; this program knows {files.VERSION}.")
    return lines[1]


def read_manifests(fs: FileSystem, root: str) -> dict[int, Manifest | ManifestDamaged]:
    """Every manifest of a backup directory by number, oldest first. Raises BackupRefused, OSError."""
    found: dict[int, Manifest | ManifestDamaged] = {}
    for name in fs.listdir(root):
        number = files.manifest_number(name)
        if number is None:
            continue
        try:
            found[number] = files.decode(read_whole(fs, layout.join(root, name)))
        except ManifestDamaged as error:
            found[number] = error
        except ManifestUnsupported as error:
            raise BackupRefused(f"{layout.join(root, name)}: {error}.") from error
    return found


def hold(fs: FileSystem, root: str) -> Lock:
    """Keep other backups, and restores, out of the directory. Raises BackupRefused, OSError."""
    try:
        return fs.lock(layout.join(root, layout.LOCK))
    except BlockingIOError:
        raise BackupRefused(f"{root} is in use: a backup is being written there, or restored.") from None


class Target:
    """A backup directory, locked from `open` to `close`."""

    def __init__(self, fs: FileSystem, root: str, cluster_id: str, going: Going) -> None:
        self._fs = fs
        self.root = root
        self._cluster_id = cluster_id
        self._going = going
        self._lock: Lock | None = None
        self._manifests: dict[int, Manifest | ManifestDamaged] = {}
        self._known: dict[str, Shared] = {}
        self._known_ids: set[SegmentId] = set()
        self._touched: set[str] = set()
        self._state: File | None = None
        self._end = 0
        self.number = 0
        self.pieces: list[Piece] = []
        self.shared: dict[SegmentId, Shared] = {}
        #: Bytes written here by this backup, and bytes of files that were there.
        self.copied_bytes = 0
        self.reused_bytes = 0

    def open(self) -> None:
        """Lock the directory; make it if it is missing. Raises BackupRefused (then nothing was changed), OSError."""
        fs, root = self._fs, self.root
        found = fs.listdir(root) if fs.is_dir(root) else []
        cluster_id = read_marker(fs, root)
        strangers = [name for name in found if name not in (layout.LOCK, files.MARKER + layout.TMP_SUFFIX)]
        if cluster_id is None and strangers:
            raise BackupRefused(
                f"{root} is not empty and holds no backups ({strangers[0]} is there): name an empty directory."
            )
        if cluster_id not in (None, self._cluster_id):
            raise BackupRefused(
                f"{root} holds backups of cluster {cluster_id}, and this is cluster {self._cluster_id}: "
                "name another directory."
            )
        ensure_dir(fs, root)
        self._lock = hold(fs, root)
        if cluster_id is None:
            replace_file(fs, layout.join(root, files.MARKER), files.marker_text(self._cluster_id))
        self._manifests = read_manifests(fs, root)
        for manifest in self._manifests.values():
            if isinstance(manifest, Manifest):
                self._known.update((each.file, each) for each in manifest.shared)
        self._known_ids = {each.id for each in self._known.values()}
        numbers = [*self._manifests, *(number for name in found if (number := files.state_number(name)) is not None)]
        self.number = max(numbers, default=0) + 1
        folder = layout.join(root, files.SEGMENTS)
        if not fs.is_dir(folder):
            fs.mkdir(folder)
        self._state = fs.open(layout.join(root, files.state_name(self.number)), create=True, exclusive=True)

    def close(self) -> None:
        """Unlock the directory, and remove what an unfinished backup has left."""
        if self._state is not None:
            self._state.close()
            self._state = None
            if self.number not in self._manifests:
                with contextlib.suppress(OSError):
                    self._fs.unlink(layout.join(self.root, files.state_name(self.number)))
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def has(self, id: SegmentId) -> bool:
        """Whether a backup here, or this one, has a .data of that name."""
        return id in self._known_ids or id in self.shared

    # -- what every backup holds anew --------------------------------------------------------------------------------

    def add(self, path: str, source: Source, begin: int, end: int) -> None:
        """Copy the bytes [begin, end) of a file. Raises BackupFailed, OSError."""
        assert self._state is not None
        checksum = copy(source, path, begin, end - begin, self._state, self._end, self._going)
        self._note(path, begin, end - begin, checksum)

    def add_bytes(self, path: str, data: bytes) -> None:
        """Add a file whose content is given."""
        assert self._state is not None
        write_whole(self._state, data, self._end)
        self._going.on(len(data))
        self._note(path, 0, len(data), xxhash.xxh3_64_hexdigest(data))

    def add_data(self, id: SegmentId, idx: bytes, source: Source, size: int) -> None:
        """Copy the .data of a segment that is still appended to."""
        self.add(files.data_path(id), source, 0, size)

    def _note(self, path: str, begin: int, size: int, checksum: str) -> None:
        self.pieces.append(Piece(path=path, begin=begin, offset=self._end, size=size, checksum=checksum))
        self._end += size
        self.copied_bytes += size

    # -- what backups share ------------------------------------------------------------------------------------------

    def unreadable(self, id: SegmentId, error: str) -> None:
        """A backup leaves the directory alone."""

    def share(self, id: SegmentId, idx: bytes, source: Source, size: int) -> None:
        """Copy the .data of a sealed segment, unless the directory has it. Raises BackupFailed, OSError."""
        fs, name = self._fs, files.shared_file(id, files.identity_of(idx))
        path = layout.join(self.root, name)
        before = self.shared.get(id)
        if before is not None and before.file == name:
            return
        known = self._known.get(name)
        if fs.exists(path) and fs.file_size(path) == size:
            self._touch(id.topic_id)
            checksum = known.checksum if known is not None and known.size == size else self._checksum(path, size)
            self.reused_bytes += size
        else:
            checksum = self._copy(id.topic_id, path, source, size)
            self.copied_bytes += size
        self.shared[id] = Shared(
            topic_id=id.topic_id, first_seq=id.first_seq, gen=id.gen, file=name, size=size, checksum=checksum
        )

    def _touch(self, topic_id: int) -> None:
        """Remember to sync a folder. A process that was killed before it synced may have made it."""
        self._touched.add(layout.join(self.root, files.shared_folder(topic_id)))

    def _checksum(self, path: str, size: int) -> str:
        """The checksum of a file that an unfinished backup has left. It was renamed into place as a whole."""
        with contextlib.closing(self._fs.open(path, write=False)) as file:
            return checksum_of(file, size, self._going)

    def _copy(self, topic_id: int, path: str, source: Source, size: int) -> str:
        fs = self._fs
        folder = path.rpartition("/")[0]
        if not fs.is_dir(folder):
            fs.mkdir(folder)
        self._touch(topic_id)
        temporary = path + layout.TMP_SUFFIX
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(temporary)
        file = fs.open(temporary, create=True, exclusive=True)
        with contextlib.closing(file):
            checksum = copy(source, path.removeprefix(self.root + "/"), 0, size, file, 0, self._going)
            file.sync()
        fs.rename(temporary, path)
        return checksum

    # -- the end -----------------------------------------------------------------------------------------------------

    def commit(self, manifest: Manifest) -> int:
        """Write the manifest, which completes the backup; returns its bytes. Raises OSError, SegmentError."""
        assert self._state is not None
        fs = self._fs
        self._state.sync()
        for folder in sorted(self._touched):
            fs.sync_dir(folder)
        fs.sync_dir(layout.join(self.root, files.SEGMENTS))
        fs.sync_dir(self.root)
        data = files.encode(manifest)
        replace_file(fs, layout.join(self.root, files.manifest_name(self.number)), data)
        self._manifests[self.number] = manifest
        self.copied_bytes += len(data)
        try:
            self._prune()
        except OSError as error:  # the backup is complete anyway, and the next one tries again
            _log.warning("backup_leftovers", directory=self.root, error=str(error))
        return len(data)

    @property
    def state_bytes(self) -> int:
        return self._end

    def _prune(self) -> None:
        fs, root = self._fs, self.root
        whole = {number: each for number, each in self._manifests.items() if isinstance(each, Manifest)}
        retained = dict(sorted(whole.items())[-RETAINED:])
        doomed = [number for number in self._manifests if number not in retained]
        for number in doomed:
            fs.unlink(layout.join(root, files.manifest_name(number)))
        if doomed:
            fs.sync_dir(root)  # no manifest may come back once its files are gone
        for name in fs.listdir(root):
            number = files.state_number(name)
            unfinished = name.endswith(layout.TMP_SUFFIX) and files.manifest_number(
                name.removesuffix(layout.TMP_SUFFIX)
            )
            if (number is not None and number not in retained) or unfinished:
                fs.unlink(layout.join(root, name))
        named = {each.file for manifest in retained.values() for each in manifest.shared}
        folder = layout.join(root, files.SEGMENTS)
        for name in fs.listdir(folder):
            self._prune_folder(layout.join(files.SEGMENTS, name), named)

    def _prune_folder(self, folder: str, named: Iterable[str]) -> None:
        fs, path = self._fs, layout.join(self.root, folder)
        if not fs.is_dir(path):
            return
        found = fs.listdir(path)
        doomed = [name for name in found if files.is_shared(name) and layout.join(folder, name) not in named]
        for name in doomed:
            fs.unlink(layout.join(path, name))
        if len(doomed) == len(found):
            fs.rmdir(path)
