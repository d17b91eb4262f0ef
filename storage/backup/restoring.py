"""Restores a backup into a new data directory. Blocking; no engine runs on either.

1. RESTORING is put into the empty directory. No engine starts there until it is gone.
2. Every file is copied and compared with its checksum. Deletions are carried over from .idx to .data.
3. The copy is recovered as at a start. Cold segments become hot ones.
4. The result must not be mistaken for the original. Every log gets a new epoch, from a counter beyond any epoch that
   the original can have used since; no seq is reserved; there is a new cluster id.
5. All records go into segments, and the state into two snapshots (`resharding.lay_out_anew`).
6. `storage verify` checks every byte. Only then RESTORING is removed.

An error leaves the directory empty again; a crash leaves RESTORING in it.

Source: docs/adr/0027, docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from contextlib import closing

import msgspec

from storage.backup import manifest as files
from storage.backup.backups import lies_within
from storage.backup.errors import BackupDamaged, BackupRefused
from storage.backup.manifest import Manifest
from storage.backup.source import BackupSource
from storage.format import idx_entry, segment_frame
from storage.inspect import DataDirectory, Finding, Verdict, verify
from storage.options import Options
from storage.platform import (
    Clock,
    EngineTime,
    File,
    FileSystem,
    LockText,
    ShardTrust,
    SystemClock,
    ensure_dir,
    layout,
    make_folders,
    take_lock,
    write_format,
    write_whole,
)
from storage.records import CELL_SHIFT, cell_of
from storage.recovery import Recovered, lay_out_anew, load_snapshots, recover
from storage.segments import SegmentId, id_of, names, remove_folder
from storage.segments.tiering import ColdError, ColdStore, ColdTier, DirectoryStore
from storage.state import COLD, HOT, Catalog

#: The folder of cold segments until they are hot ones.
_COLD = "restoring-cold"
#: May be in the top folder of a file system, and is ignored.
_NOT_OURS = "lost+found"

Progress = Callable[[str, int, int], None]


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a restore."""

    directory: str
    backup: str
    number: int
    taken_ms: int
    cluster_id: str
    original_cluster_id: str
    topics: int
    records: int
    bytes: int
    checked: str
    heads: dict[str, int]


def restore(
    fs: FileSystem,
    backup: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    number: int = 0,
    cold: ColdStore | None = None,
    options: Options | None = None,
    clock: Clock | None = None,
    progress: Progress = lambda what, done, total: None,
) -> Restored:
    """Restore a backup (0: the newest) into a data directory, which is complete and durable on return.

    `cold` is the cold store of the original, for backups that only refer to cold segments. `progress` is called with
    the step, the amount done and the amount in all.

    Raises BackupRefused, and then nothing was changed; BackupDamaged, the errors of a start, ColdError, OSError, and
    then the directory is empty again.
    """
    source = BackupSource(fs, os.path.abspath(os.fspath(backup)))
    root: str = os.path.abspath(os.fspath(directory))
    with closing(source):
        check_target(fs, source.root, root)
        source.open(number)
        if source.manifest.referenced and cold is None:
            count, size = len(source.manifest.referenced), sum(each.size for each in source.manifest.referenced)
            raise BackupRefused(
                f"Backup {source.manifest.number} refers to {count} segments ({size} bytes) in the cold store of its "
                "cluster and does not hold them: say where that store is, or restore a backup taken with them."
            )
        ensure_dir(fs, root)
        clock = clock or SystemClock()
        lock = take_lock(fs, root, clock)
        try:
            lock.write(LockText(pid=os.getpid()).encode())
            manifest = source.manifest
            options = msgspec.structs.replace(options or Options(), cell=manifest.cell, cells=manifest.cells)
            return _Restoration(fs, source, root, cold, options, clock, progress).run()
        finally:
            lock.release()


