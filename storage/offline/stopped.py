"""A stopped data directory in the state that a start would recover, without a start: for bulk reads.

The recovery is the real one, on a file system that keeps its changes in memory (`storage.platform.overlay`), so that
exactly the records that a broker would serve are live. Nothing in the directory changes. The caller holds .lock (shared
is enough), so that nobody opens the directory meanwhile.

Source: docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from storage.engine import Engine
from storage.format import from_wal
from storage.log import WalReader
from storage.options import Options
from storage.platform import FileSystem, OverlayFileSystem, Readable
from storage.records import address
from storage.recovery import Recovered
from storage.segments import id_of, names, read_as_data
from storage.state import Log, Segment

#: Bytes of a tail that are returned at a time.
_TAIL_BYTES = 4 << 20


class StoppedSegment(NamedTuple):
    """Seqs first_seq <= seq < end_seq in the file `data` (absolute; of a cold one its name in the tier), which
    `open_records` opens.

    If bit i of `dead` (little-endian) is set, there is no live record first_seq + i, whatever the file says.
    """

    data: str
    cold: bool
    first_seq: int
    end_seq: int
    gen: int
    bytes: int
    first_ts: int
    last_ts: int
    dead: bytes


class StoppedTail(NamedTuple):
    """Records that are in no segment: their frames, as a segment would have them. `dead` as in StoppedSegment."""

    frames: bytes
    first_seq: int
    end_seq: int
    first_ts: int
    last_ts: int
    dead: bytes


class StoppedLog(NamedTuple):
    """One log. All of it survives a crash: a start would sync it before it is ready."""

    name: str
    topic_id: int
    epoch: int
    partition: int
    head_seq: int
    earliest_seq: int
    floors: dict[str, int]
    evict_floor: int
    loss: list[tuple[int, int, str]]
    segments: list[StoppedSegment]
    #: Live records, by the engine's own count.
    live: int


def open_records(fs: FileSystem, path: str) -> Readable:
    """A segment's records as a .data file, whatever file holds them. Raises SegmentCorrupt, OSError."""
    id = names.id_of_path(path)
    if id is None:
        raise ValueError(f"{path} is no file of a segment")
    return read_as_data(fs.open(path, write=False), path, id)


class StoppedDirectory:
    """Raises on opening what a start would raise: NotFound errors, OpenError, DataError, OSError. Close it."""

    def __init__(self, fs: FileSystem, root: str, cold_dir: str = "") -> None:
        self._overlay = OverlayFileSystem(fs)
        # One process: others would not see the overlay.
        options = Options(cold_dir=cold_dir)
        self._engine = Engine(root, options, fs=self._overlay, threaded=False)
        # The engine's own recovery, and nothing after it: no writers, no workers.
        self._recovered: Recovered = self._engine._recover()  # pyright: ignore[reportPrivateUsage]
        self.cluster_id = self._engine.cluster_id
        self._root = self._engine.path
        folders = self._engine._directories  # pyright: ignore[reportPrivateUsage]
        self._wal = WalReader(self._overlay, folders)

    def close(self) -> None:
        """Close the files."""
        self._wal.close()
        self._recovered.store.close()
        self._overlay.close()

    def names(self) -> list[str]:
        """The names of all topics, sorted."""
        return sorted(name for name, topic in self._recovered.catalog.topics.items() if not topic.partition)

    def partitions(self, name: str) -> int:
        """How many partitions a topic has. Raises KeyError."""
        return self._recovered.catalog.topics[name].config.partitions

    def log(self, name: str, partition: int = 0) -> StoppedLog:
        """The log of a topic's partition. Raises KeyError."""
        log = self._recovered.catalog.topics[address(name, partition)].log
        return StoppedLog(
            name=name,
            topic_id=log.topic_id,
            epoch=log.epoch,
            partition=log.partition,
            head_seq=log.head,
            earliest_seq=log.earliest_seq,
            floors=dict(log.marks.floors),
            evict_floor=log.marks.evict_floor,
            loss=list(log.marks.loss),
            segments=[self._segment(log, each) for each in log.held.manifest.segments if each.count],
            live=log.count,
        )

    def _segment(self, log: Log, segment: Segment) -> StoppedSegment:
        id = id_of(log.topic_id, segment)
        size = -(-segment.count // 8)
        return StoppedSegment(
            data=names.records_path(self._root, id),
            cold=segment.tier == "cold",
            first_seq=segment.first_seq,
            end_seq=segment.end_seq,
            gen=segment.gen,
            bytes=segment.data_bytes,
            first_ts=segment.first_ts,
            last_ts=segment.last_ts,
            dead=segment.dead.to_bytes(size, "little") if segment.dead else b"",
        )

    def tail(self, name: str, partition: int = 0) -> Iterator[StoppedTail]:
        """The records in no segment, a few MiB at a time. Raises KeyError, WalFileGone, OSError."""
        log = self._recovered.catalog.topics[address(name, partition)].log
        tail = log.tail
        parts: list[bytes] = []
        first = end = stamp = last = size = 0
        for slice_ in tail.slices(log.held.flushed + 1, log.head + 1):
            if not slice_.lsn:
                continue
            data, at = self._wal.read(log.shard, [slice_])[slice_.first_seq]
            if not parts:
                first, stamp = slice_.first_seq, slice_.ts
            for length in slice_.sizes:
                parts.append(from_wal(data, at, length))
                at += length
                size += length
            end, last = slice_.first_seq + len(slice_.sizes), slice_.ts
            if size >= _TAIL_BYTES:
                yield StoppedTail(b"".join(parts), first, end, stamp, last, _dead(log, first, end))
                parts, size = [], 0
        if parts:
            yield StoppedTail(b"".join(parts), first, end, stamp, last, _dead(log, first, end))


def _dead(log: Log, first: int, end: int) -> bytes:
    bits = log.tail.deleted_bits(first, end)
    return bits.to_bytes(-(-(end - first) // 8), "little") if bits else b""


__all__ = ["StoppedDirectory", "StoppedLog", "StoppedSegment", "StoppedTail", "open_records"]
