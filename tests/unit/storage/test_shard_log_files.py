"""A shard's log changes its files in an order that no crash can spoil, and marks how far it is durable."""

from __future__ import annotations

import pytest

from storage.format.wal_frame import FrameType
from storage.log import position, split
from tests.support.sim_disk import Loss
from tests.unit.storage.shard_rig import ShardRig, name

FILE = 1 << 17


@pytest.fixture
def rig() -> ShardRig:
    return ShardRig().open()


# -- places ----------------------------------------------------------------------------------------------------------


def test_submissions_are_written_back_to_back_and_know_their_lsn(rig: ShardRig) -> None:
    a, b, c = (rig.submission(size) for size in (100, 60, 80))
    rig.commit(a, b)
    rig.commit(c)
    assert [split(each.lsn) for each in (a, b, c)] == [(1, 0), (1, 100), (1, 160)]
    assert rig.log.end_lsn == position(1, 240)
    assert [seq for _, seq in rig.frames(1)] == [1, 2, 3]


def test_a_group_is_written_by_a_single_call(rig: ShardRig) -> None:
    before = len(rig.calls("pwritev", path="/wal/wal-"))
    rig.commit(*(rig.submission() for _ in range(50)))
    assert len(rig.calls("pwritev", path="/wal/wal-")) == before + 1


@pytest.mark.parametrize("keep_bytes", [1, 45, 99, 100, 101, 150, 199])
def test_a_short_write_is_finished(rig: ShardRig, keep_bytes: int) -> None:
    rig.disk.short_writes("*/wal-*", keep_bytes=keep_bytes)
    group = [rig.submission(100), rig.submission(50), rig.submission(50, sync=True)]
    settled = rig.commit(*group)
    assert all(each.error is None for each in settled)
    assert [seq for _, seq in rig.frames(1)] == [1, 2, 3]
    assert len(rig.calls("pwritev", path="/wal/wal-")) == 2


def test_writes_of_a_few_bytes_per_call_are_completed(rig: ShardRig) -> None:
    rig.disk.short_writes("*/wal-*", keep_bytes=7, sticky=True)
    rig.commit(rig.submission(100), rig.submission(60, sync=True))
    rig.disk.clear_faults()
    assert [seq for _, seq in rig.frames(1)] == [1, 2]


def test_a_short_write_is_completed_before_the_sync(rig: ShardRig) -> None:
    rig.disk.short_writes("*/wal-*")
    rig.commit(rig.submission(100, sync=True))
    ops = [op for op, _ in rig.calls("pwritev", "datasync", path="/wal/wal-")]
    assert ops == ["pwritev", "pwritev", "datasync"]


# -- rotation --------------------------------------------------------------------------------------------------------


def test_a_rotation_cuts_and_syncs_the_old_file_before_writing_the_next(rig: ShardRig) -> None:
    rig.write(100_000)
    start = len(rig.disk.calls)
    rig.write(100_000)
    calls = [
        (call.op, call.path.removeprefix("/wal/"), call.args)
        for call in rig.disk.calls[start:]
        if call.op in ("truncate", "sync", "pwritev") and call.path in (name(1), name(2))
    ]
    first, second = name(1).removeprefix("/wal/"), name(2).removeprefix("/wal/")
    assert calls == [
        ("truncate", first, (100_000,)),
        ("sync", first, ()),
        ("pwritev", second, (0, 100_000)),
    ]
    assert rig.disk.file_size(name(1)) == 100_000


def test_current_is_durable_before_the_first_frame(rig: ShardRig) -> None:
    rig.write(100_000)
    start = len(rig.disk.calls)
    rig.write(100_000)
    ops = [(call.op, call.path) for call in rig.disk.calls[start:]]
    renamed = ops.index(("rename", "/wal/CURRENT.tmp"))
    assert ops.index(("sync_dir", "/wal"), renamed) < ops.index(("pwritev", name(2)))


def test_the_next_file_is_prepared_ahead(rig: ShardRig) -> None:
    assert rig.disk.exists(name(2))
    assert not rig.disk.exists(name(3))
    rig.write(100_000)
    rig.write(100_000)
    assert rig.disk.exists(name(3))


def test_rotation_does_not_depend_on_preparation() -> None:
    rig = ShardRig()
    rig.prepare_at_once = False
    rig.open()
    for _ in range(4):
        assert rig.write(100_000).error is None
    assert split(rig.log.end_lsn) == (4, 100_000)
    assert rig.log.stats.rotations == 3


def test_a_group_beyond_the_end_of_a_file_continues_in_the_next_file(rig: ShardRig) -> None:
    group = [rig.submission(50_000) for _ in range(5)]
    rig.commit(*group)
    assert [split(each.lsn) for each in group] == [(1, 0), (1, 50_000), (2, 0), (2, 50_000), (3, 0)]


