"""Takes a backup of a running engine, as of one instant. Source: docs/adr/0027.

1. Copy sealed segments that the backup directory does not have.
2. From here on the log is not trimmed. Take a snapshot.
3. Pause flushing and housekeeping, pin every segment, and wait until the log has completed what was submitted. From now
   on no manifest changes.
4. The instant: record on the loop, for all shards at once, the LSN up to which writes were acknowledged. All of them
   are below it, and nothing below it depends on anything after it. Then flushing and housekeeping continue.
5. Once the log is synced that far, copy it from where the snapshot begins, and copy the snapshot and every .idx.
6. Copy segments sealed since step 1. Then write the manifest.

Writers never wait. Each segment is unpinned as soon as it is copied, and so is the log.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import NamedTuple, Protocol

import msgspec

from storage.backup import manifest as files
from storage.backup.copying import Going, Source
from storage.backup.errors import BackupFailed, IndexDamaged
from storage.backup.manifest import Manifest, Piece, Referenced, Shared
from storage.errors import ShuttingDown, StorageError
from storage.format import ENTRY_SIZE, idx_entry
from storage.log import EncodedUnit, Logs, Unit, split
from storage.platform import File, Readable, in_slices, layout
from storage.segments import SegmentError, SegmentId, Segments, SegmentWorker, open_data
from storage.state import COLD, SegmentState

#: Segments copied by one job on the I/O pool.
_AT_ONCE = 64


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A finished backup. `referenced` segments are only in the cold store; `heads`: of all topics, as copied."""

    directory: str
    number: int
    cluster_id: str
    taken_ms: int
    seconds: float
    topics: int
    segments: int
    copied_bytes: int
    reused_bytes: int
    referenced_segments: int
    referenced_bytes: int
    heads: dict[str, int]


class BackupSource(NamedTuple):
    """The parts of an engine that a backup reads. `take_snapshot` returns the number of a snapshot and where the log
    must be replayed from. Its argument says whether no frame follows."""

    segments: Segments
    worker: SegmentWorker
    take_snapshot: Callable[[bool], Awaitable[tuple[int, list[int]]]]
    cluster_id: Callable[[], str]


class Target(Protocol):
    """Where a backup goes: `storage.backup.target.Target`, or a bucket. Its methods block."""

    number: int
    root: str
    pieces: list[Piece]
    shared: dict[SegmentId, Shared]
    copied_bytes: int
    reused_bytes: int

    def open(self) -> None: ...

    def close(self) -> None: ...

    def has(self, id: SegmentId, /) -> bool: ...

    def add(self, path: str, source: Source, begin: int, end: int, /) -> None: ...

    def add_bytes(self, path: str, data: bytes, /) -> None: ...

    def add_data(self, id: SegmentId, idx: bytes, source: Source, size: int, /) -> None:
        """The .data of a segment that is still appended to, as far as `idx` has entries."""
        ...

    def share(self, id: SegmentId, idx: bytes, source: Source, size: int, /) -> None: ...

    def unreadable(self, id: SegmentId, error: str, /) -> None:
        """A file of this segment is missing, or is not as it was written. The backup fails; this may raise more."""
        ...

    def commit(self, manifest: Manifest, /) -> int: ...

    @property
    def state_bytes(self) -> int: ...


class Part(NamedTuple):
    """A segment as a manifest names it."""

    topic_id: int
    state: SegmentState

    @property
    def id(self) -> SegmentId:
        """The id of its files in the data directory. A backup has a packed segment as .data, under its `plain` id."""
        return SegmentId(self.topic_id, self.state.first_seq, self.state.gen, bool(self.state.packed_bytes))

    @property
    def seqs(self) -> int:
        return self.state.end_seq - self.state.first_seq

    @property
    def cold(self) -> bool:
        return self.state.tier == COLD


class Instant(NamedTuple):
    """The instant that is backed up. `ends`: an LSN in each shard's log, between two units."""

    taken_ms: int
    ends: list[int]
    heads: dict[str, int]


