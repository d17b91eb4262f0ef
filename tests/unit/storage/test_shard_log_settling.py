"""Completion of writes: a write that needs no sync does not wait for one, and the completions of a log are in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.log.submission import Submission
from tests.unit.storage.shard_rig import ShardRig


@pytest.fixture
def rig() -> ShardRig:
    return ShardRig().open()


def syncs_before(rig: ShardRig) -> list[int]:
    """For each completed batch: how many datasyncs had been done by then."""
    return [sum(call.op == "datasync" for call in rig.disk.calls[:at]) for _, at in rig.trace]


def test_a_group_without_a_need_to_sync_makes_no_sync(rig: ShardRig) -> None:
    a, b = rig.submission(), rig.submission(topic_id=2)
    assert rig.commit(a, b) == [a, b]
    assert syncs_before(rig) == [0]


def test_a_group_shares_a_single_sync(rig: ShardRig) -> None:
    group = [rig.submission(sync=True) for _ in range(9)]
    assert rig.commit(*group) == group
    assert (syncs_before(rig), rig.log.stats.fsyncs) == ([1], 1)


def test_writes_that_need_no_sync_are_completed_before_the_sync(rig: ShardRig) -> None:
    slow, quick = rig.submission(topic_id=1, sync=True), rig.submission(topic_id=2)
    rig.commit(slow, quick)
    assert rig.settled == [[quick], [slow]]
    assert syncs_before(rig) == [0, 1]


def test_writes_behind_a_syncing_write_of_the_same_log_wait(rig: ShardRig) -> None:
    quick, slow, behind, other = (
        rig.submission(topic_id=1),
        rig.submission(topic_id=1, sync=True),
        rig.submission(topic_id=1),
        rig.submission(topic_id=2),
    )
    rig.commit(quick, slow, behind, other)
    assert rig.settled == [[quick, other], [slow, behind]]


def test_a_sync_covers_earlier_groups(rig: ShardRig) -> None:
    rig.write(100)
    assert rig.log.dirty_since_ns is not None
    rig.write(100, sync=True)
    assert rig.log.dirty_since_ns is None
    assert rig.log.stats.fsyncs == 1


def test_a_barrier_syncs_written_frames(rig: ShardRig) -> None:
    rig.write(100)
    barrier = Submission(rig.submission().unit, b"", frames=0, topic_id=0, ts=5, needs_sync=True, frees=True)
    assert rig.commit(barrier) == [barrier]
    assert barrier.error is None
    assert rig.log.stats.fsyncs == 1


def test_a_barrier_without_unsynced_frames_makes_no_sync(rig: ShardRig) -> None:
    barrier = Submission(rig.submission().unit, b"", frames=0, topic_id=0, ts=5, needs_sync=True, frees=True)
    assert rig.commit(barrier) == [barrier]
    assert rig.log.stats.fsyncs == 0


def test_the_times_of_writing_and_syncing_are_recorded(rig: ShardRig) -> None:
    slow, quick = rig.submission(topic_id=1, sync=True), rig.submission(topic_id=2)
    rig.commit(slow, quick)
    assert slow.synced_ns >= slow.written_ns > 0
    assert (quick.written_ns > 0, quick.synced_ns) == (True, 0)


ITEMS = st.lists(st.tuples(st.integers(1, 3), st.booleans(), st.integers(46, 60_000)), min_size=1, max_size=12)


@given(ITEMS)
def test_completions_of_a_log_are_in_order(items: list[tuple[int, bool, int]]) -> None:
    rig = ShardRig().open()
    group = [rig.submission(size, topic_id=topic_id, sync=sync) for topic_id, sync, size in items]
    settled = rig.commit(*group)
    assert sorted(map(id, settled)) == sorted(map(id, group)), "each exactly once"
    for topic_id in (1, 2, 3):
        assert [each for each in settled if each.topic_id == topic_id] == [
            each for each in group if each.topic_id == topic_id
        ]
    for batch, syncs in zip(rig.settled, syncs_before(rig), strict=True):
        assert syncs >= 1 or not any(each.needs_sync for each in batch)


@given(ITEMS, st.integers(0, 11), st.sampled_from(["pwritev", "datasync", "truncate", "sync"]))
def test_no_write_succeeds_after_a_failed_write(items: list[tuple[int, bool, int]], nth: int, op: str) -> None:
    rig = ShardRig().open()
    rig.disk.fail(op, "*/wal-*", nth=1 + nth % 3)
    group = [rig.submission(size, topic_id=topic_id, sync=sync) for topic_id, sync, size in items]
    settled = rig.commit(*group)
    assert sorted(map(id, settled)) == sorted(map(id, group))
    for topic_id in (1, 2, 3):
        own = [each for each in settled if each.topic_id == topic_id]
        assert own == [each for each in group if each.topic_id == topic_id]
        failed = [each.error is not None for each in own]
        assert failed == sorted(failed), "once one has failed, so have all behind it"
    if rig.log.failed is not None:
        assert all(each.error is not None for each in group if each.needs_sync) or rig.log.stats.fsyncs
