"""Reads without a broker: the data directory of a stopped one, or a cold tier.

While a read is planned, and while a task reads, .lock of the data directory is held (shared: any number of readers, but
no broker), so that no broker opens it. A task also checks that no broker has opened it since the plan. A cold tier is
read by its topic.json files: its objects never change, except .idx, which contains deletions.

Source: docs/guides/spark.md#reading.
"""

from __future__ import annotations

import fcntl
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from pipeline.batches import Row, Shape
from pipeline.broker import Page, TopicMissing
from pipeline.errors import BadOption, SegmentDamaged, SourceUnreadable, TopicChanged, log_name
from pipeline.split_reader import SplitReader, fail_on_gap
from pipeline.splits import splits_of
from pipeline.view import LogView, Loss, PartitionCounts, SegmentInfo
from storage import StoppedDirectory, StoppedLog, StorageError, open_records
from storage.format import idx_entry
from storage.platform import PosixFileSystem, Readable, layout
from storage.segments import SegmentCorrupt, names
from storage.segments.tiering import TOPIC_FILE, ColdError, ColdMissing, ColdStore, open_store

T = TypeVar("T")

CHUNK_BYTES = 8 << 20
#: How long a directory may still be locked by remaining processes of a killed broker.
_LOCK_S = 3.0
_SILENT = ("delete", "consumed")


def is_data_directory(path: str) -> bool:
    """Whether a path is a data directory; otherwise it may be a cold tier."""
    return "://" not in path and Path(path, layout.FORMAT).exists()