def check_target(fs: FileSystem, backup: str, root: str) -> None:
    """Raises BackupRefused if a restore of `backup`, or an export of a cluster, may not make `root`."""
    if lies_within(root, backup) or lies_within(backup, root):
        raise BackupRefused(f"{root} and {backup} must not contain one another.")
    if not fs.exists(root):
        return
    if not fs.is_dir(root):
        raise BackupRefused(f"{root} is no directory.")
    found = [name for name in fs.listdir(root) if name != _NOT_OURS]
    if layout.RESTORING in found:
        raise BackupRefused(
            f"A restore or an export into {root} was interrupted: empty the directory, and run the command again."
        )
    if found:
        raise BackupRefused(
            f"{root} is not empty ({found[0]} is there): give the command a directory that is missing or empty. If "
            "only an interrupted run has used it, empty the directory."
        )


def cell_in(fs: FileSystem, backup: str, number: int = 0, *, lock: bool = True) -> tuple[int | None, int]:
    """The cell that a backup is of, and how many its set has. `lock`: as in `BackupSource.open`. Raises what `restore`
    raises."""
    with closing(BackupSource(fs, backup)) as source:
        source.open(number, lock=lock)
        return source.manifest.cell, source.manifest.cells


class NewFiles:
    """The files of a data directory that is made from a copy."""

    def __init__(self, fs: FileSystem, root: str, index: Callable[[str], bytes]) -> None:
        """`index` gives the .idx at a path in the directory."""
        self._fs = fs
        self._root = root
        self._index = index
        self._folders: set[str] = set()

    def create(self, path: str) -> File:
        """An empty file, with the folders that it needs."""
        self.make_folder(path)
        return self._fs.open(path, create=True, exclusive=True)

    def make_folder(self, path: str) -> None:
        """The folders that the file needs."""
        self._make(path.rpartition("/")[0])

    def _make(self, folder: str) -> None:
        if folder == self._root or folder in self._folders:
            return
        self._make(folder.rpartition("/")[0])
        with contextlib.suppress(FileExistsError):
            self._fs.mkdir(folder)
        self._folders.add(folder)

    def flag(self, file: File, id: SegmentId) -> None:
        """Delete the records in .data that .idx says are deleted. Raises BackupDamaged."""
        path = files.idx_path(id)
        idx = self._index(path)
        if idx_entry.damaged(idx):
            raise BackupDamaged(path, "entries of this index fail their check")
        size = file.size()
        for index in idx_entry.set_bits(idx_entry.dead_bits(idx)):
            entry = idx_entry.unpack(idx, index)
            if entry.len and entry.end <= size:
                write_whole(file, bytes((segment_frame.DELETED,)), entry.end - 1)

    def sync(self) -> None:
        """The names of all files and folders are durable on return."""
        for folder in sorted(self._folders, reverse=True):
            self._fs.sync_dir(folder)
        self._fs.sync_dir(self._root)


