"""One shard's log without an engine: groups go in, and the outcome of each submission comes out, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from storage.format import control, wal_frame
from storage.log.encode import encode_controls
from storage.log.reader import FrameStream
from storage.log.submission import Submission, Unit
from storage.log.writer import ShardLog
from storage.records.batches import AppendedRecords
from tests.support.fake_clock import FakeClock
from tests.support.sim_disk import SimDisk
from tests.unit.storage.machine import options

DIRECTORY = "/wal"


def name(number: int) -> str:
    return f"/wal/wal-{number:016d}.log"


class ShardRig:
    """`outcomes`: batches of submissions in the order of their completion. `jobs`: spawned and not run yet."""

    def __init__(self, disk: SimDisk | None = None, **changes: Any) -> None:
        self.disk = disk or SimDisk()
        self.clock = FakeClock()
        self.options = options(**changes)
        self.settled: list[list[Submission]] = []
        self.trace: list[tuple[str, int]] = []
        self.jobs: list[Callable[[], None]] = []
        self.prepare_at_once = True
        if not self.disk.is_dir(DIRECTORY):
            self.disk.mkdir(DIRECTORY)
            self.disk.sync_dir("/")
        self.log = ShardLog(self.disk, DIRECTORY, 0, self.options, self.clock, self._spawn)
        self.log.on_written = self._settle
        self._seq = 0

    def _settle(self, group: list[Submission]) -> None:
        self.settled.append(group)
        self.trace += [("settled", len(self.disk.calls))]

    def _spawn(self, job: Callable[[], None]) -> None:
        if self.prepare_at_once:
            job()
        else:
            self.jobs.append(job)

    def open(self, number: int = 1) -> ShardRig:
        self.log.open(number)
        return self

    def submission(
        self,
        size: int = 100,
        *,
        topic_id: int = 1,
        sync: bool = False,
        frees: bool = False,
        generation: int = 0,
    ) -> Submission:
        """One frame of this many bytes (46 at least)."""
        self._seq += 1
        payload = wal_frame.encode(1, 0, topic_id, self._seq, 5, data=b"d" * (size - wal_frame.OVERHEAD))
        unit = Unit(None, [])
        return Submission(
            unit,
            payload,
            frames=1,
            topic_id=topic_id,
            ts=5,
            needs_sync=sync,
            frees=frees,
            generation=-1 if frees else generation,
        )

    def commit(self, *group: Submission) -> list[Submission]:
        """Commit a group. Returns its members in the order of their completion."""
        before = len(self.settled)
        self.log.commit(list(group))
        return [each for batch in self.settled[before:] for each in batch]

    def write(self, size: int = 100, **more: Any) -> Submission:
        """One submission in a separate group."""
        each = self.submission(size, **more)
        self.commit(each)
        return each

    def frames(self, number: int) -> list[tuple[int, int]]:
        """(type, seq) of the valid frames of a file."""
        file = self.disk.open(name(number), write=False)
        return [(frame[8], frame[2]) for chunk in FrameStream(file).chunks() for frame in chunk.frames]

    def sync_points(self, number: int) -> list[control.SyncPoint]:
        file = self.disk.open(name(number), write=False)
        return [
            control.decode_control(frame[8], chunk.bytes[frame[0] + 38 : frame[0] + 38 + frame[5]])
            for chunk in FrameStream(file).chunks()
            for frame in chunk.frames
            if frame[8] == wal_frame.FrameType.SYNC_POINT
        ]

    def calls(self, *ops: str, path: str = "") -> list[tuple[str, str]]:
        """(op, file name) of the calls so far, for these ops."""
        return [
            (call.op, call.path.removeprefix("/wal/"))
            for call in self.disk.calls
            if call.op in ops and call.path.startswith(path)
        ]


def run_bytes(run: AppendedRecords) -> int:
    return sum(run.sizes)


def frame_of(value: control.Control, topic_id: int = 1) -> bytes:
    return encode_controls([value], topic_id, 5).payload