class _Local(ABC):
    """The common part of both origins: all records come from segments."""

    @abstractmethod
    def view(self, topic: str, partition: int = 0) -> LogView: ...

    def reason(self, topic: str, view: LogView, seq: int) -> str:
        """Why `seq`, which is below evict_floor, is gone."""
        return view.evicted_by or "unknown"

    def page(self, topic: str, view: LogView, after_seq: int, *, limit: int = 1, from_ts: int = 0) -> Page:
        """The first record after `after_seq` that is not older than `from_ts`, without its content."""
        full = self.view(topic, view.partition)
        for split in splits_of(topic, full, after_seq + 1, full.end):
            for batch in SplitReader(self, split, Shape(), fail_on_gap).batches():  # pyright: ignore[reportArgumentType]
                stamps = batch.column("timestamp").cast("int64").to_pylist()
                for seq, stamp in zip(batch.column("seq").to_pylist(), stamps, strict=True):
                    if stamp >= from_ts * 1000:
                        return Page([Row(seq, stamp // 1000, None, None, b"", None)], seq, None)
        return Page([], full.end - 1, None)


class DirectoryOrigin(_Local):
    """A data directory. `cold_path`: the cold tier with its older segments."""

    def __init__(self, path: str, cold_path: str = "") -> None:
        self._path = os.path.abspath(path)
        self._cold_path = cold_path
        self._stopped: StoppedDirectory | None = None
        self._lock = _shared_lock(self._path)
        self._mark = _mark_of(self._path)

    def close(self) -> None:
        """Release the directory: a broker can open it again."""
        if self._stopped is not None:
            self._stopped.close()
        os.close(self._lock)

    def topics(self) -> list[str]:
        """The names of all topics. Raises SourceUnreadable if a broker would refuse the directory."""
        return self._open().names()

    def partitions(self, topic: str) -> int:
        """The number of partitions. Raises SourceUnreadable."""
        try:
            return self._open().partitions(topic)
        except KeyError:
            raise TopicMissing(f"{topic}: the topic does not exist in {self._path}.") from None

    def held(self, topic: str) -> list[PartitionCounts]:
        """The engine's counts of each partition. Raises SourceUnreadable."""
        logs = [self._log(topic, partition) for partition in range(self.partitions(topic))]
        return [PartitionCounts(log.partition, log.epoch, log.head_seq, log.live) for log in logs]

    def _log(self, topic: str, partition: int) -> StoppedLog:
        try:
            return self._open().log(topic, partition)
        except KeyError:
            raise TopicMissing(f"{log_name(topic, partition)}: the log does not exist in {self._path}.") from None

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
                    file=f"{self._path}/{layout.join('wal', '')}",
                    frames=each.frames,
                    dead=each.dead,
                )
                for each in stopped.tail(topic, partition)
            ]
        return _view(stopped.cluster_id, log, segments, self._mark)

    def data(
        self, topic: str, view: LogView, segment: SegmentInfo, start: int, end: int, ahead: int
    ) -> Iterator[tuple[int, bytes]]:
        """(offset, bytes), always from the start. Raises TopicChanged if a broker has opened the directory."""
        if view.mark and view.mark != self._mark:
            raise SourceUnreadable(
                f"A broker has opened {self._path} since the read was planned: start the read again."
            )
        if segment.frames:
            yield 0, segment.frames
        elif segment.cold:
            store = _cold_store(
                self._cold_path, f"Segments of {topic} are in a cold tier: set coldPath to its location."
            )
            key = f"{view.cluster_id}/{names.TOPICS}/{view.topic_id:016x}/{Path(segment.file).name}"
            yield from _object(store, key, segment.size)
        else:
            with self._reading(topic), closing(_records_in(segment.file, topic)) as file:
                at = 0
                while at < segment.size and (piece := file.pread(min(CHUNK_BYTES, segment.size - at), at)):
                    yield at, piece
                    at += len(piece)
                if at < segment.size:
                    raise SegmentDamaged(
                        segment.file, at, f"the file ends here, but should have {segment.size} bytes", topic
                    )

    def dead(self, topic: str, view: LogView, segment: SegmentInfo) -> bytes:
        return segment.dead

    def data_name(self, topic: str, view: LogView, segment: SegmentInfo) -> str:
        """The path of the file."""
        return segment.file

    def _open(self) -> StoppedDirectory:
        if self._stopped is None:
            with self._reading("all topics"):
                self._stopped = StoppedDirectory(PosixFileSystem(), self._path, self._cold_path)
        return self._stopped

    @contextmanager
    def _reading(self, what: str) -> Generator[None]:
        try:
            yield
        except StorageError as error:
            raise SourceUnreadable(f"Cannot read {what} of {self._path}: {error}") from error
        except OSError as error:
            raise SourceUnreadable(f"Cannot read {what} of {self._path}: {error.strerror or error}.") from error


def _records_in(file: str, topic: str) -> Readable:
    try:
        return open_records(PosixFileSystem(), file)
    except SegmentCorrupt as error:
        raise SegmentDamaged(file, error.offset, error.what, topic) from error


def _shared_lock(path: str) -> int:
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
            raise SourceUnreadable(
                f"A broker has {path} open. Stop it, or read through it with the option url instead of path."
            ) from None


def _mark_of(path: str) -> str:
    """A text that changes when a broker opens the directory, which writes .lock and snapshots."""
    with open(os.path.join(path, layout.LOCK), "rb") as file:
        stat = os.fstat(file.fileno())
        meta = sorted(os.listdir(layout.meta_dir(path))) if os.path.isdir(layout.meta_dir(path)) else []
        return f"{stat.st_mtime_ns} {file.read(4096)!r} {meta}"


def _view(cluster_id: str, log: StoppedLog, segments: list[SegmentInfo], mark: str) -> LogView:
    return LogView(
        cluster_id=cluster_id,
        topic_id=log.topic_id,
        epoch=log.epoch,
        earliest_seq=log.earliest_seq,
        evict_floor=log.evict_floor,
        head_seq=log.head_seq,
        durable_seq=log.head_seq,
        loss=[Loss(first=first, last=last, cause=cause) for first, last, cause in log.loss],
        segments=segments,
        evicted_by=_evicted_by(log.floors),
        mark=mark,
        partition=log.partition,
    )


def _evicted_by(floors: dict[str, int]) -> str:
    causes = [cause for cause, floor in floors.items() if cause not in _SILENT and floor > 1]
    return causes[0] if len(causes) == 1 else "mixed" if causes else ""


# -- cold tier ---------------------------------------------------------------------------------------------------------


class _TopicFile(msgspec.Struct, kw_only=True):
    cluster_id: str
    name: str
    #: The topic_id of partition 0; 0 in files of older versions.
    topic: int = 0
    partition: int
    partitions: int = 1
    epoch: int
    floors: dict[str, int]
    loss: list[tuple[int, int, str]]
    segments: list[dict[str, int]]
    end_seq: int


def _newest(logs: list[tuple[str, _TopicFile]]) -> dict[int, tuple[str, _TopicFile]]:
    """The logs of the current topic of a name, by partition. Logs of an earlier topic may still exist.

    Partition 0 has the lowest topic_id of a topic's logs, which is higher than those of all earlier topics.
    """
    root = max(max(file.topic, 0 if file.partition else _topic_id(folder)) for folder, file in logs)
    parts: dict[int, tuple[str, _TopicFile]] = {}
    for folder, file in sorted(logs, key=lambda each: each[0]):  # of two logs of a partition, the later one counts
        if file.topic == root or (not file.topic and _topic_id(folder) >= root):
            parts[file.partition] = folder, file
    return parts


def _topic_id(folder: str) -> int:
    return int(folder.rpartition("/")[2], 16)


class ColdOrigin(_Local):
    """A cold tier: a whole COLD_DIR (with only one cluster), or the folder of a cluster."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._store = _cold_store(path, "")
        self._topics: dict[str, dict[int, tuple[str, _TopicFile]]] | None = None

    def close(self) -> None:
        """Does nothing."""

    def topics(self) -> list[str]:
        """Raises SourceUnreadable."""
        return sorted(self._listed())

    def _listed(self) -> dict[str, dict[int, tuple[str, _TopicFile]]]:
        """The key of the log's folder and topic.json, by topic and partition."""
        if self._topics is None:
            found: dict[str, list[tuple[str, _TopicFile]]] = {}
            for key in _asking(lambda: self._store.list(""), self._path):
                folder, _, name = key.rpartition("/")
                if name != TOPIC_FILE:
                    continue
                file = self._topic_file(key)
                logs = found.setdefault(file.name, [])
                if any(each.cluster_id != file.cluster_id for _, each in logs):
                    raise BadOption(
                        f"{self._path} has topic {file.name} of two clusters: use the folder of one cluster."
                    )
                logs.append((folder, file))
            self._topics = {topic: _newest(logs) for topic, logs in found.items()}
        return self._topics

    def _parts(self, topic: str) -> dict[int, tuple[str, _TopicFile]]:
        if topic not in self._listed():
            raise TopicMissing(f"{topic}: the topic does not exist in {self._path}.")
        return self._listed()[topic]

    def partitions(self, topic: str) -> int:
        """The number of partitions, as far as the tier shows. Raises SourceUnreadable."""
        parts = self._parts(topic)
        return max(max(parts) + 1, *(file.partitions for _, file in parts.values()))

    def held(self, topic: str) -> list[PartitionCounts]:
        """The counts of each partition, from the indexes in the tier. Raises SourceUnreadable."""
        found: list[PartitionCounts] = []
        for partition in range(self.partitions(topic)):
            view = self.view(topic, partition)
            live = 0
            for segment in view.segments:
                dead = int.from_bytes(self.dead(topic, view, segment), "little")
                below = max(0, min(view.earliest_seq, segment.end_seq) - segment.first_seq)
                live += segment.end_seq - segment.first_seq - (dead | ((1 << below) - 1)).bit_count()
            found.append(PartitionCounts(partition, view.epoch, view.head_seq, live))
        return found

    def _topic_file(self, key: str) -> _TopicFile:
        data = _asking(lambda: self._store.get(key), self._path)
        try:
            return msgspec.json.decode(data, type=_TopicFile)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SegmentDamaged(f"{self._path}/{key}", 0, f"not a valid topic file: {error}") from error

    def view(self, topic: str, partition: int = 0) -> LogView:
        """The partition up to where the tier is complete; empty if the tier has nothing of it.

        Raises SourceUnreadable.
        """
        parts = self._parts(topic)
        if partition not in parts:
            return _nothing(next(iter(parts.values()))[1].cluster_id, partition)
        folder, file = parts[partition]
        topic_id = _topic_id(folder)
        floors = file.floors
        evicted = max([1, *(floor for cause, floor in floors.items() if cause not in _SILENT)])
        segments: list[SegmentInfo] = []
        for each in file.segments:
            if each["end_seq"] > file.end_seq:
                continue  # segments before it are not all here
            key = f"{folder}/{names.file_name(each['first_seq'], each['gen'], names.DATA)}"
            segments.append(
                SegmentInfo(
                    first_seq=each["first_seq"],
                    end_seq=each["end_seq"],
                    size=_asking(lambda key=key: self._store.size(key), self._path),
                    generation=each["gen"],
                    last_ts=(1 << 62),  # topic.json does not contain it: a search by time reads each
                    file=key,
                    cold=True,
                )
            )
        return LogView(
            cluster_id=file.cluster_id,
            topic_id=topic_id,
            epoch=file.epoch,
            earliest_seq=max([1, *floors.values()]),
            evict_floor=evicted,
            head_seq=file.end_seq - 1,
            durable_seq=file.end_seq - 1,
            loss=[Loss(first=first, last=last, cause=cause) for first, last, cause in file.loss],
            segments=segments,
            evicted_by=_evicted_by(floors),
            partition=partition,
        )

    def data(
        self, topic: str, view: LogView, segment: SegmentInfo, start: int, end: int, ahead: int
    ) -> Iterator[tuple[int, bytes]]:
        """(offset, bytes), always from the start. Raises TopicChanged if the object was deleted since the plan."""
        yield from _object(self._store, segment.file, segment.size)

    def dead(self, topic: str, view: LogView, segment: SegmentInfo) -> bytes:
        """The deleted records, from the verified .idx in the tier. Raises SegmentDamaged, TopicChanged."""
        key = segment.file.removesuffix(names.DATA) + names.IDX
        try:
            idx = _asking(lambda: self._store.get(key), self._path)
        except _Gone as error:
            raise TopicChanged(f"{topic}: {key} was deleted since the read was planned.") from error
        count = segment.end_seq - segment.first_seq
        if bad := idx_entry.damaged(idx):
            where = bad[0] * idx_entry.ENTRY_SIZE
            raise SegmentDamaged(f"{self._path}/{key}", where, "the checksum of the index entry fails", topic)
        if len(idx) != count * idx_entry.ENTRY_SIZE:
            raise SegmentDamaged(f"{self._path}/{key}", len(idx), f"the index should have {count} entries", topic)
        bits = idx_entry.dead_bits(idx)
        return bits.to_bytes(-(-count // 8), "little") if bits else b""

    def data_name(self, topic: str, view: LogView, segment: SegmentInfo) -> str:
        """The location of the object."""
        return f"{self._path.rstrip('/')}/{segment.file}"


def _nothing(cluster_id: str, partition: int) -> LogView:
    """The view of a partition that has nothing in the tier yet."""
    return LogView(
        cluster_id=cluster_id,
        topic_id=0,
        epoch=0,
        earliest_seq=1,
        evict_floor=1,
        head_seq=0,
        durable_seq=0,
        partition=partition,
    )


class _Gone(SourceUnreadable):
    """The object does not exist."""


def _cold_store(location: str, missing: str) -> ColdStore:
    if not location:
        raise BadOption(missing)
    if "://" not in location and not Path(location).is_dir():
        raise SourceUnreadable(f"{location} is neither a data directory nor a cold tier: it is not a directory.")
    try:
        return open_store(location, PosixFileSystem())
    except (ValueError, StorageError) as error:
        raise SourceUnreadable(f"The cold tier cannot be opened: {error}") from error


def _asking(ask: Callable[[], T], where: str) -> T:
    try:
        return ask()
    except ColdMissing as error:
        raise _Gone(f"{where}: {error}") from error
    except ColdError as error:
        raise SourceUnreadable(f"Cannot read {where}: {error}") from error


def _object(store: ColdStore, key: str, size: int) -> Iterator[tuple[int, bytes]]:
    for offset in range(0, size, CHUNK_BYTES):
        try:
            yield offset, store.get_range(key, offset, min(CHUNK_BYTES, size - offset))
        except ColdMissing as error:
            raise TopicChanged(f"{key} was deleted since the read was planned.") from error
        except ColdError as error:
            raise SourceUnreadable(f"Cannot read {key}: {error}") from error
