"""A stopped data directory in the state that a start would recover, without a start: for bulk reads.

The recovery is the real one, on a file system that keeps its changes in memory (`storage.platform.overlay`), so that
exactly the records that a broker would serve are live. Nothing in the directory changes. The caller holds .lock (shared
is enough), so that nobody opens the directory meanwhile.

Source: docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

from storage.engine import Engine
from storage.format import from_wal
from storage.log import WalReader
from storage.options import Options
from storage.platform import FileSystem, OverlayFileSystem, Readable, cell_folder, layout, read_set
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
    #: The id of the engine that has the log: each cell of a set has one of its own.
    cluster_id: str
    topic_id: int
    epoch: int
    partition: int
    head_seq: int
    earliest_seq: int
    floors: dict[str, int]
    evict_floor: int
    loss: list[tuple[int, int, str]]
    segments: list[StoppedSegment]
    #: (epoch, head when it began): higher seqs may have been of other records before.
    renewals: list[tuple[int, int]]
    #: Live records, by the engine's own count.
    live: int


def open_records(fs: FileSystem, path: str) -> Readable:
    """A segment's records as a .data file, whatever file holds them. Raises SegmentCorrupt, OSError."""
    id = names.id_of_path(path)
    if id is None:
        raise ValueError(f"{path} is no file of a segment")
    return read_as_data(fs.open(path, write=False), path, id)


class Stopped(Protocol):
    """What can be read of an engine, or of a set, that does not run."""

    def close(self) -> None:
        """Close the files."""
        ...

    def names(self) -> list[str]:
        """The names of all topics, sorted."""
        ...

    def partitions(self, name: str) -> int:
        """How many partitions a topic has. Raises KeyError."""
        ...

    def log(self, name: str, partition: int = 0) -> StoppedLog:
        """The log of a topic's partition. Raises KeyError."""
        ...

    def tail(self, name: str, partition: int = 0) -> Iterator[StoppedTail]:
        """The records in no segment, a few MiB at a time. Raises KeyError, WalFileGone, OSError."""
        ...


def open_stopped(fs: FileSystem, root: str, cold_dir: str = "") -> Stopped:
    """The data directory of one engine, or of a set. Raises what a start would raise."""
    found = read_set(fs, root)
    if found is None:
        return StoppedDirectory(fs, root, cold_dir)
    cells: dict[int, StoppedDirectory] = {}
    try:
        for cell in range(found.cells):
            folder = cell_folder(root, cell)
            if fs.exists(layout.join(folder, layout.FORMAT)):  # a set that never ran has none
                cells[cell] = StoppedDirectory(fs, folder, cold_dir, cell=cell, cells=found.cells)
    except BaseException:
        StoppedSet(cells).close()
        raise
    return StoppedSet(cells)


class StoppedDirectory:
    """One engine. Raises on opening what a start would raise: NotFound errors, OpenError, DataError, OSError.

    `cell`, `cells`: the number of the cell, and how many its set has. `prepare` is called with the file system before
    recovery, and changes what recovery finds. `copied`: it is the copy of a directory whose log went on. `make_hot`: it
    has the .data of cold segments, too.
    """

    def __init__(
        self,
        fs: FileSystem,
        root: str,
        cold_dir: str = "",
        *,
        cell: int | None = None,
        cells: int = 1,
        prepare: Callable[[FileSystem], None] = lambda _: None,
        copied: bool = False,
        make_hot: bool = False,
    ) -> None:
        self._overlay = OverlayFileSystem(fs)
        prepare(self._overlay)
        # One process: others would not see the overlay.
        options = Options(cold_dir=cold_dir, cell=cell, cells=cells, make_hot=make_hot)
        self._engine = Engine(root, options, fs=self._overlay, threaded=False)
        # The engine's own recovery, and nothing after it: no writers, no workers.
        self._recovered: Recovered = self._engine._recover(copied=copied)  # pyright: ignore[reportPrivateUsage]
        self._root = self._engine.path
        folders = self._engine._directories  # pyright: ignore[reportPrivateUsage]
        self._wal = WalReader(self._overlay, folders)

    def close(self) -> None:
        self._wal.close()
        self._recovered.store.close()
        self._overlay.close()

    def names(self) -> list[str]:
        return sorted(name for name, topic in self._recovered.catalog.topics.items() if not topic.partition)

    def partitions(self, name: str) -> int:
        return self._recovered.catalog.topics[name].config.partitions

    def placement(self, name: str) -> tuple[int, ...]:
        """The cell of each partition; empty: all of them are in this one. Raises KeyError."""
        placement = self._recovered.catalog.topics[name].placement
        return placement.cells if placement is not None else ()

    def log(self, name: str, partition: int = 0) -> StoppedLog:
        log = self._recovered.catalog.topics[address(name, partition)].log
        return StoppedLog(
            name=name,
            cluster_id=self._engine.cluster_id,
            topic_id=log.topic_id,
            epoch=log.epoch,
            partition=log.partition,
            head_seq=log.head,
            earliest_seq=log.earliest_seq,
            floors=dict(log.marks.floors),
            evict_floor=log.marks.evict_floor,
            loss=list(log.marks.loss),
            segments=[self._segment(log, each) for each in log.held.manifest.segments if each.count],
            renewals=list(log.renewals),
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


class StoppedSet:
    """All cells of a set, by number. A topic is where its partition 0 is; that cell says where the others are."""

    def __init__(self, cells: Mapping[int, StoppedDirectory]) -> None:
        self._cells = cells

    def close(self) -> None:
        for each in self._cells.values():
            each.close()

    def names(self) -> list[str]:
        return sorted({name for each in self._cells.values() for name in each.names()})

    def partitions(self, name: str) -> int:
        return self._home(name)[1].partitions(name)

    def log(self, name: str, partition: int = 0) -> StoppedLog:
        return self._cell(name, partition).log(name, partition)

    def tail(self, name: str, partition: int = 0) -> Iterator[StoppedTail]:
        return self._cell(name, partition).tail(name, partition)

    def _home(self, name: str) -> tuple[int, StoppedDirectory]:
        for number, each in self._cells.items():
            try:
                each.partitions(name)
            except KeyError:
                continue
            return number, each
        raise KeyError(name)

    def _cell(self, name: str, partition: int) -> StoppedDirectory:
        number, home = self._home(name)
        cells = home.placement(name)
        return self._cells[cells[partition] if partition < len(cells) else number]


def _dead(log: Log, first: int, end: int) -> bytes:
    bits = log.tail.deleted_bits(first, end)
    return bits.to_bytes(-(-(end - first) // 8), "little") if bits else b""


__all__ = ["Stopped", "StoppedDirectory", "StoppedLog", "StoppedSegment", "StoppedSet", "StoppedTail", "open_records"]