def test_a_submission_larger_than_a_file_gets_a_separate_file(rig: ShardRig) -> None:
    rig.write(100)
    large = rig.write(3 * FILE)
    after = rig.write(100)
    assert split(large.lsn) == (2, 0)
    assert split(after.lsn)[0] in (2, 3)
    assert next(seq for _, seq in rig.frames(2)) == 2


def test_a_finished_file_is_closed(rig: ShardRig) -> None:
    for _ in range(4):
        rig.write(100_000)
    closed = [path for op, path in rig.calls("close") if path.startswith("wal-")]
    assert closed == [name(n).removeprefix("/wal/") for n in (1, 2, 3)]


def test_frames_written_before_a_rotation_survive_a_power_cut(rig: ShardRig) -> None:
    rig.write(100_000)
    rig.write(100_000)
    found = rig.disk.power_cut(Loss.DROP)
    assert found.file_size(name(1)) == 100_000
    assert ShardRig(found).frames(1) == [(FrameType.APPEND, 1)]


def test_closing_syncs_cuts_and_gives_the_prepared_file_back(rig: ShardRig) -> None:
    rig.write(100)
    rig.log.close()
    assert rig.disk.listdir("/wal") == ["CURRENT", "reserve", name(1).removeprefix("/wal/")]
    assert rig.disk.power_cut(Loss.DROP).file_size(name(1)) == 100


# -- SyncPoints ------------------------------------------------------------------------------------------------------


def test_a_point_opens_the_next_group_after_enough_synced_bytes() -> None:
    rig = ShardRig(sync_point_bytes=1000).open()
    for _ in range(3):
        rig.write(499, sync=True)
    assert rig.sync_points(1) == []
    following = rig.write(100)
    points = rig.sync_points(1)
    assert [(each.file, each.at, each.offset) for each in points] == [(1, 1497, 1497)]
    assert split(following.lsn)[1] > 1497


def test_a_point_opens_the_next_group_after_enough_time() -> None:
    rig = ShardRig(sync_point_ms=1000).open()
    rig.write(100, sync=True)
    rig.clock.tick(999)
    rig.write(100, sync=True)
    assert rig.sync_points(1) == []
    rig.clock.tick(1)
    rig.write(100)
    assert [(each.at, each.offset) for each in rig.sync_points(1)] == [(200, 200)]


def test_a_point_covers_no_more_than_was_synced() -> None:
    rig = ShardRig(sync_point_bytes=100).open()
    rig.write(150, sync=True)
    rig.write(60)
    rig.write(70)
    first = rig.sync_points(1)
    assert [(each.at, each.offset) for each in first] == [(150, 150)]
    rig.log.sync()
    end = split(rig.log.end_lsn)[1]
    rig.write(80)
    assert [(each.at, each.offset) for each in rig.sync_points(1)[1:]] == [(end, end)]


def test_no_sync_point_is_written_without_a_sync() -> None:
    rig = ShardRig(sync_point_bytes=10, sync_point_ms=1).open()
    for _ in range(5):
        rig.clock.tick(5000)
        rig.write(100)
    assert rig.sync_points(1) == []


def test_a_sync_point_is_not_repeated_without_a_new_sync() -> None:
    rig = ShardRig(sync_point_bytes=100).open()
    rig.write(150, sync=True)
    rig.write(60)
    for _ in range(5):
        rig.clock.tick(5000)
        rig.write(60)
    assert len(rig.sync_points(1)) == 1


def test_sync_points_begin_again_in_the_next_file() -> None:
    rig = ShardRig(sync_point_bytes=100).open()
    rig.write(100_000, sync=True)
    rig.write(100_000, sync=True)
    rig.write(100)
    assert rig.sync_points(1) == []
    assert [(each.file, each.at, each.offset) for each in rig.sync_points(2)] == [(2, 100_000, 100_000)]


def test_a_point_never_pushes_a_group_over_the_end_of_the_file() -> None:
    rig = ShardRig(sync_point_bytes=1).open()
    for _ in range(40):
        each = rig.write(9_973, sync=True)
        assert split(each.lsn)[1] + 9_973 <= FILE
    assert rig.log.failed is None
    assert rig.log.stats.sync_points > 20


def test_points_count_as_frames_written() -> None:
    rig = ShardRig(sync_point_bytes=100).open()
    rig.write(150, sync=True)
    rig.write(150, sync=True)
    assert (rig.log.stats.frames, rig.log.stats.sync_points, rig.log.stats.fsyncs) == (3, 1, 2)
    assert rig.log.stats.bytes == split(rig.log.end_lsn)[1]
