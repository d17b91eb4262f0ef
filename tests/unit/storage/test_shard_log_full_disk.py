"""A full disk is not a failure: writes that free space go to the reserve, and service resumes when there is space."""

from __future__ import annotations

import errno

import pytest

from storage.errors import StorageFailed, StorageFull
from storage.log import split
from tests.support.sim_disk import Loss
from tests.unit.storage.shard_rig import ShardRig, name

FILE = 1 << 17
RESERVE = 1 << 13
FULL = pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])


@pytest.fixture
def rig() -> ShardRig:
    rig = ShardRig()
    rig.prepare_at_once = False
    rig.open()
    rig.write(100, sync=True)
    return rig


def fill_up(rig: ShardRig, number: int = errno.ENOSPC) -> None:
    """From now on no space can be allocated, and the active file is full."""
    rig.disk.fail("allocate", errno=number, sticky=True)
    rig.disk.fail("pwritev", name(1), errno=number)


@FULL
def test_a_write_without_space_is_refused_and_leaves_no_trace(rig: ShardRig, number: int) -> None:
    fill_up(rig, number)
    refused = rig.write(100)
    assert isinstance(refused.error, StorageFull)
    assert (rig.log.full, rig.log.failed) == (True, None)
    assert rig.disk.file_size(name(1)) == 100
    assert rig.disk.power_cut(Loss.DROP).file_size(name(1)) == 100, "cut back, and the cut is durable"


def test_a_partial_write_is_truncated(rig: ShardRig) -> None:
    fill_up(rig)
    rig.disk.clear_faults()
    rig.disk.short_writes(name(1), keep_bytes=60)
    rig.disk.fail("pwritev", name(1), errno=errno.ENOSPC, nth=2)
    rig.disk.fail("allocate", errno=errno.ENOSPC, sticky=True)
    assert isinstance(rig.write(100).error, StorageFull)
    assert rig.disk.file_size(name(1)) == 100


def test_a_full_shard_refuses_all_later_writes(rig: ShardRig) -> None:
    fill_up(rig)
    settled = rig.commit(rig.submission(), rig.submission(sync=True), rig.submission(topic_id=2))
    assert all(isinstance(each.error, StorageFull) for each in settled)
    assert isinstance(rig.write(46).error, StorageFull)
    assert rig.log.stats.storage_full >= 1


def test_space_freeing_writes_go_to_the_reserve(rig: ShardRig) -> None:
    fill_up(rig)
    refused, freeing = rig.submission(), rig.submission(60, sync=True, frees=True)
    rig.commit(refused, freeing)
    assert isinstance(refused.error, StorageFull)
    assert freeing.error is None
    assert split(freeing.lsn) == (2, 0)
    assert [seq for _, seq in rig.frames(2)] == [3]
    assert not rig.disk.exists("/wal/reserve")
    assert rig.disk.power_cut(Loss.DROP).exists(name(2))


def test_writes_of_a_refused_generation_stay_refused_after_space_is_back(rig: ShardRig) -> None:
    fill_up(rig)
    rig.write(100, generation=4)
    rig.disk.clear_faults()
    assert rig.log.resume()
    assert rig.write(100, generation=4).error is not None
    assert rig.write(100, generation=5).error is None


def test_space_freeing_writes_are_refused_when_the_reserve_is_used_up(rig: ShardRig) -> None:
    fill_up(rig)
    rig.write(100)
    outcomes = [rig.write(1000, frees=True).error for _ in range(10)]
    taken = [error for error in outcomes if error is None]
    assert len(taken) == (RESERVE - 128) // 1000
    assert all(isinstance(error, StorageFull) for error in outcomes[len(taken) :])
    assert rig.log.failed is None


