"""Reads one backup of a backup directory, and compares each file with its checksum. Blocking."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable

import xxhash

from storage.backup import manifest as files
from storage.backup import target
from storage.backup.copying import CHUNK_BYTES, Source
from storage.backup.errors import BackupDamaged, BackupRefused
from storage.backup.manifest import Manifest, Piece, Shared
from storage.platform import File, FileSystem, Lock, layout

_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
_TOP = ("meta", "wal", "topics")

#: Takes (bytes, offset in the file), in order.
Sink = Callable[[bytes, int], None]


def has_backups(fs: FileSystem, root: str) -> bool:
    """Whether this is a backup directory. Raises OSError."""
    return fs.exists(layout.join(root, files.MARKER))


def newest_number(fs: FileSystem, root: str) -> int:
    """The number of the newest backup. Raises BackupRefused, OSError."""
    found = target.read_manifests(fs, root)
    if not found:
        raise BackupRefused(f"{root} holds no finished backup.")
    return max(found)


class BackupSource:
    """An open backup. The directory is locked from `open` to `close`, if it is writable."""

    def __init__(self, fs: FileSystem, root: str) -> None:
        self._fs = fs
        self.root = root
        self._lock: Lock | None = None
        self._state: File | None = None
        self._state_path = ""
        self.manifest: Manifest
        self._pieces: dict[str, Piece] = {}

    def open(self, number: int, *, lock: bool = True) -> None:
        """The backup of that number, 0: the newest. `lock` False: the caller keeps others from writing there. Raises
        BackupRefused, BackupDamaged, OSError."""
        fs, root = self._fs, self.root
        cluster_id = target.read_marker(fs, root) if fs.is_dir(root) else None
        if cluster_id is None:
            raise BackupRefused(f"{root} holds no backups: there is no file {files.MARKER}.")
        try:
            self._lock = target.hold(fs, root) if lock else None
        except OSError as error:  # nobody can write a backup there
            if error.errno not in _READ_ONLY:
                raise
        found = target.read_manifests(fs, root)
        if not found or (number and number not in found):
            there = ", ".join(map(str, found)) or "none"
            raise BackupRefused(f"{root} holds no finished backup{f' {number}' if number else ''}; there: {there}.")
        number = number or max(found)
        chosen = found[number]
        path = layout.join(root, files.manifest_name(number))
        if not isinstance(chosen, Manifest):
            others = [str(each) for each, manifest in found.items() if isinstance(manifest, Manifest)]
            hint = f"; the backup before it is number {others[-1]}" if others else ""
            raise BackupDamaged(path, f"{chosen}{hint}") from chosen
        if chosen.number != number:
            raise BackupDamaged(path, f"it is the manifest of backup {chosen.number}")
        if chosen.cluster_id != cluster_id:
            raise BackupDamaged(layout.join(root, files.MARKER), f"it is not of cluster {chosen.cluster_id}")
        self.manifest = chosen
        self._pieces = {piece.path: piece for piece in chosen.pieces}
        self._state_path = layout.join(root, files.state_name(number))
        try:
            self._state = fs.open(self._state_path, write=False)
        except FileNotFoundError:
            raise BackupDamaged(self._state_path, "the file is missing") from None

    def close(self) -> None:
        if self._state is not None:
            self._state.close()
        if self._lock is not None:
            self._lock.release()

    @property
    def pieces(self) -> list[Piece]:
        """The files of the chosen backup. Raises BackupDamaged when one does not belong in a data directory."""
        for piece in self.manifest.pieces:
            parts = piece.path.split("/")
            if parts[0] not in _TOP or not {"", ".", ".."}.isdisjoint(parts):
                raise BackupDamaged(files.manifest_name(self.manifest.number), f"it names {piece.path!r}")
        return self.manifest.pieces

    def read_piece(self, piece: Piece, sink: Sink) -> None:
        """Pass the bytes of a piece to `sink`, with offsets from its first byte on.

        Raises BackupDamaged when the checksum differs, OSError.
        """
        assert self._state is not None
        what = f"{self._state_path}, offset {piece.offset} ({piece.path})"
        self._read(self._state, what, piece.offset, piece.size, piece.checksum, sink)

    def index(self, path: str) -> bytes:
        """An .idx of the backup. Raises BackupDamaged, OSError."""
        piece = self._pieces.get(path)
        if piece is None:
            raise BackupDamaged(files.manifest_name(self.manifest.number), f"it does not name {path}")
        found: list[bytes] = []
        self.read_piece(piece, lambda data, _: found.append(data))
        return b"".join(found)

    def pread(self, piece: Piece, size: int, offset: int) -> bytes:
        """Bytes of a piece, whose checksum is not compared. Raises OSError."""
        assert self._state is not None
        return self._state.pread(min(size, piece.size - offset), piece.offset + offset)

    def path_of(self, shared: Shared) -> str:
        """The file with a sealed segment. Raises BackupDamaged if the manifest names one that is not in the backup."""
        if not shared.file.startswith(files.SEGMENTS + "/") or ".." in shared.file:
            raise BackupDamaged(files.manifest_name(self.manifest.number), f"it names {shared.file!r}")
        return layout.join(self.root, shared.file)

    def read_shared(self, shared: Shared, sink: Sink) -> None:
        """Like `read_piece`."""
        path = self.path_of(shared)
        try:
            file = self._fs.open(path, write=False)
        except FileNotFoundError:
            raise BackupDamaged(path, "the file is missing") from None
        with contextlib.closing(file):
            self._read(file, path, 0, shared.size, shared.checksum, sink)

    def _read(self, source: Source, what: str, begin: int, size: int, checksum: str, sink: Sink) -> None:
        digest = xxhash.xxh3_64()
        done = 0
        while done < size:
            data = source.pread(min(CHUNK_BYTES, size - done), begin + done)
            if not data:
                raise BackupDamaged(what, f"it ends after {done} of {size} bytes")
            digest.update(data)
            sink(data, done)
            done += len(data)
        if digest.hexdigest() != checksum:
            raise BackupDamaged(what, f"its checksum is {digest.hexdigest()}, and {checksum} was written")
