"""Files of one shard are complete and durable before they count, prepared ahead, and never two have one number."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable

import pytest

from storage.log.files import UNFILLED_FROM, WalFiles
from storage.log.writer import WalStats
from tests.support.sim_disk import Loss, SimDisk

SIZE = 4096


class Rig:
    def __init__(self) -> None:
        self.disk = SimDisk()
        self.disk.mkdir("/wal")
        self.disk.sync_dir("/")
        self.jobs: list[Callable[[], None]] = []
        self.stats = WalStats()
        self.files = WalFiles(
            self.disk, "/wal", file_bytes=SIZE, reserve_bytes=512, spawn=self.jobs.append, stats=self.stats
        )

    def run_jobs(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()

    def names(self) -> list[str]:
        return self.disk.listdir("/wal")


@pytest.fixture
def rig() -> Rig:
    return Rig()


def wal(number: int) -> str:
    return f"wal-{number:016d}.log"


def test_a_taken_file_is_whole_after_a_power_cut(rig: Rig) -> None:
    prepared = rig.files.take(3, 0)
    assert (prepared.number, prepared.size) == (3, SIZE)
    found = rig.disk.power_cut(Loss.DROP)
    assert found.listdir("/wal") == [wal(3)]
    assert found.file_size(f"/wal/{wal(3)}") == SIZE


def test_a_file_for_a_larger_write_has_the_size_of_the_write(rig: Rig) -> None:
    assert rig.files.take(1, SIZE + 1).size == SIZE + 1
    assert rig.disk.file_size(f"/wal/{wal(1)}") == SIZE + 1


def test_take_returns_the_prepared_file(rig: Rig) -> None:
    rig.files.prepare_ahead(2)
    assert rig.names() == []
    rig.run_jobs()
    assert rig.names() == [wal(2)]
    made = len(rig.disk.calls)
    assert rig.files.take(2, 0).size == SIZE
    assert [call.op for call in rig.disk.calls[made:]] == [], "it was ready"


def test_a_file_prepared_too_small_is_grown(rig: Rig) -> None:
    rig.files.prepare_ahead(2)
    rig.run_jobs()
    assert rig.files.take(2, 3 * SIZE).size == 3 * SIZE
    assert rig.disk.power_cut(Loss.DROP).file_size(f"/wal/{wal(2)}") == 3 * SIZE


def made(rig: Rig) -> list[bool]:
    """For each log file that was made, whether it was filled."""
    return [len(call.args) == 1 for call in rig.disk.calls if call.op == "allocate" and call.path.endswith(".log")]


def test_files_are_filled_only_while_syncs_are_small(rig: Rig) -> None:
    rounds = [(0, 0), (UNFILLED_FROM - 1, 1), (3 * UNFILLED_FROM, 3), (5, 0), (0, 0), (UNFILLED_FROM, 2)]
    for number, (written, syncs) in enumerate(rounds, start=1):
        rig.stats.bytes += written
        rig.stats.fsyncs += syncs
        rig.files.begin(number)
        rig.files.prepare_ahead(number + 1)
        rig.run_jobs()
        rig.files.take(number + 1, 0)
    assert made(rig) == [True, True, False, False, False, True]


def test_a_file_made_on_demand_is_filled_by_the_same_rule(rig: Rig) -> None:
    rig.files.take(1, 0)
    rig.stats.bytes += UNFILLED_FROM
    rig.files.begin(2)
    rig.files.take(2, 0)
    rig.files.prepare_ahead(3)
    rig.run_jobs()
    rig.files.take(3, 2 * SIZE)
    assert made(rig) == [True, False, False, False], "the last was made, and grown"
    rig.files.make_reserve()
    reserve = [call for call in rig.disk.calls if call.op == "allocate"][-1]
    assert len(reserve.args) == 1, "the reserve is for small writes"


def test_at_most_one_file_is_prepared_ahead(rig: Rig) -> None:
    rig.files.prepare_ahead(2)
    rig.files.prepare_ahead(2)
    assert len(rig.jobs) == 1
    rig.run_jobs()
    rig.files.prepare_ahead(2)
    assert rig.jobs == []


def test_a_file_taken_before_its_preparation_is_not_prepared_again(rig: Rig) -> None:
    rig.files.prepare_ahead(2)
    taken = rig.files.take(2, 0)
    taken.file.pwritev([b"frames"], 0)
    rig.run_jobs()
    assert taken.file.pread(6, 0) == b"frames"
    assert rig.names() == [wal(2)]


@pytest.mark.parametrize("op", ["open", "allocate", "sync", "sync_dir"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_an_error_of_preparing_is_raised_when_the_file_is_taken(rig: Rig, op: str, number: int) -> None:
    rig.disk.fail(op, "/wal*", errno=number, times=2)
    rig.files.prepare_ahead(2)
    rig.run_jobs()
    with pytest.raises(OSError, match=os.strerror(number)):
        rig.files.take(2, 0)
    assert rig.files.take(2, 0).number == 2


@pytest.mark.parametrize("op", ["allocate", "sync", "sync_dir"])
def test_a_failed_creation_leaves_no_file_name(rig: Rig, op: str) -> None:
    rig.disk.fail(op, "/wal*", errno=errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        rig.files.take(1, 0)
    assert rig.names() == []


def test_the_prepared_file_can_be_removed(rig: Rig) -> None:
    rig.files.prepare_ahead(2)
    rig.run_jobs()
    rig.files.drop_ahead()
    rig.files.drop_ahead()
    assert rig.names() == []
    rig.files.prepare_ahead(2)
    rig.run_jobs()
    assert rig.names() == [wal(2)]


def test_current_names_the_file_in_use(rig: Rig) -> None:
    for number in (1, 2):
        rig.files.begin(number)
        found = rig.disk.power_cut(Loss.DROP, seed=number)
        file = found.open("/wal/CURRENT", write=False)
        assert file.pread(100, 0) == f"{wal(number)}\n".encode()
        rig.disk = found
        rig.files = WalFiles(found, "/wal", file_bytes=SIZE, reserve_bytes=512, spawn=rig.jobs.append, stats=rig.stats)


def test_take_reserve_renames_the_reserve_to_the_requested_number(rig: Rig) -> None:
    rig.files.make_reserve()
    assert rig.files.has_reserve()
    prepared = rig.files.take_reserve(5)
    assert (prepared.number, prepared.size) == (5, 512)
    assert (rig.names(), rig.files.has_reserve()) == ([wal(5)], False)
    assert rig.disk.power_cut(Loss.DROP).listdir("/wal") == [wal(5)]


def test_the_reserve_is_made_once(rig: Rig) -> None:
    rig.files.make_reserve()
    made = len(rig.disk.calls)
    rig.files.make_reserve()
    assert not {call.op for call in rig.disk.calls[made:]} & {"open", "allocate", "rename"}


def test_at_most_one_reserve_exists(rig: Rig) -> None:
    rig.files.make_reserve()
    rig.files.take_reserve(5)
    with pytest.raises(FileNotFoundError):
        rig.files.take_reserve(6)


def test_the_reserve_replaces_a_file_prepared_with_the_same_number(rig: Rig) -> None:
    rig.files.make_reserve()
    rig.files.prepare_ahead(2)
    rig.run_jobs()
    assert rig.files.take_reserve(2).size == 512
    rig.files.drop_ahead()
    assert rig.names() == [wal(2)]
    rig.files.prepare_ahead(3)
    rig.run_jobs()
    assert rig.names() == [wal(2), wal(3)]


def test_take_waits_for_a_preparation_in_progress(rig: Rig) -> None:
    rig.files.prepare_ahead(2)
    with rig.disk.hold("allocate", times=1) as gate:
        preparing = threading.Thread(target=rig.run_jobs)
        preparing.start()
        gate.wait_held()
        taken: list[int] = []
        taking = threading.Thread(target=lambda: taken.append(rig.files.take(2, 0).size))
        taking.start()
        gate.open()
        preparing.join()
        taking.join()
    assert taken == [SIZE]
    assert rig.names() == [wal(2)]
