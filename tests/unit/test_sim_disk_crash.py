"""The simulated machine stops at the given call, no code runs afterwards, and the same run gives the same disk."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.sim_disk import Loss, SimCrash, SimDisk, When, quiet_crashes


def _replace_file(disk: SimDisk) -> None:
    """Every step of replacing a file safely, with some reads in between."""
    disk.listdir("/d")
    file = disk.open("/d/f.tmp", create=True)
    file.pwritev([b"new ", b"content"], 0)
    file.datasync()
    file.close()
    disk.rename("/d/f.tmp", "/d/f")
    disk.sync_dir("/d")


def _disk() -> SimDisk:
    disk = SimDisk()
    disk.write_file("/d/f", b"old")
    return disk


def _crashed(when: When, index: int) -> SimDisk:
    disk = _disk()
    disk.crash_at(index, when)
    with pytest.raises(SimCrash):
        _replace_file(disk)
    return disk


# ---- the trace


def test_every_call_is_counted_in_order() -> None:
    disk = _disk()
    _replace_file(disk)
    assert [(call.number, call.op, call.path, call.args) for call in disk.calls] == [
        (0, "listdir", "/d", ()),
        (1, "open", "/d/f.tmp", ("create", "write")),
        (2, "pwritev", "/d/f.tmp", (0, 11)),
        (3, "datasync", "/d/f.tmp", ()),
        (4, "close", "/d/f.tmp", ()),
        (5, "rename", "/d/f.tmp", ("/d/f",)),
        (6, "sync_dir", "/d", ()),
    ]


def test_crash_points_are_the_changing_calls() -> None:
    disk = _disk()
    _replace_file(disk)
    assert disk.crash_points() == [1, 2, 3, 5, 6]


def test_opening_an_existing_file_is_no_crash_point() -> None:
    disk = _disk()
    disk.open("/d/f")
    assert disk.crash_points() == []


def test_two_identical_runs_have_equal_traces_and_equal_disks_after_the_cut() -> None:
    def run(seed: int) -> tuple[object, ...]:
        disk = _disk()
        file = disk.open("/d/big", create=True)
        for index in range(20):
            file.pwritev([bytes([index]) * 700], index * 650)
        disk.mkdir("/e")
        disk.rename("/d/big", "/e/big")
        disk.crash_on("datasync")
        with pytest.raises(SimCrash):
            file.datasync()
        return disk.calls, disk.power_cut(Loss.TORN, seed).content()

    assert [run(seed) for seed in range(20)] == [run(seed) for seed in range(20)]
    assert len({repr(run(seed)) for seed in range(20)}) > 10


# ---- where it stops


def test_a_crash_before_a_call_has_no_effect_of_the_call() -> None:
    assert _crashed(When.BEFORE, 2).power_cut(Loss.KEEP).read_file("/d/f.tmp") == b""


def test_a_crash_after_a_call_has_the_whole_effect() -> None:
    assert _crashed(When.AFTER, 2).power_cut(Loss.KEEP).read_file("/d/f.tmp") == b"new content"


def test_a_crash_within_a_write_has_the_first_half() -> None:
    assert _crashed(When.HALF, 2).power_cut(Loss.KEEP).read_file("/d/f.tmp") == b"new c"


def test_a_crash_within_an_atomic_call_has_no_effect() -> None:
    assert _crashed(When.HALF, 5).power_cut(Loss.KEEP).read_file("/d/f") == b"old"


def test_a_crash_can_be_set_on_the_nth_call_of_a_kind() -> None:
    disk = _disk()
    disk.write_file("/d/g", b"")
    disk.crash_on("pwritev", "*/g", nth=2, when="after")
    other, file = disk.open("/d/f"), disk.open("/d/g")
    for part in (b"1", b"2"):
        other.pwritev([part], 0)
    file.pwritev([b"1"], 0)
    with pytest.raises(SimCrash):
        file.pwritev([b"2"], 1)
    assert disk.process_kill().read_file("/d/g") == b"12"


@pytest.mark.parametrize("when", list(When))
@pytest.mark.parametrize("loss", list(Loss))
def test_replacing_a_file_safely_leaves_the_old_or_the_new_content_at_every_crash(when: When, loss: Loss) -> None:
    rehearsal = _disk()
    _replace_file(rehearsal)
    for index in rehearsal.crash_points():
        for seed in range(5):
            found = _crashed(when, index).power_cut(loss, seed)
            assert found.read_file("/d/f") in (b"old", b"new content")


@pytest.mark.parametrize("forgotten", ["datasync", "sync_dir"])
def test_a_forgotten_sync_is_found_out(forgotten: str) -> None:
    """The simulator detects errors: without one of its syncs, the same procedure loses promised data."""
    disk = _disk()
    file = disk.open("/d/f.tmp", create=True)
    file.pwritev([b"new content"], 0)
    if forgotten != "datasync":
        file.datasync()
    disk.rename("/d/f.tmp", "/d/f")
    if forgotten != "sync_dir":
        disk.sync_dir("/d")
    found = {disk.power_cut(Loss.TORN, seed).read_file("/d/f") for seed in range(20)}
    assert found - {b"new content"}


# ---- no code runs afterwards


def test_a_crash_is_not_caught_by_handlers_of_errors() -> None:
    assert not issubclass(SimCrash, Exception)


@pytest.mark.parametrize(
    "call",
    [lambda disk: disk.listdir("/"), lambda disk: disk.mkdir("/x"), lambda disk: disk.lock("/.lock")],
    ids=["listdir", "mkdir", "lock"],
)
def test_after_the_crash_every_call_is_a_crash(call: Callable[[SimDisk], object]) -> None:
    disk = _crashed(When.BEFORE, 3)
    made = len(disk.calls)
    with pytest.raises(SimCrash):
        call(disk)
    assert len(disk.calls) == made


@pytest.mark.parametrize("restart", [SimDisk.power_cut, SimDisk.process_kill])
def test_handles_from_before_a_restart_are_dead_and_leave_the_new_disk_alone(
    restart: Callable[[SimDisk], SimDisk],
) -> None:
    disk = _disk()
    file, lock = disk.open("/d/f"), disk.lock("/d/.lock")
    found = restart(disk)
    before = found.content()
    for call in (lambda: file.pwritev([b"late"], 0), file.datasync, file.close, lock.release):
        with pytest.raises(SimCrash):
            call()
    assert found.content() == before


def test_a_stopped_disk_can_be_cut_again_in_another_way() -> None:
    disk = _disk()
    disk.open("/d/f").pwritev([b"new"], 0)
    assert disk.power_cut(Loss.KEEP).read_file("/d/f") == b"new"
    assert disk.power_cut(Loss.DROP).read_file("/d/f") == b"old"


def test_changes_after_a_restart_leave_the_stopped_disk_unchanged() -> None:
    disk = _disk()
    found = disk.power_cut(Loss.KEEP)
    file = found.open("/d/f")
    file.pwritev([b"changed"], 0)
    file.sync()
    found.unlink("/d/f")
    found.sync_dir("/d")
    assert disk.power_cut(Loss.KEEP).content() == {"/d/f": b"old"}


def test_a_restarted_disk_keeps_only_its_capacity() -> None:
    disk = SimDisk(capacity_bytes=100)
    disk.crash_at(1)
    disk.fail("mkdir", sticky=True)
    found = disk.power_cut()
    found.mkdir("/a")
    found.mkdir("/b")
    assert (found.capacity_bytes, len(found.calls)) == (100, 2)


def test_the_crash_is_announced_once() -> None:
    disk = _disk()
    told: list[str] = []
    disk.on_crash(lambda: told.append("stopped"))
    disk.crash_at(0)
    for _ in range(2):
        with pytest.raises(SimCrash):
            disk.listdir("/d")
    disk.power_cut()
    assert (disk.crashed, told) == (True, ["stopped"])


def test_threads_end_quietly_at_a_crash_and_write_no_more() -> None:
    disk = SimDisk()
    disk.write_file("/f", b"")
    disk.crash_on("pwritev", nth=50)

    def write_for_ever(position: int) -> None:
        file = disk.open("/f")
        while True:
            file.pwritev([b"x"], position)

    with quiet_crashes():
        threads = [threading.Thread(target=write_for_ever, args=(position,)) for position in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads)
    assert [call.op for call in disk.calls].count("pwritev") == 50


# ---- a gate


def test_a_held_call_takes_effect_only_when_the_gate_opens() -> None:
    disk = SimDisk()
    disk.write_file("/f", b"")
    file = disk.open("/f")
    file.pwritev([b"x"], 0)
    with disk.hold("datasync", "/f") as gate:
        thread = threading.Thread(target=file.datasync)
        thread.start()
        gate.wait_held()
        assert disk.calls[-1].op == "pwritev"
        assert disk.read_file("/f") == b"x"
        assert gate.held == 1
    thread.join(timeout=30)
    assert disk.calls[-1].op == "datasync"
    assert disk.power_cut(Loss.DROP).read_file("/f") == b"x"


def test_a_held_call_crashes_when_the_machine_stops() -> None:
    disk = SimDisk()
    disk.write_file("/f", b"")
    file = disk.open("/f")
    gate = disk.hold("datasync")
    with quiet_crashes():
        thread = threading.Thread(target=file.datasync)
        thread.start()
        gate.wait_held()
        disk.power_cut()
        thread.join(timeout=30)
    assert not thread.is_alive()


def test_a_gate_without_a_call_times_out() -> None:
    with SimDisk().hold("datasync") as gate, pytest.raises(TimeoutError):
        gate.wait_held(timeout_s=0.001)


# ---- planting and damaging


def test_a_planted_file_is_durable_with_its_directories_and_not_counted() -> None:
    disk = SimDisk()
    disk.write_file("/a/b/f", b"planted")
    disk.write_file("/a/b/f", b"again")
    assert disk.calls == []
    assert disk.power_cut(Loss.DROP).tree() == {"/a/": 0, "/a/b/": 0, "/a/b/f": 5}


def test_damage_is_durable_and_hits_only_the_bytes_named() -> None:
    disk = SimDisk()
    disk.write_file("/f", b"\x00\x01\x02\x03\x04")
    disk.flip_byte("/f", 1)
    disk.flip_byte("/f", 2, mask=0x01)
    disk.zero("/f", 4, 100)
    assert disk.read_file("/f") == b"\x00\xfe\x03\x03\x00"
    assert disk.power_cut(Loss.DROP).read_file("/f") == b"\x00\xfe\x03\x03\x00"


def test_damaging_a_byte_beyond_the_end_is_an_error() -> None:
    disk = SimDisk()
    disk.write_file("/f", b"ab")
    with pytest.raises(IndexError):
        disk.flip_byte("/f", 2)


def test_a_preallocated_byte_can_be_damaged() -> None:
    disk = SimDisk()
    disk.open("/f", create=True).allocate(4096)
    disk.flip_byte("/f", 4000, mask=0x80)
    assert disk.read_file("/f") == bytes(4000) + b"\x80" + bytes(95)


def test_files_can_be_cut_and_removed_durably() -> None:
    disk = SimDisk()
    disk.write_file("/f", b"abcdef")
    disk.write_file("/g", b"x")
    disk.cut_file("/f", 3)
    disk.remove_file("/g")
    assert disk.power_cut(Loss.DROP).content() == {"/f": b"abc"}


def test_the_disk_can_be_written_out_to_a_real_directory(tmp_path: Path) -> None:
    disk = SimDisk()
    disk.write_file("/data/wal/log", b"frames")
    disk.write_file("/other", b"")
    disk.open("/data/reserve", create=True).allocate(10_000)
    disk.mkdir("/data/empty")
    disk.dump_to(tmp_path, "/data")
    assert sorted(os.listdir(tmp_path)) == ["empty", "reserve", "wal"]
    assert (tmp_path / "wal" / "log").read_bytes() == b"frames"
    assert (tmp_path / "reserve").read_bytes() == bytes(10_000)


def test_a_relative_path_is_a_mistake_of_the_test_or_the_code() -> None:
    with pytest.raises(ValueError, match="absolute"):
        SimDisk().exists("data")
