"""Takes snapshots and trims the WAL below them.

1. Note for each shard which frames are applied; capture every log's section on the loop, in slices.
2. Sync all shards: the frames that the sections state are durable before the snapshot.
3. tmp, fsync, rename, directory fsync. 4. Delete the WAL files wholly below redo_from of both kept snapshots.

A crash between any two steps leaves the previous snapshot, and a WAL that reaches back to it.

Source: docs/reference/format.md#snapshots.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from storage.log import EncodedUnit, Logs, Unit, position, split
from storage.platform import layout
from storage.segments import Pins
from storage.snapshot import contents as snapshot
from storage.snapshot import file as snapshot_file
from storage.telemetry import METRICS, Family

SLICE_NS = 2_000_000


class Snapshotter:
    """`retained`: (number, redo_from LSNs) of the snapshots on disk, oldest first, as recovery found them.

    Create it while nothing is being committed, on the I/O pool, because it goes through all topics.
    """

    def __init__(
        self,
        logs: Logs,
        pins: Pins,
        wal_directory: Callable[[int], str],
        retained: list[tuple[int, list[int]]],
        next_number: int,
        sections: dict[int, bytes],
    ) -> None:
        self._logs = logs
        self._runtime = logs.runtime
        self._pins = pins
        self._wal_directory = wal_directory
        self._retained = retained
        self._next_number = next_number
        self._saved = sections
        #: Logs that needed frames in the WAL at the last check.
        self._needing = {id for id, topic in logs.catalog.by_id.items() if topic.log.wal_needed_from() is not None}
        self._running = asyncio.Lock()
        self._last_ns = logs.clock.monotonic_ns()
        self._last_wal_bytes = 0
        self._last_commits = 0
        #: Snapshots taken, WAL files deleted, and the seconds that the last snapshot took.
        self.taken = 0
        self.trimmed_files = 0
        self.last_seconds = 0.0

    def families(self) -> list[Family]:
        """Metric families of snapshots."""
        return [
            METRICS.whole("topics_snapshots", self.taken),
            METRICS.whole("topics_snapshot_seconds", self.last_seconds),
            METRICS.whole("topics_wal_files_trimmed", self.trimmed_files),
        ]

    async def tick(self) -> None:
        """Take a snapshot when it is due: by time, by WAL bytes, and while a full disk waits for space."""
        logs = self._logs
        elapsed_ms = (logs.clock.monotonic_ns() - self._last_ns) // 1_000_000
        grown = sum(shard.log.stats.bytes for shard in logs.shards) - self._last_wal_bytes
        changed = logs.publisher.commits != self._last_commits
        full = any(shard.log.full for shard in logs.shards)
        timely = elapsed_ms >= logs.options.snapshot_interval_ms and (changed or len(self._retained) < 2)
        if timely or grown >= logs.options.snapshot_wal_bytes or (full and self._trimmable()):
            await self.take()

    def _trimmable(self) -> bool:
        """Whether one or two more snapshots would free a WAL file."""
        oldest = self._retained[0][1] if len(self._retained) >= 2 else [0] * len(self._logs.shards)
        return any(
            split(now)[0] > max(1, split(then)[0])
            for now, then in zip(self.redo_lsns(self._stopped()), oldest, strict=True)
        )

    def _stopped(self) -> frozenset[int]:
        return frozenset(shard.index for shard in self._logs.shards if shard.log.failed is not None)

    def redo_lsns(self, stopped: frozenset[int]) -> list[int]:
        """For each shard, the lowest LSN that a replay has to begin at.

        Only a commit can make a log need the WAL. So this does not examine logs that needed nothing at the last check
        and have had no commit since.
        """
        logs = self._logs
        lsns = [shard.applied_lsn for shard in logs.shards]
        touched = logs.publisher.touched
        asked: set[int] = self._needing | touched
        self._needing: set[int] = set()
        touched.clear()
        for topic_id in asked:
            log = logs.catalog.log(topic_id)
            needed = None if log is None else log.wal_needed_from()
            if log is not None and needed is not None:
                self._needing.add(topic_id)
                lsns[log.shard] = min(lsns[log.shard], needed)
        last = self._retained[-1][1] if self._retained else [position(1, 0)] * len(lsns)
        # A stopped shard is not captured again: recovery begins at its last sections.
        return [last[index] if index in stopped else lsn for index, lsn in enumerate(lsns)]

    async def take(self, *, clean: bool = False) -> tuple[int, list[int]]:
        """Take a snapshot, durable on return, and trim the WAL. Raises StorageError or OSError; retried later.

        Returns the snapshot's number, and the LSN at which the replay of each shard begins.
        """
        async with self._running:
            begin = self._logs.clock.monotonic_ns()
            commits = self._logs.publisher.commits
            wal_bytes = sum(shard.log.stats.bytes for shard in self._logs.shards)
            # Read only once: a shard that stops after this fails the whole snapshot, at its barrier.
            stopped = self._stopped()
            redo = self.redo_lsns(stopped)
            body, sections = await self._capture(redo, stopped, clean=clean)
            await self._sync_shards(stopped)
            number = self._next_number
            self._next_number += 1
            await self._runtime.run_io(
                snapshot_file.write, self._runtime.fs, self._runtime.path, number, snapshot.encode(body)
            )
            self._retained.append((number, redo))
            self._saved = sections
            await self._runtime.run_io(self._trim)
            self._last_ns = self._logs.clock.monotonic_ns()
            self._last_wal_bytes, self._last_commits = wal_bytes, commits
            self.taken += 1
            self.last_seconds = (self._last_ns - begin) / 1e9
            return number, redo

    async def _capture(
        self, redo: list[int], stopped: frozenset[int], *, clean: bool
    ) -> tuple[snapshot.Body, dict[int, bytes]]:
        logs = self._logs
        now_ms = logs.now_ms()
        sections: dict[int, bytes] = {}
        slice_begin = logs.clock.monotonic_ns()
        for topic in list(logs.catalog.by_id.values()):  # including partitions that do not count yet
            while topic.log.ephemeral and (changing := logs.changing.get(topic.topic_id)) is not None:
                await asyncio.wait([changing])  # a log half written out is in neither its old state nor its new one
            if topic.provisional or logs.catalog.by_id.get(topic.topic_id) is not topic:
                continue
            if topic.log.shard in stopped:
                if topic.topic_id in self._saved:
                    sections[topic.topic_id] = self._saved[topic.topic_id]
            else:
                routers = logs.catalog.routes.into.get(topic.topic_id, ())
                sections[topic.topic_id] = snapshot.capture(topic, now_ms, routers, clean=clean)
            if logs.clock.monotonic_ns() - slice_begin > SLICE_NS:
                await asyncio.sleep(0)
                slice_begin = logs.clock.monotonic_ns()
        states = self._saved.get(0, b"") if 0 in stopped else snapshot.capture_states(logs.catalog.states)
        body = snapshot.Body(
            created_ms=now_ms,
            shards=len(logs.shards),
            next_topic_id=logs.catalog.next_topic_id,
            pending_deletes=sorted(logs.catalog.pending_deletes),
            clean=clean,
            redo_from=[split(lsn) for lsn in redo],
            sections=list(sections.values()),
            states=states,
        )
        return body, {**sections, 0: states} if states else sections

    async def _sync_shards(self, stopped: frozenset[int]) -> None:
        """Make everything written so far durable. A stopped shard keeps its earlier sections."""
        for shard in self._logs.shards:
            if shard.index not in stopped:
                await self._logs.submit_unit(shard, 0, EncodedUnit(Unit(None, []), b"", 0), frees=True)

    # -- on the I/O pool ---------------------------------------------------------------------------------------------

    def _trim(self) -> None:
        fs, root = self._runtime.fs, self._runtime.path
        directory = layout.meta_dir(root)
        del self._retained[:-2]
        if len(self._retained) < 2 or self._pins.holds_log():
            return
        for number in layout.snapshot_numbers(fs.listdir(directory)):
            if number < self._retained[0][0]:  # including snapshots left over by a crash, and damaged ones
                fs.unlink(layout.join(directory, layout.snapshot_name(number)))
        fs.sync_dir(directory)
        for shard in self._logs.shards:
            keep_from = min(split(redo[shard.index])[0] for _, redo in self._retained)
            wal = self._wal_directory(shard.index)
            for number in layout.wal_numbers(fs.listdir(wal)):
                if number >= keep_from:
                    break
                self._logs.wal_files.forget(shard.index, number)
                fs.unlink(layout.join(wal, layout.wal_name(number)))
                # Sync after each file: a power loss must not bring an earlier name back without the later ones.
                fs.sync_dir(wal)
                self.trimmed_files += 1
