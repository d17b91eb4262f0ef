"""Reads of what no broker serves: data directories, backups, and clusters in their buckets.

    DirectoryOrigin   the data directory of one engine, or of a set of cells
    BackupOrigin      backups of one engine or of a set, without a restore
    ClusterOrigin     a cluster in its bucket; its nodes may run, and are not asked

The state is recovered once, when a read is planned. Tasks read segments where they are. A directory is locked meanwhile
(.lock, shared: any number of readers, but no broker), and a backup too; a task also checks that no broker has opened
the directory since the plan. The segments of a cluster may be deleted or rewritten in between: then a task plans anew.

Source: docs/guides/spark.md#reading.
"""

from __future__ import annotations

import fcntl
import os
import time
from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.broker import TopicMissing
from pipeline.cold import cold_store, object_chunks
from pipeline.errors import PipelineError, SegmentDamaged, SourceUnreadable, TopicChanged, log_name
from pipeline.local import CHUNK_BYTES, LocalOrigin, evicted_by
from pipeline.view import LogView, Loss, PartitionCounts, Renewal, SegmentInfo
from storage import StorageError
from storage.offline import (
    BackupCopies,
    ClusterCopies,
    Stopped,
    StoppedLog,
    is_backup,
    open_records,
    open_stopped,
)
from storage.platform import CELLS_FILE, FileSystem, PosixFileSystem, Readable, cell_folder, layout, read_set
from storage.segments import SegmentCorrupt, names

#: How long a directory may still be locked by remaining processes of a killed broker.
_LOCK_S = 3.0


def is_data_directory(path: str) -> bool:
    """Whether a path is the data directory of an engine or a set."""
    return "://" not in path and any(Path(path, name).exists() for name in (layout.FORMAT, CELLS_FILE))


def is_backup_directory(path: str) -> bool:
    """Whether a path has backups, of one engine or of a set."""
    return "://" not in path and is_backup(PosixFileSystem(), path)