def test_service_resumes_in_a_new_file_with_a_new_reserve(rig: ShardRig) -> None:
    fill_up(rig)
    rig.write(100)
    rig.write(100, frees=True)
    assert not rig.log.resume()
    rig.disk.clear_faults()
    assert rig.log.resume()
    assert not rig.log.full
    assert rig.disk.file_size("/wal/reserve") == RESERVE
    after = rig.write(100, sync=True, generation=1)
    assert (after.error, split(after.lsn)) == (None, (3, 0))
    assert rig.disk.file_size(name(2)) == 100, "the reserve was cut to what is in it"


def test_space_for_a_file_but_not_for_the_reserve_is_not_enough(rig: ShardRig) -> None:
    fill_up(rig)
    rig.write(100)
    rig.write(100, frees=True)
    rig.disk.clear_faults()
    rig.disk.fail("allocate", "/wal/reserve", errno=errno.ENOSPC)
    assert not rig.log.resume()
    assert not rig.disk.exists(name(3)), "what could not be used is given back"
    assert rig.log.resume()


def test_resume_of_a_healthy_shard_makes_no_disk_call(rig: ShardRig) -> None:
    before = len(rig.disk.calls)
    assert rig.log.resume()
    assert len(rig.disk.calls) == before


def test_a_failed_truncation_stops_the_shard(rig: ShardRig) -> None:
    fill_up(rig)
    rig.disk.fail("truncate", name(1), errno=errno.EIO)
    refused = rig.write(100)
    assert isinstance(refused.error, StorageFailed)
    assert rig.log.failed is not None
    assert isinstance(rig.write(100, frees=True).error, StorageFailed)


def test_a_failure_in_the_reserve_stops_the_shard(rig: ShardRig) -> None:
    fill_up(rig)
    rig.write(100)
    rig.disk.fail("pwritev", "/wal/reserve", errno=errno.EIO)
    assert isinstance(rig.write(100, frees=True).error, StorageFailed)
    assert rig.log.failed is not None


def test_a_full_disk_at_rotation_is_noticed(rig: ShardRig) -> None:
    rig.disk.fail("allocate", errno=errno.ENOSPC, sticky=True)
    assert isinstance(rig.write(FILE).error, StorageFull)
    assert rig.disk.file_size(name(1)) == 100
    assert rig.write(60, frees=True, sync=True).error is None


def test_a_start_without_space_refuses_all_writes() -> None:
    rig = ShardRig()
    rig.disk.fail("allocate", errno=errno.ENOSPC, sticky=True)
    rig.open()
    assert (rig.log.full, rig.log.failed) == (True, None)
    assert isinstance(rig.write(100).error, StorageFull)
    assert isinstance(rig.write(100, frees=True).error, StorageFull)
    rig.disk.clear_faults()
    assert rig.log.resume()
    assert rig.write(100, generation=1).error is None


def test_a_start_with_only_the_reserve_accepts_space_freeing_writes() -> None:
    first = ShardRig().open()
    first.write(100, sync=True)
    first.log.close()
    rig = ShardRig(first.disk)
    rig.disk.fail("allocate", errno=errno.ENOSPC, sticky=True)
    rig.open(2)
    assert rig.log.full
    assert isinstance(rig.write(100).error, StorageFull)
    freeing = rig.write(100, frees=True, sync=True)
    assert (freeing.error, split(freeing.lsn)) == (None, (2, 0))


def test_a_start_without_space_for_the_reserve_is_full_until_resumed() -> None:
    rig = ShardRig()
    rig.prepare_at_once = False
    rig.disk.fail("allocate", "/wal/reserve", errno=errno.ENOSPC, times=2)
    rig.open()
    assert rig.log.full
    assert isinstance(rig.write(100).error, StorageFull)
    assert rig.write(100, frees=True).error is None
    assert rig.log.resume()
    assert split(rig.write(100, generation=1).lsn)[0] == 1


def test_the_old_file_is_closed_when_the_reserve_takes_over(rig: ShardRig) -> None:
    fill_up(rig)
    rig.write(100)
    rig.write(100, frees=True)
    assert ("close", name(1).removeprefix("/wal/")) in rig.calls("close")