class _Restoration:
    def __init__(
        self,
        fs: FileSystem,
        source: BackupSource,
        root: str,
        cold: ColdStore | None,
        options: Options,
        clock: Clock,
        progress: Progress,
    ) -> None:
        self._fs = fs
        self._source = source
        self._manifest: Manifest = source.manifest
        self._root = root
        self._cold = cold
        self._options = options
        self._time = EngineTime(clock)
        self._progress = progress
        self._files = NewFiles(fs, root, source.index)
        self._done = 0
        self._total = self._manifest.state_bytes
        self._total += sum(each.size for each in (*self._manifest.shared, *self._manifest.referenced))

    def run(self) -> Restored:
        marker = layout.join(self._root, layout.RESTORING)
        try:
            with closing(self._fs.open(marker, create=True, exclusive=True)) as file:
                write_whole(file, f"{self._source.root}\n{self._manifest.number}\n".encode(), 0)
                file.sync()
            self._fs.sync_dir(self._root)
            self._copy_files()
            recovered = self._recover()
            restored = self._finish(recovered)
            self._fs.unlink(marker)
            self._fs.sync_dir(self._root)
        except Exception:
            with contextlib.suppress(OSError):
                empty_directory(self._fs, self._root)
            raise
        return restored

    # -- 2: files ----------------------------------------------------------------------------------------------------

    def _copy_files(self) -> None:
        manifest, cold = self._manifest, {tuple(each) for each in self._manifest.cold}
        for piece in self._source.pieces:
            parsed = segment_of(piece.path)
            with closing(self._files.create(layout.join(self._root, piece.path))) as file:
                file.truncate(piece.begin)
                self._source.read_piece(
                    piece, lambda data, at, file=file, piece=piece: self._write(file, data, piece.begin + at)
                )
                if parsed is not None:  # an active segment's .data
                    self._files.flag(file, parsed)
                file.sync()
        for each in manifest.shared:
            with closing(self._files.create(self._path_of(each.id, cold))) as file:
                self._source.read_shared(each, lambda data, at, file=file: self._write(file, data, at))
                self._files.flag(file, each.id)
                file.sync()
        for each in manifest.referenced:
            with closing(self._files.create(self._path_of(each.id, cold))) as file:
                self._fetch(each.id, each.size, file)
                self._files.flag(file, each.id)
                file.sync()
        self._files.sync()

    def _write(self, file: File, data: bytes, at: int) -> None:
        write_whole(file, data, at)
        self._done += len(data)
        self._progress("copying", self._done, self._total)

    def _path_of(self, id: SegmentId, cold: set[tuple[int, ...]]) -> str:
        if (id.topic_id, id.first_seq) not in cold:
            return names.path(self._root, id, names.DATA)
        return names.path(layout.join(self._root, _COLD, self._manifest.cluster_id), id, names.DATA)

    def _fetch(self, id: SegmentId, size: int, file: File) -> None:
        """From the cold store of the original. Raises ColdError."""
        assert self._cold is not None
        data = ColdTier(self._cold, self._manifest.cluster_id).data(id)
        done = 0
        while done < size:
            found = data.pread(min(1 << 20, size - done), done)
            if not found:
                raise ColdError(f"A segment in the cold store ends after {done} bytes, {size} should be there.")
            self._write(file, found, done)
            done += len(found)

    # -- 3 to 5: the state -------------------------------------------------------------------------------------------

    def _recover(self) -> Recovered:
        fs, root, manifest = self._fs, self._root, self._manifest
        make_folders(fs, root, manifest.shards)
        loaded = load_snapshots(fs, root)
        if loaded.body is None:
            raise BackupDamaged(files.manifest_name(manifest.number), "its snapshot cannot be read")
        cold = None
        if manifest.cold:
            cold = ColdTier(DirectoryStore(fs, layout.join(root, _COLD)), manifest.cluster_id)
        recovered = recover(
            fs,
            root,
            self._options,
            manifest.shards,
            loaded=loaded,
            came_up=False,
            # Nothing is missing at the end: no later seq was acknowledged at the instant.
            trust=ShardTrust(manifest.shards),
            now_ms=self._time_from,
            progress=self._replayed,
            cold=cold,
            unpacked=True,
        )
        try:
            self._check_heads(recovered.catalog)
            self._make_hot(recovered)
            self._renew(recovered.catalog)
            _, laid_out = lay_out_anew(
                fs,
                root,
                self._options,
                recovered,
                manifest.shards,
                now_ms=self._time.now_ms(),
                progress=self._replayed,
            )
        finally:
            recovered.store.close()
        return laid_out

    def _time_from(self, stored_ms: int) -> int:
        self._time.raise_to(stored_ms)
        return self._time.now_ms()

    def _replayed(self, fraction: float) -> None:
        self._progress("replaying", int(fraction * 100), 100)

    def _check_heads(self, catalog: Catalog) -> None:
        """Check that every topic reaches its head at the instant. (There may be more: writes in progress then.)"""
        for name, head in self._manifest.heads.items():
            topic = catalog.topics.get(name)
            if topic is not None and topic.log.head < head:
                raise BackupDamaged(
                    files.manifest_name(self._manifest.number),
                    f"topic {name!r} was at seq {head}, and what is here ends at {topic.log.head}",
                )

    def _make_hot(self, recovered: Recovered) -> None:
        """Make cold segments hot: the new cluster has no objects in a cold store."""
        fs, folders = self._fs, set[str]()
        tier = layout.join(self._root, _COLD, self._manifest.cluster_id)
        for topic in recovered.catalog.topics.values():
            for log in topic.logs:
                for segment in log.held.manifest.segments:
                    if segment.tier == COLD:
                        id = id_of(log.topic_id, segment)
                        fs.rename(names.path(tier, id, names.DATA), names.path(self._root, id, names.DATA))
                        folders.add(names.folder(self._root, log.topic_id))
                        recovered.store.forget(id)
                        segment.tier = HOT
        for folder in folders:
            fs.sync_dir(folder)
        if fs.exists(layout.join(self._root, _COLD)):
            remove_tree(fs, layout.join(self._root, _COLD))
            fs.sync_dir(self._root)

    def _renew(self, catalog: Catalog) -> None:
        """Continue the counter of ids and epochs at the present time in ms, so that none is used that the original, or
        an earlier restore, has used since. That holds as long as fewer than a thousand a second are used. The ids of a
        cell stay those of that cell."""
        cell = cell_of(catalog.next_topic_id)
        catalog.next_topic_id = max(catalog.next_topic_id, cell << CELL_SHIFT | self._time.now_ms())
        for topic in catalog.topics.values():
            for log in topic.logs:
                log.renew(catalog.next_topic_id, log.head)
                catalog.next_topic_id += 1
                log.reserved = log.head
        for topic_id in (*catalog.superseded, *catalog.pending_deletes):
            remove_folder(self._fs, self._root, topic_id)
        catalog.pending_deletes.clear()

    # -- 6: the check ------------------------------------------------------------------------------------------------

    def _finish(self, recovered: Recovered) -> Restored:
        made = write_format(self._fs, self._root, self._manifest.shards)
        verdict = self._verify()
        topics = [topic for topic in recovered.catalog.topics.values() if not topic.provisional]
        return Restored(
            directory=self._root,
            backup=self._source.root,
            number=self._manifest.number,
            taken_ms=self._manifest.taken_ms,
            cluster_id=made.cluster_id,
            original_cluster_id=self._manifest.cluster_id,
            topics=len(topics),
            records=sum(topic.log.count for topic in topics),
            bytes=self._total,
            checked=verdict.summary(),
            heads={topic.name: topic.log.head for topic in topics},
        )

    def _verify(self) -> Verdict:
        problems: list[Finding] = []
        verdict = verify(
            DataDirectory(self._fs, self._root),
            lambda finding: problems.append(finding) if finding.problem else None,
            lambda done, total: self._progress("verifying", done, total),
        )
        if problems:
            raise BackupDamaged(problems[0].path, problems[0].text)
        return verdict