class Taking:
    """One backup in progress. Raises as `Backups.take`."""

    def __init__(
        self,
        source: BackupSource,
        make_target: Callable[[Going], Target],
        *,
        include_cold: bool,
        at_instant: Callable[[], None],
        with_log: bool = True,
        clean: bool = False,
    ) -> None:
        """`with_log`: False for a target that has the log by itself. `clean`: the engine stops, and writes no frame any
        more."""
        self._source = source
        self._segments = source.segments
        self._logs = source.segments.logs
        self._runtime = source.segments.logs.runtime
        self._pins = source.segments.pins
        self._include_cold = include_cold
        self._at_instant = at_instant
        self._target = make_target(Going(self._went_on))
        self._with_log = with_log
        self._clean = clean
        #: For each shard, where the log must be replayed from; known when the snapshot is taken.
        self.redo: list[int] = []
        #: For each shard, the end of the log at the instant.
        self.ends: list[int] = []
        self._referenced: list[Referenced] = []
        self._cold: list[tuple[int, int]] = []
        #: Bytes done so far, and bytes in all as far as is known.
        self.done_bytes = 0
        self.total_bytes = 0
        self.stopping = False

    def _went_on(self, size: int) -> None:
        self.done_bytes += size
        if self.stopping:
            raise ShuttingDown()

    async def run(self) -> Summary:
        """See the module."""
        runtime = self._runtime
        begin = runtime.clock.monotonic_ns()
        try:
            await runtime.run_io(self._target.open)
            await self._copy_ahead()
            self._pins.begin()
            number, redo = await self._source.take_snapshot(self._clean)
            self.redo = redo
            async with self._source.worker.paused():
                parts = await self._pin_segments()
                instant = self._now()
                self.ends = instant.ends
            await barrier(self._logs)
            await self._copy_log(number, redo, instant)
            self._pins.release_log()
            await self._copy_segments(parts)
            summary = await self._finish(instant, parts, begin)
        except (OSError, SegmentError) as error:
            raise BackupFailed(f"The backup could not be finished: {error}.") from error
        finally:
            self._pins.end()
            await runtime.run_io(self._target.close)
        return summary

    def _intact(self) -> None:
        if self.stopping:
            raise ShuttingDown()
        if not self._pins.intact():
            raise BackupFailed(
                "The disk of the data directory is full, and the backup was given up to make room there."
            )

    # -- 1: ahead ----------------------------------------------------------------------------------------------------

    async def _copy_ahead(self) -> None:
        parts = [part for part in await self._parts() if part.state.sealed and part.seqs and self._is_copied(part)]
        parts = [part for part in parts if not self._target.has(part.id.plain)]
        self.total_bytes += sum(part.state.data_bytes for part in parts)
        for part in parts:
            self._intact()
            await self._run(part.cold, self._share_ahead, part)

    def _is_copied(self, part: Part) -> bool:
        return self._include_cold or not part.cold

    async def _parts(self) -> list[Part]:
        found: list[Part] = []
        async for topic in in_slices(list(self._logs.catalog.topics.values()), self._logs.clock):
            for log in topic.logs:
                found += [Part(log.topic_id, state) for state in log.held.manifest.states()]
        return found

    async def _run(self, cold: bool, job: Callable[..., None], *arguments: object) -> None:
        """Run a job on the I/O pool, or on the pool of the cold store."""
        try:
            await (self._runtime.run_cold(job, *arguments) if cold else self._runtime.run_io(job, *arguments))
        except StorageError as error:
            if isinstance(error, BackupFailed | ShuttingDown):
                raise
            raise BackupFailed(f"The backup could not be finished. {error.message}") from error

    # -- 3, 4: the instant -------------------------------------------------------------------------------------------

    async def _pin_segments(self) -> list[Part]:
        self._pins.add(part.id for part in await self._parts())
        await barrier(self._logs)
        parts = await self._parts()  # after frames that were in flight, such as a move to the cold tier
        self._pins.add(part.id for part in parts)
        return parts

    def _now(self) -> Instant:
        logs = self._logs
        topics = [topic for topic in logs.catalog.topics.values() if not topic.provisional]
        heads = {each.name: each.log.durable_head if each.log.ephemeral else each.log.head for each in topics}
        self._at_instant()
        return Instant(logs.now_ms(), [shard.completed_end for shard in logs.shards], heads)

    # -- 5: what every backup holds anew -----------------------------------------------------------------------------

    async def _copy_log(self, number: int, redo: Sequence[int], instant: Instant) -> None:
        runtime = self._runtime
        path = layout.join("meta", layout.snapshot_name(number))
        await self._run(False, self._add, path, 0, runtime.fs.file_size(layout.join(runtime.path, path)))
        if not self._with_log:
            return
        for shard, (redo_from, end) in enumerate(zip(redo, instant.ends, strict=True)):
            folder = layout.shard_dir("", shard, len(self._logs.shards)).lstrip("/")
            (first, begin), (last, offset) = split(redo_from), split(end)
            for wal in range(first, last + 1):
                path = layout.join(folder, layout.wal_name(wal))
                if wal == last and not offset:
                    break  # none of it counts, and the file may be missing
                size = offset if wal == last else runtime.fs.file_size(layout.join(runtime.path, path))
                self.total_bytes += size - begin
                self._intact()
                await self._run(False, self._add, path, begin, size)
                begin = 0
        self._intact()

    def _add(self, path: str, begin: int, end: int) -> None:
        with closing(self._open(path)) as file:
            self._target.add(path, file, begin, end)

    def _open(self, path: str) -> File:
        return self._runtime.fs.open(layout.join(self._runtime.path, path), write=False)

    # -- 6: segments -------------------------------------------------------------------------------------------------

    async def _copy_segments(self, parts: list[Part]) -> None:
        self.total_bytes += sum(part.seqs * ENTRY_SIZE for part in parts)
        for cold in (False, True):
            for some in _groups([part for part in parts if part.cold is cold]):
                self._intact()
                await self._run(cold and self._include_cold, self._copy_some, some)
                self._intact()
                self._pins.release(part.id for part in some)

    def _copy_some(self, parts: list[Part]) -> None:
        for part in parts:
            with self._errors_are_damage(part):
                idx = self._index(part)
            self._target.add_bytes(files.idx_path(part.id), idx)
            if part.cold:
                self._cold.append((part.topic_id, part.state.first_seq))
            if not self._is_copied(part):
                self._refer(part)
            elif not part.seqs:
                continue  # it may have no files
            elif part.cold:
                self._share(part, idx, self._open_cold(part))
            elif part.state.sealed:
                with self._errors_are_damage(part):
                    data = self._open_hot(part)
                self._share(part, idx, data)
            else:
                # After the last entry there may be bytes that no mark covers, or that are being appended now.
                with self._errors_are_damage(part):
                    file = self._open(files.data_path(part.id))
                with closing(file):
                    self._target.add_data(part.id, idx, file, idx_entry.unpack(idx, part.seqs - 1).end)

    def _index(self, part: Part) -> bytes:
        """The valid entries of the .idx that count. It alone says what is deleted in a shared .data."""
        if not part.seqs:
            return b""
        path, size = files.idx_path(part.id), part.seqs * ENTRY_SIZE
        with closing(self._open(path)) as file:
            idx = file.pread(size, 0)
        if len(idx) < size or idx_entry.damaged(idx):
            raise IndexDamaged(f"{path} is damaged; a start of the broker rebuilds it from the records.", file=path)
        return idx

    @contextmanager
    def _errors_are_damage(self, part: Part) -> Generator[None]:
        """Local files of a pinned segment are opened or read here. What is wrong with them is damage, unless a full
        disk has ended the pins: then they may be gone."""
        try:
            yield
        except (IndexDamaged, OSError) as error:
            is_damage = isinstance(error, IndexDamaged) or error.errno in (errno.EIO, errno.ENOENT)
            if is_damage and self._pins.intact():
                self._target.unreadable(part.id.plain, str(error))
            raise

    def _share_ahead(self, part: Part) -> None:
        try:
            idx = self._index(part)
            data = self._open_cold(part) if part.cold else self._open_hot(part)
        except (IndexDamaged, OSError):
            return  # dropped, rewritten or moved, or damaged: step 6 looks again
        self._share(part, idx, data)

    def _open_hot(self, part: Part) -> Readable:
        return open_data(self._runtime.fs, self._runtime.path, part.id)

    def _open_cold(self, part: Part) -> Readable:
        cold = self._segments.store.cold
        if cold is None:
            raise BackupFailed("There are segments in the cold tier, and none is configured.")
        return cold.data(part.id)

    def _share(self, part: Part, idx: bytes, data: Readable) -> None:
        with closing(data):
            self._target.share(part.id.plain, idx, data, part.state.data_bytes)

    def _refer(self, part: Part) -> None:
        self._referenced.append(
            Referenced(
                topic_id=part.topic_id,
                first_seq=part.state.first_seq,
                gen=part.state.gen,
                size=part.state.data_bytes,
                records=part.state.live,
            )
        )

    # -- the end -----------------------------------------------------------------------------------------------------

    async def _finish(self, instant: Instant, parts: list[Part], begin_ns: int) -> Summary:
        runtime, target = self._runtime, self._target
        self._intact()
        there = {part.id.plain for part in parts}
        manifest = Manifest(
            version=files.VERSION,
            number=target.number,
            cluster_id=self._source.cluster_id(),
            taken_ms=instant.taken_ms,
            shards=len(self._logs.shards),
            state_bytes=target.state_bytes,
            pieces=target.pieces,
            shared=[each for id, each in target.shared.items() if id in there],
            cold=self._cold,
            referenced=self._referenced,
            heads=instant.heads,
            cell=self._logs.options.cell,
            cells=self._logs.options.cells,
        )
        await runtime.run_io(target.commit, manifest)
        return Summary(
            directory=target.root,
            number=target.number,
            cluster_id=self._source.cluster_id(),
            taken_ms=instant.taken_ms,
            seconds=(runtime.clock.monotonic_ns() - begin_ns) / 1e9,
            topics=len(instant.heads),
            segments=len(parts),
            copied_bytes=target.copied_bytes,
            reused_bytes=target.reused_bytes,
            referenced_segments=len(self._referenced),
            referenced_bytes=sum(each.size for each in self._referenced),
            heads=instant.heads,
        )


async def barrier(logs: Logs) -> None:
    """Wait until everything submitted so far is committed and durable. Raises StorageError."""
    waiting = [logs.submit_unit(shard, 0, EncodedUnit(Unit(None, []), b"", 0), frees=True) for shard in logs.shards]
    for outcome in await asyncio.gather(*waiting, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


def _groups(parts: list[Part]) -> Iterator[list[Part]]:
    for begin in range(0, len(parts), _AT_ONCE):
        yield parts[begin : begin + _AT_ONCE]
