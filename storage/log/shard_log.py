"""One shard's log on disk: takes groups of submissions, writes and syncs them, and says what became of each.

Runs on the shard's writer thread (or, in deterministic tests, on the loop); no locks, no queue, no waiting.

    running --ENOSPC--> full --space again--> running
       \\__any other failed write, sync, truncate or rename__> failed, for good

A sync acks a frame only if it was issued after every write below the frame's end had completed.

Source: docs/reference/guarantees.md#crash-points-of-a-write.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Sequence

from storage.errors import StorageError, StorageFailed, StorageFull
from storage.format import control, wal_frame
from storage.log.files import PreparedFile, WalFiles, no_space
from storage.log.position import position
from storage.log.stats import WalStats
from storage.log.submission import Submission
from storage.options import Options
from storage.platform.clock import Clock
from storage.platform.filesystem import Buffer, File, FileSystem, SyncFailed, write_buffers

OnWritten = Callable[[list[Submission]], None]


class ShardLog:
    """The active file and where it stands. `on_written` gets submissions in order; failures after all earlier
    successes."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        shard: int,
        options: Options,
        clock: Clock,
        on_written: OnWritten,
        spawn: Callable[[Callable[[], None]], None],
    ) -> None:
        self.shard = shard
        self._options = options
        self._clock = clock
        self._on_written = on_written
        self.stats = WalStats()
        size, reserve = options.wal_file_bytes, options.wal_reserve_bytes
        self.files = WalFiles(fs, directory, file_bytes=size, reserve_bytes=reserve, spawn=spawn, stats=self.stats)
        self._active: PreparedFile | None = None
        self._next_number = 1
        self._end = 0  # end of the last whole write in the active file
        self._written_ns = 0  # when the group under way was written, where its write and sync were one call
        self._synced = 0  # below here the active file is durable
        self._point_offset = 0
        self._point_ns = 0
        self._lowest_generation = 0
        #: Set when the disk is full: only frames that free space or keep promises are taken.
        self.full = False
        #: Set once, when a write or sync has failed: nothing is written any more.
        self.failed: OSError | None = None
        #: Bytes written that no sync has covered yet, and since when (monotonic ns); some may not wait for the timer.
        self.dirty_since_ns: int | None = None
        self.hastened = False
        #: How often what was written has been made durable.
        self.syncs = 0

    # -- opening -----------------------------------------------------------------------------------------------------

    def open(self, number: int) -> None:
        """Begin a new file. Comes up `full` when there is no space for one. Raises OSError on any other trouble."""
        self._next_number = number
        try:
            self._begin(self.files.take(number, 0))
            self.files.make_reserve()
        except OSError as error:
            if not no_space(error):
                raise
            self.full = True
            with contextlib.suppress(OSError):  # there may be room for this much, to delete with
                self.files.make_reserve()
        self._prepare_ahead()

    def _begin(self, prepared: PreparedFile) -> None:
        try:
            self.files.begin(prepared.number)
        except OSError as error:
            if not no_space(error):
                raise
        if self._active is not None:
            self._active.file.close()
        self._active = prepared
        self._next_number = prepared.number + 1
        self._end = self._synced = self._point_offset = 0
        self._point_ns = self._clock.monotonic_ns()

    def _prepare_ahead(self) -> None:
        if not self.full:
            self.files.prepare_ahead(self._next_number)

    @property
    def end_lsn(self) -> int:
        """Where the next frame would go."""
        number = self._active.number if self._active else self._next_number
        return position(number, self._end)

    # -- a group -----------------------------------------------------------------------------------------------------

    def commit(self, group: list[Submission]) -> None:
        """Write a group and settle every member of it."""
        writers, sync = 0, True
        for each in group:
            writers += each.writers
            sync = sync and each.needs_sync
        self.stats.groups += 1
        self.stats.group_size.observe(writers)
        self._written_ns = 0
        batch: list[Submission] = []
        size = 0
        written: list[Submission] = []
        for each in group:
            if batch and self._end + size + len(each.payload) > self._room():
                self._flush(batch, size, written)
                batch, size = [], 0
            # Asked behind that flush, which may have failed: nothing is written behind what failed.
            refusal = self._refusal(each)
            if refusal is not None:
                self._flush(batch, size, written)
                batch, size = [], 0
                each.error = refusal
                written.append(each)
                continue
            batch.append(each)
            size += len(each.payload)
        self._flush(batch, size, written, sync=sync)  # nobody is told before the sync
        self._conclude(written)

    def _room(self) -> int:
        # A SyncPoint may go in front of the run: leave room for it.
        return (self._active.size if self._active else 0) - 128

    def _refusal(self, each: Submission) -> StorageError | None:
        if self.failed is not None:
            return self.failure()
        if 0 <= each.generation < self._lowest_generation:
            return StorageFull()  # a write that it builds on was refused
        if self.full and not each.frees:
            return self._refuse(each, StorageFull())
        return None

    def _refuse(self, each: Submission, error: StorageError) -> StorageError:
        # Whatever builds on the seqs of a refused write is refused too, until the loop has taken them back.
        if each.generation >= 0:
            self._lowest_generation = max(self._lowest_generation, each.generation + 1)
        if isinstance(error, StorageFull):
            self.stats.storage_full += 1
        return error

    def stop_for(self, error: Exception) -> None:
        """Stop the shard because of something that is not an error of the disk."""
        if self.failed is None:
            self.failed = error if isinstance(error, OSError) else OSError(errno.EIO, repr(error))

    def failure(self) -> StorageFailed:
        """What everybody is told after the shard has stopped."""
        number = self.failed.errno if self.failed else None
        message = f"Log shard {self.shard} stopped after a failed write or sync (errno {number}); restart to recover."
        return StorageFailed(message, shard=self.shard, errno=number)

    def _flush(self, group: list[Submission], size: int, written: list[Submission], *, sync: bool = False) -> None:
        """Write a run of `size` bytes to the active file, or to the next one where it does not fit. `sync`: sync it."""
        if not group:
            return
        if size == 0:  # barriers: they only want the sync
            written += group
            return
        try:
            if self._active is None or self._end + size > self._room():
                self._rotate(size)
            self._write(group, sync=sync)
            written += group
            return
        except OSError as error:
            if self.failed is None and no_space(error):
                self._become_full()
            elif self.failed is None:
                self.failed = error
        # The disk was full: what frees space goes to the reserve, one by one; the rest is refused.
        for each in group:
            each.error = self._refusal(each)
            if each.error is None:
                self._write_to_reserve(each)
            written.append(each)

    def _write_to_reserve(self, each: Submission) -> None:
        try:
            if self._active is None or self._end + len(each.payload) > self._room():
                self._finish_active()
                self._begin(self.files.take_reserve(self._next_number))
                self.stats.rotations += 1
            self._write([each])
        except OSError as error:
            if self.failed is not None:
                each.error = self.failure()
            elif isinstance(error, FileNotFoundError) or no_space(error):
                each.error = self._refuse(each, StorageFull("The disk is full, and so is the log's reserve."))
            else:
                self.failed = error
                each.error = self.failure()

    def _write(self, batch: Sequence[Submission], *, sync: bool = False) -> None:
        """One run, whole or not at all, and with `sync` that too. Raises OSError unless it was the sync that failed;
        sets `failed` for all but a full disk."""
        active = self._active
        assert active is not None
        start = self._end
        point = self._sync_point(active.number, batch[0].ts)
        buffers: list[Buffer] = [] if point is None else [point]
        at = start + sum(map(len, buffers))
        frames, hasten = len(buffers), False
        for each in batch:
            each.lsn = position(active.number, at)
            at += len(each.payload)
            frames += each.frames
            hasten = hasten or each.hasten
            buffers.append(each.payload)
        try:
            if sync:
                sync = self._write_and_sync(active.file, buffers, start)
            else:
                write_buffers(active.file, buffers, start)
        except OSError as error:
            if not no_space(error):
                self.failed = error
            raise
        self._end = at
        if point is not None:
            self._point_offset = start
            self._point_ns = self._clock.monotonic_ns()
            self.stats.sync_points += 1
        self.stats.bytes += at - start
        self.stats.frames += frames
        if sync:
            self._note_synced(self._written_ns)
            return
        if self.dirty_since_ns is None:
            self.dirty_since_ns, self.hastened = self._clock.monotonic_ns(), False
        self.hastened = self.hastened or hasten

    def _write_and_sync(self, file: File, buffers: Sequence[Buffer], offset: int) -> bool:
        """Both in one call. True when synced, False when that failed, which stops the shard; OSError: not written."""
        self._note_written()
        try:
            file.write_and_sync(buffers, offset, self._note_written)
        except SyncFailed as error:
            self.failed = error
        return self.failed is None

    def _note_written(self) -> None:
        self._written_ns = self._clock.monotonic_ns()

    def _sync_point(self, number: int, ts: int) -> bytes | None:
        """The frame that says how far this file is durable, when it is due."""
        if self._synced <= self._point_offset:
            return None
        due = self._synced - self._point_offset >= self._options.sync_point_bytes
        if not due:
            elapsed_ms = (self._clock.monotonic_ns() - self._point_ns) // 1_000_000
            due = elapsed_ms >= self._options.sync_point_ms
        if not due:
            return None
        value = control.SyncPoint(file=number, at=self._end, offset=self._synced)
        return wal_frame.encode(wal_frame.FrameType.SYNC_POINT, 0, 0, 0, ts, data=control.encode_control(value))

    def _conclude(self, written: list[Submission]) -> None:
        """Sync if anybody needs it, then settle: what needs no sync at once, the rest in order behind it."""
        now = self._written_ns or self._clock.monotonic_ns()
        waiting = False
        for each in written:
            each.written_ns = now
            waiting = waiting or (each.needs_sync and each.error is None)
        if not waiting:
            self._on_written(written)
            return
        held: set[int] = set()
        early: list[Submission] = []
        late: list[Submission] = []
        failing = False
        for each in written:
            # A log's own order is kept, and nothing overtakes a failure.
            failing = failing or each.error is not None
            if each.needs_sync or failing or each.topic_id in held:
                held.add(each.topic_id)
                late.append(each)
            else:
                early.append(each)
        if early:
            self._on_written(early)
        self.sync()
        now = self._clock.monotonic_ns()
        for each in late:
            each.synced_ns = now
            if self.failed is not None and each.error is None:
                each.error = self.failure()
        self._on_written(late)

    # -- syncing and turning over --------------------------------------------------------------------------------------

    def sync(self) -> bool:
        """Make all that is written durable. False when the shard has stopped, before or by this."""
        if self.failed is not None:
            return False
        active = self._active
        if active is None or self._synced == self._end:
            self.dirty_since_ns = None
            return True
        begin = self._clock.monotonic_ns()
        try:
            active.file.datasync()
        except OSError as error:
            self.failed = error
            return False
        self._note_synced(begin)
        return True

    def _note_synced(self, begin_ns: int) -> None:
        self.stats.fsyncs += 1
        self.stats.fsync_seconds.observe((self._clock.monotonic_ns() - begin_ns) / 1e9)
        self._synced = self._end
        self.syncs += 1
        self.dirty_since_ns = None

    def _finish_active(self) -> None:
        """Cut the active file to its length and sync it. A failure here stops the shard."""
        active = self._active
        if active is None:
            return
        try:
            active.file.truncate(self._end)
            active.file.sync()
        except OSError as error:
            self.failed = error
            raise
        active.size = self._synced = self._end
        self.syncs += 1
        self.dirty_since_ns = None

    def _rotate(self, size: int) -> None:
        prepared = self.files.take(self._next_number, size + 256)
        self._finish_active()
        if self._active is not None:
            self.stats.rotations += 1
        self._begin(prepared)
        self._prepare_ahead()

    def _become_full(self) -> None:
        """Back to the last whole write; a failure on the way stops the shard."""
        self.full = True
        with contextlib.suppress(OSError):  # `failed` says it
            self._finish_active()

    def resume(self) -> bool:
        """Full: take up service again if a file and a reserve can be had. True when the shard runs."""
        if self.failed is not None:
            return False
        if not self.full:
            return True
        if self._active is not None and self._active.size - self._end > self._options.wal_file_bytes // 2:
            return self._resume_in_active()
        try:
            prepared = self.files.take(self._next_number, 0)
        except OSError:
            return False
        try:
            self.files.make_reserve()
        except OSError:
            self.files.discard(prepared)
            return False
        try:
            self._finish_active()
            self._begin(prepared)
        except OSError as error:
            self.failed = self.failed or error
            return False
        self.full = False
        self._prepare_ahead()
        return True

    def _resume_in_active(self) -> bool:
        """The start found room for a file, but not for the reserve beside it."""
        try:
            self.files.make_reserve()
        except OSError:
            return False
        self.full = False
        self._prepare_ahead()
        return True

    def close(self) -> None:
        """Sync what is written, give the unused space back, close. The prepared file goes: nothing is in it."""
        if self.failed is None and self.sync() and self._active is not None:
            self._finish_active()
        if self._active is not None:
            self._active.file.close()
        self.files.drop_ahead()