def segment_of(path: str) -> SegmentId | None:
    """The segment whose .data this is; None: it is no .data."""
    folder, _, name = path.rpartition("/")
    parsed = names.parse_name(name)
    if parsed is None or parsed[2] != names.DATA:
        return None
    return SegmentId(int(folder.rpartition("/")[2], 16), parsed[0], parsed[1])


def empty_directory(fs: FileSystem, root: str, *, but: Sequence[str] = ()) -> None:
    """Remove everything that a restore has put there. RESTORING is removed last, when the rest is durably gone.

    `but`: names that stay, such as `.lock` if the caller goes on to hold it: another process must find that very file.
    """
    for name in fs.listdir(root):
        if name not in (layout.RESTORING, layout.LOCK, _NOT_OURS, *but):
            path = layout.join(root, name)
            remove_tree(fs, path) if fs.is_dir(path) else fs.unlink(path)
    fs.sync_dir(root)
    for name in (layout.RESTORING, layout.LOCK):
        if name not in but:
            with contextlib.suppress(FileNotFoundError):
                fs.unlink(layout.join(root, name))
    fs.sync_dir(root)


def remove_tree(fs: FileSystem, path: str) -> None:
    for name in fs.listdir(path):
        below = layout.join(path, name)
        if fs.is_dir(below):
            remove_tree(fs, below)
        else:
            fs.unlink(below)
    fs.rmdir(path)