class StoppedOrigin(LocalOrigin):
    """The common part: `where` is how people know it. `cold_path`: the cold tier with its older segments."""

    def __init__(self, where: str, cold_path: str = "") -> None:
        self._where = where
        self._cold_path = cold_path
        self._stopped: Stopped | None = None

    def close(self) -> None:
        """Close the files."""
        if self._stopped is not None:
            self._stopped.close()

    @abstractmethod
    def _recover(self) -> Stopped:
        """The recovered state. Raises StorageError, OSError."""

    @abstractmethod
    def _files(self, file: str) -> FileSystem:
        """The file system of a segment's file."""

    def _mark(self) -> str:
        """A text that changes when the state is another one; "": it is never checked."""
        return ""

    def topics(self) -> list[str]:
        """The names of all topics. Raises SourceUnreadable if a broker would refuse to start."""
        return self._open().names()

    def partitions(self, topic: str) -> int:
        """The number of partitions. Raises SourceUnreadable."""
        try:
            return self._open().partitions(topic)
        except KeyError:
            raise TopicMissing(f"{topic}: the topic does not exist in {self._where}.") from None

    def held(self, topic: str) -> list[PartitionCounts]:
        """The engine's counts of each partition. Raises SourceUnreadable."""
        logs = [self._log(topic, partition) for partition in range(self.partitions(topic))]
        return [PartitionCounts(log.partition, log.epoch, log.head_seq, log.live) for log in logs]

    def _log(self, topic: str, partition: int) -> StoppedLog:
        try:
            return self._open().log(topic, partition)
        except KeyError:
            raise TopicMissing(f"{log_name(topic, partition)}: the log does not exist in {self._where}.") from None

    def view(self, topic: str, partition: int = 0) -> LogView:
        """Raises SourceUnreadable."""
        stopped, log = self._open(), self._log(topic, partition)
        segments = [
            SegmentInfo(
                first_seq=each.first_seq,
                end_seq=each.end_seq,
                size=each.bytes,
                first_ts=each.first_ts,
                last_ts=each.last_ts,
                generation=each.gen,
                file=each.data,
                cold=each.cold,
                dead=each.dead,
            )
            for each in log.segments
        ]
        with self._reading(topic):
            segments += [
                SegmentInfo(
                    first_seq=each.first_seq,
                    end_seq=each.end_seq,
                    size=len(each.frames),
                    first_ts=each.first_ts,
                    last_ts=each.last_ts,
                    file=f"{self._where}/{layout.join('wal', '')}",
                    frames=each.frames,
                    dead=each.dead,
                )
                for each in stopped.tail(topic, partition)
            ]
        return _view(log, segments, self._mark())

    def data(
        self, topic: str, view: LogView, segment: SegmentInfo, start: int, end: int, ahead: int
    ) -> Iterator[tuple[int, bytes]]:
        """(offset, bytes), always from the start. Raises TopicChanged, SourceUnreadable if it was changed."""
        if view.mark and view.mark != self._mark():
            raise SourceUnreadable(
                f"A broker has opened {self._where} since the read was planned: start the read again."
            )
        if segment.frames:
            yield 0, segment.frames
        elif segment.cold and not self._has(segment):
            store = cold_store(
                self._cold_path, f"Segments of {topic} are in a cold tier: set coldPath to its location."
            )
            key = f"{view.cluster_id}/{names.TOPICS}/{view.topic_id:016x}/{Path(segment.file).name}"
            yield from object_chunks(store, key, segment.size)
        else:
            with self._reading(topic), closing(self._records_in(segment.file, topic)) as file:
                at = 0
                while at < segment.size and (piece := file.pread(min(CHUNK_BYTES, segment.size - at), at)):
                    yield at, piece
                    at += len(piece)
                if at < segment.size:
                    raise SegmentDamaged(
                        segment.file, at, f"the file ends here, but should have {segment.size} bytes", topic
                    )

    def _has(self, segment: SegmentInfo) -> bool:
        """Whether a cold segment is here nevertheless."""
        return False

    def _records_in(self, file: str, topic: str) -> Readable:
        try:
            return open_records(self._files(file), file)
        except SegmentCorrupt as error:
            raise SegmentDamaged(file, error.offset, error.what, topic) from error

    def dead(self, topic: str, view: LogView, segment: SegmentInfo) -> bytes:
        return segment.dead

    def data_name(self, topic: str, view: LogView, segment: SegmentInfo) -> str:
        """The path of the file."""
        return segment.file

    def _open(self) -> Stopped:
        if self._stopped is None:
            with self._reading("all topics"):
                self._stopped = self._recover()
        return self._stopped

    @contextmanager
    def _reading(self, what: str) -> Generator[None]:
        try:
            yield
        except StorageError as error:
            raise SourceUnreadable(f"Cannot read {what} of {self._where}: {error}") from error
        except OSError as error:
            raise self._failed(what, error) from error

    def _failed(self, what: str, error: OSError) -> PipelineError:
        return SourceUnreadable(f"Cannot read {what} of {self._where}: {error.strerror or error}.")


class DirectoryOrigin(StoppedOrigin):
    """A data directory, of one engine or of a set."""

    def __init__(self, path: str, cold_path: str = "") -> None:
        path = os.path.abspath(path)
        super().__init__(path, cold_path)
        self._fs = PosixFileSystem()
        cells = read_set(self._fs, path)
        folders = [path] if cells is None else [path, *(cell_folder(path, each) for each in range(cells.cells))]
        in_use = f"A broker has {path} open. Stop it, or read through it with the option url instead of path."
        self._folders = [each for each in folders if os.path.exists(os.path.join(each, layout.LOCK))]
        self._locks = _SharedLocks(self._folders or [path], in_use)
        self._was = "".join(map(_mark_of, self._folders))

    def close(self) -> None:
        """Release the directory: a broker can open it again."""
        super().close()
        self._locks.close()

    def _mark(self) -> str:
        return self._was

    def _recover(self) -> Stopped:
        return open_stopped(self._fs, self._where, self._cold_path)

    def _files(self, file: str) -> FileSystem:
        return self._fs


