"""Reads of a cold tier by its topic.json files. Its objects never change, except .idx, which contains deletions.

Each cell of a set has a folder of its own in the tier, named after the id of its engine.

Source: docs/guides/spark.md#reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from pipeline.broker import TopicMissing
from pipeline.errors import BadOption, SegmentDamaged, SourceUnreadable, TopicChanged
from pipeline.local import CHUNK_BYTES, LocalOrigin, evicted_by, loud
from pipeline.view import LogView, Loss, PartitionCounts, Renewal, SegmentInfo
from storage import StorageError
from storage.format import idx_entry
from storage.platform import PosixFileSystem
from storage.records import cell_of
from storage.segments import names
from storage.segments.tiering import TOPIC_FILE, ColdError, ColdMissing, ColdStore, open_store

T = TypeVar("T")


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
    renewals: list[tuple[int, int]] = []


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


class ColdOrigin(LocalOrigin):
    """A cold tier: a whole COLD_DIR (with only one cluster), or the folder of a cluster."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._store = cold_store(path, "")
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
            #: The engine of a cell that has logs of a topic.
            clusters: dict[tuple[str, int], str] = {}
            for key in _asking(lambda: self._store.list(""), self._path):
                folder, _, name = key.rpartition("/")
                if name != TOPIC_FILE:
                    continue
                file = self._topic_file(key)
                found.setdefault(file.name, []).append((folder, file))
                cell = cell_of(_topic_id(folder))
                if clusters.setdefault((file.name, cell), file.cluster_id) != file.cluster_id:
                    raise BadOption(
                        f"{self._path} has topic {file.name} of two clusters: use the folder of one cluster."
                    )
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
        evicted = max([1, *loud(floors).values()])
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
            evicted_by=evicted_by(floors),
            partition=partition,
            renewals=[Renewal(epoch=epoch, head_seq=head) for epoch, head in file.renewals],
        )

    def data(
        self, topic: str, view: LogView, segment: SegmentInfo, start: int, end: int, ahead: int
    ) -> Iterator[tuple[int, bytes]]:
        """(offset, bytes), always from the start. Raises TopicChanged if the object was deleted since the plan."""
        yield from object_chunks(self._store, segment.file, segment.size)

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
            raise SegmentDamaged(
                f"{self._path}/{key}",
                len(idx),
                f"the index should have {count} {'entry' if count == 1 else 'entries'}",
                topic,
            )
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


def cold_store(location: str, missing: str) -> ColdStore:
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


def object_chunks(store: ColdStore, key: str, size: int) -> Iterator[tuple[int, bytes]]:
    for offset in range(0, size, CHUNK_BYTES):
        try:
            yield offset, store.get_range(key, offset, min(CHUNK_BYTES, size - offset))
        except ColdMissing as error:
            raise TopicChanged(f"{key} was deleted since the read was planned.") from error
        except ColdError as error:
            raise SourceUnreadable(f"Cannot read {key}: {error}") from error
