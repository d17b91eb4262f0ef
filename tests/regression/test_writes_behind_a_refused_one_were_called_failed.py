"""The disk had been full and had space again. A write that came too early was answered storage_failed with an unknown
outcome."""

from __future__ import annotations

from storage.errors import StorageFull
from storage.log.submission import Submission, Unit
from storage.log.writer import ShardLog
from tests.support.crash_run import SMALL
from tests.support.fake_clock import FakeClock
from tests.support.sim_disk import SimDisk


def _write(generation: int) -> Submission:
    unit = Unit(None, [])
    return Submission(
        unit, bytes(SMALL.wal_file_bytes), frames=1, topic_id=1, ts=1, needs_sync=True, generation=generation
    )


def test_a_write_after_a_refused_write_fails_with_storage_full() -> None:
    disk, settled = SimDisk(), list[Submission]()
    disk.write_file("/wal/x", b"")
    log = ShardLog(disk, "/wal", 0, SMALL, FakeClock(), lambda job: job())
    log.on_written = settled.extend
    log.open(1)
    disk.capacity_bytes = disk.used_bytes
    log.commit([_write(0)])
    disk.capacity_bytes = None
    assert log.resume()
    log.commit([_write(0), _write(1)])
    assert [type(each.error) for each in settled] == [StorageFull, StorageFull, type(None)]