class BackupOrigin(StoppedOrigin):
    """The newest backup at a path."""

    def __init__(self, path: str, cold_path: str = "") -> None:
        path = os.path.abspath(path)
        super().__init__(path, cold_path)
        self._copies = BackupCopies(PosixFileSystem(), path)
        in_use = f"A backup is being written to {path}, or restored: read it when that is done."
        self._locks = _SharedLocks(self._copies.folders(), in_use)

    def close(self) -> None:
        """Release the backup."""
        super().close()
        self._copies.close()
        self._locks.close()

    def _recover(self) -> Stopped:
        return self._copies.stopped(self._cold_path)

    def _files(self, file: str) -> FileSystem:
        return self._copies.open(_root_of(file)).fs

    def _has(self, segment: SegmentInfo) -> bool:
        return self._files(segment.file).exists(segment.file)


class ClusterOrigin(StoppedOrigin):
    """A cluster in its bucket, as of the last writes that reached the bucket. Needs no node, and disturbs none."""

    def __init__(self, url: str, copies: ClusterCopies) -> None:
        super().__init__(url)
        self._copies = copies
        self._scratch = ExitStack()

    def close(self) -> None:
        """Close the connections, and remove the temporary folder."""
        super().close()
        self._copies.close()
        self._scratch.close()

    def _recover(self) -> Stopped:
        self._scratch.close()
        return self._copies.stopped(self._scratch.enter_context(TemporaryDirectory(prefix="topics-read-")))

    def _files(self, file: str) -> FileSystem:
        return self._copies.open(_root_of(file)).fs

    def _failed(self, what: str, error: OSError) -> PipelineError:
        if not isinstance(error, FileNotFoundError):
            return super()._failed(what, error)
        if self._stopped is not None:
            self._stopped.close()
            self._stopped = None
        return TopicChanged(f"{what}: {error.filename} was deleted by its owner since the read was planned.")

    def data_name(self, topic: str, view: LogView, segment: SegmentInfo) -> str:
        """The location of the file's cell and base, and its path there."""
        return self._copies.shown(segment.file)


def _root_of(file: str) -> str:
    return file.partition(f"/{names.TOPICS}/")[0]


class _SharedLocks:
    """Shared locks of directories. Raises SourceUnreadable, with `in_use` if a process works there."""

    def __init__(self, folders: Sequence[str], in_use: str) -> None:
        self._descriptors: list[int] = []
        try:
            for each in folders:
                self._descriptors += [_shared_lock(each, in_use)]
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())


def _shared_lock(path: str, in_use: str) -> int:
    lock = os.path.join(path, layout.LOCK)
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise SourceUnreadable(f"{lock} cannot be opened: {error.strerror}. Is {path} a data directory?") from error
    patience = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() < patience:
                time.sleep(0.05)  # a process of a broker that has just ended may still hold it
                continue
            os.close(descriptor)
            raise SourceUnreadable(in_use) from None


def _mark_of(path: str) -> str:
    """A text that changes when a broker opens the directory, which writes .lock and snapshots."""
    with open(os.path.join(path, layout.LOCK), "rb") as file:
        stat = os.fstat(file.fileno())
        meta = sorted(os.listdir(layout.meta_dir(path))) if os.path.isdir(layout.meta_dir(path)) else []
        return f"{stat.st_mtime_ns} {file.read(4096)!r} {meta}"


def _view(log: StoppedLog, segments: list[SegmentInfo], mark: str) -> LogView:
    return LogView(
        cluster_id=log.cluster_id,
        topic_id=log.topic_id,
        epoch=log.epoch,
        earliest_seq=log.earliest_seq,
        evict_floor=log.evict_floor,
        head_seq=log.head_seq,
        durable_seq=log.head_seq,
        loss=[Loss(first=first, last=last, cause=cause) for first, last, cause in log.loss],
        segments=segments,
        evicted_by=evicted_by(log.floors),
        mark=mark,
        partition=log.partition,
        renewals=[Renewal(epoch=epoch, head_seq=head) for epoch, head in log.renewals],
    )
