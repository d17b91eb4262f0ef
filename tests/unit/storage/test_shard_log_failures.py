"""A failed write or sync stops a shard for good: every waiting write fails, and nothing more is written."""

from __future__ import annotations

import errno

import pytest

from storage.errors import StorageFailed
from tests.unit.storage.shard_rig import ShardRig, name


@pytest.fixture
def rig() -> ShardRig:
    return ShardRig().open()


def test_a_failed_write_fails_its_group_with_shard_and_errno(rig: ShardRig) -> None:
    rig.disk.fail("pwritev", "*/wal-*", errno=errno.EIO)
    settled = rig.commit(rig.submission(), rig.submission(sync=True))
    assert all(isinstance(each.error, StorageFailed) for each in settled)
    error = settled[0].error
    assert error is not None
    assert error.detail == {"outcome": "unknown", "shard": 0, "errno": errno.EIO}
    assert (error.code, error.outcome) == ("storage_failed", "unknown")
    assert rig.log.failed is not None


def test_a_failed_sync_fails_only_writes_that_need_a_sync(rig: ShardRig) -> None:
    rig.disk.fail("datasync", "*/wal-*")
    slow, quick = rig.submission(topic_id=1, sync=True), rig.submission(topic_id=2)
    rig.commit(slow, quick)
    assert quick.error is None
    assert isinstance(slow.error, StorageFailed)
    assert slow.synced_ns > 0


def test_a_failed_sync_fails_later_writes_of_the_same_log(rig: ShardRig) -> None:
    rig.disk.fail("datasync", "*/wal-*")
    slow, behind = rig.submission(sync=True), rig.submission()
    rig.commit(slow, behind)
    assert isinstance(behind.error, StorageFailed)


@pytest.mark.parametrize("op", ["pwritev", "datasync"])
def test_a_failed_shard_writes_and_syncs_no_more(rig: ShardRig, op: str) -> None:
    rig.disk.fail(op, "*/wal-*")
    rig.write(100, sync=True)
    before = len(rig.disk.calls)
    for frees in (False, True):
        each = rig.write(100, sync=True, frees=frees)
        assert isinstance(each.error, StorageFailed)
    assert not rig.log.sync()
    assert not rig.log.resume()
    assert len(rig.disk.calls) == before


def test_a_failed_shard_is_not_synced_at_close(rig: ShardRig) -> None:
    rig.write(100)
    rig.disk.fail("datasync", "*/wal-*")
    rig.log.sync()
    before = len(rig.disk.calls)
    rig.log.close()
    assert not {call.op for call in rig.disk.calls[before:]} & {"pwritev", "truncate", "datasync", "sync"}


def test_a_failed_timer_sync_stops_the_shard(rig: ShardRig) -> None:
    rig.write(100)
    rig.disk.fail("datasync", "*/wal-*")
    assert not rig.log.sync()
    assert isinstance(rig.write(100).error, StorageFailed)


@pytest.mark.parametrize(
    ("op", "path"), [("truncate", name(1)), ("sync", name(1)), ("rename", "/wal/CURRENT.tmp"), ("sync_dir", "/wal")]
)
def test_a_failed_rotation_stops_the_shard(rig: ShardRig, op: str, path: str) -> None:
    rig.write(100_000, sync=True)
    rig.disk.fail(op, path, errno=errno.EIO)
    assert isinstance(rig.write(100_000).error, StorageFailed)
    assert rig.log.failed is not None
    assert isinstance(rig.write(100).error, StorageFailed)


def test_frames_written_before_a_failure_stay_readable(rig: ShardRig) -> None:
    rig.write(100, sync=True)
    rig.disk.fail("pwritev", "*/wal-*")
    rig.write(100)
    assert [seq for _, seq in rig.frames(1)] == [1]


def test_a_failed_open_raises_the_error() -> None:
    rig = ShardRig()
    rig.disk.fail("allocate", "*/wal-*", errno=errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        rig.open()


def test_a_defect_stops_the_shard_like_a_failed_disk(rig: ShardRig) -> None:
    rig.log.stop_for(ValueError("a defect"))
    assert isinstance(rig.write(100).error, StorageFailed)
    rig.log.stop_for(ValueError("another"))
    assert "a defect" in str(rig.log.failed)
