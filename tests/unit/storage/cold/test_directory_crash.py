"""A directory as store: whatever stops it, an object is complete or as before, and a completed call stays done."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable

import pytest

from storage.errors import OpenError
from storage.segments.tiering.directory import DirectoryStore
from storage.segments.tiering.store import ColdMissing, ColdUnavailable
from tests.support.sim_disk import Loss, SimCrash, SimDisk, When

ROOT = "/mnt/cold"
FOLDER = "c/topics/00000000000000aa"
KEY = f"{FOLDER}/seg-1.data"
NEIGHBOUR = f"{FOLDER}/seg-1.idx"
OLD = b"old" * 700
NEW = bytes(range(256)) * 9
LOCAL = "/data/seg-1.data"
CUTS = [(Loss.DROP, 0), (Loss.KEEP, 0), *((loss, seed) for loss in (Loss.PREFIX, Loss.TORN) for seed in range(4))]


def prepared(before: bytes | None, neighbour: bytes | None) -> SimDisk:
    disk = SimDisk()
    disk.write_file(LOCAL, NEW)
    store = DirectoryStore(disk, ROOT)
    for key, data in ((KEY, before), (NEIGHBOUR, neighbour)):
        if data is not None:
            store.put_bytes(key, data)
    return disk


def found(store: DirectoryStore, key: str = KEY) -> bytes | None:
    """The object that a reader gets, None if it is missing. The list must agree."""
    try:
        data = store.get(key)
    except ColdMissing:
        data = None
    else:
        assert store.size(key) == len(data)
        assert store.get_range(key, 1, 5) == data[1:6]
    assert (key in store.list("")) is (data is not None)
    return data


ACTIONS: dict[str, tuple[Callable[[DirectoryStore], None], bytes | None]] = {
    "put": (lambda store: store.put(KEY, LOCAL), NEW),
    "put_bytes": (lambda store: store.put_bytes(KEY, NEW), NEW),
    "delete": (lambda store: store.delete(KEY), None),
}


def crashes(action: str, before: bytes | None, neighbour: bytes | None) -> list[SimDisk]:
    """The disk of every run that stops at some call of the action: before, during or after it."""
    act, _ = ACTIONS[action]
    run = prepared(before, neighbour)
    store = DirectoryStore(run, ROOT)
    first = len(run.calls)
    act(store)
    points = [point for point in run.crash_points() if point >= first]
    assert len(points) >= 3
    disks: list[SimDisk] = []
    for point in points:
        for when in When:
            disk = prepared(before, neighbour)
            disk.crash_at(point, when)
            try:
                act(DirectoryStore(disk, ROOT))
            except SimCrash:
                disks.append(disk)
            else:
                # A refused call (unlink of a missing file) has no moment after it.
                assert when is When.AFTER
    return disks


@pytest.mark.parametrize("neighbour", [None, b"neighbour"], ids=["alone", "with a neighbour"])
@pytest.mark.parametrize("before", [None, OLD], ids=["new", "replacing"])
@pytest.mark.parametrize("action", ["put", "put_bytes"])
def test_after_a_crash_during_a_put_the_object_is_complete_or_unchanged(
    action: str, before: bytes | None, neighbour: bytes | None
) -> None:
    act, _ = ACTIONS[action]
    for disk in crashes(action, before, neighbour):
        for loss, seed in CUTS:
            store = DirectoryStore(cut := disk.power_cut(loss, seed), ROOT)
            assert found(store) in (before, NEW)
            assert found(store, NEIGHBOUR) == neighbour
            act_again = act if cut.exists(LOCAL) else ACTIONS["put_bytes"][0]
            act_again(store)
            assert found(DirectoryStore(cut.power_cut(Loss.DROP), ROOT)) == NEW


@pytest.mark.parametrize("neighbour", [None, b"neighbour"], ids=["alone", "with a neighbour"])
def test_after_a_crash_during_a_delete_the_object_is_complete_or_gone(neighbour: bytes | None) -> None:
    for disk in crashes("delete", OLD, neighbour):
        for loss, seed in CUTS:
            store = DirectoryStore(cut := disk.power_cut(loss, seed), ROOT)
            assert found(store) in (OLD, None)
            assert found(store, NEIGHBOUR) == neighbour
            store.delete(KEY)
            assert found(DirectoryStore(cut.power_cut(Loss.DROP), ROOT)) is None


@pytest.mark.parametrize("before", [None, OLD], ids=["new", "replacing"])
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("then", ACTIONS)
def test_unsynced_files_of_a_killed_process_do_not_affect_later_actions(
    action: str, then: str, before: bytes | None
) -> None:
    if action == "delete" and before is None:
        before = OLD
    act, wanted = ACTIONS[then]
    for disk in crashes(action, before, None):
        next_process = disk.process_kill()
        act(DirectoryStore(next_process, ROOT))
        for loss, seed in CUTS:
            assert found(DirectoryStore(next_process.power_cut(loss, seed), ROOT)) == wanted


@pytest.mark.parametrize("action", ACTIONS)
def test_a_finished_action_survives_a_power_cut(action: str) -> None:
    act, wanted = ACTIONS[action]
    disk = prepared(OLD, None)
    act(DirectoryStore(disk, ROOT))
    assert found(DirectoryStore(disk.power_cut(Loss.DROP), ROOT)) == wanted


def test_the_root_exists_after_a_power_cut() -> None:
    disk = SimDisk()
    DirectoryStore(disk, ROOT)
    assert disk.power_cut(Loss.DROP).is_dir(ROOT)


@pytest.mark.parametrize(
    ("op", "path"),
    [
        ("open", "*.tmp"),
        ("pwritev", "*.tmp"),
        ("sync", "*.tmp"),
        ("rename", "*.tmp"),
        ("mkdir", "*/topics*"),
        ("sync_dir", "*/c*"),
    ],
)
def test_a_failed_put_is_reported_and_leaves_no_partial_object(op: str, path: str) -> None:
    disk = prepared(None, None)
    store = DirectoryStore(disk, ROOT)
    disk.fail(op, path, errno=errno.EIO)
    with pytest.raises(ColdUnavailable) as caught:
        store.put(KEY, LOCAL)
    assert (caught.value.key, caught.value.reason, caught.value.outcome) == (KEY, "Input/output error", "unknown")
    assert found(store) in (None, NEW)
    assert [name for name in disk.tree() if name.endswith(".tmp")] == []
    store.put(KEY, LOCAL)
    assert found(DirectoryStore(disk.power_cut(Loss.DROP), ROOT)) == NEW


def test_a_file_whose_sync_failed_is_not_synced_again() -> None:
    disk = prepared(None, None)
    store = DirectoryStore(disk, ROOT)
    disk.fail("sync", "*.tmp")
    disk.fail("unlink", "*.tmp", nth=2)  # the call that cleans up; the first finds nothing
    with pytest.raises(ColdUnavailable):
        store.put(KEY, LOCAL)
    store.put(KEY, LOCAL)
    assert found(DirectoryStore(disk.power_cut(Loss.DROP), ROOT)) == NEW


def test_short_writes_are_finished() -> None:
    disk = prepared(None, None)
    disk.short_writes("*.tmp", times=3, keep_bytes=100)
    store = DirectoryStore(disk, ROOT)
    store.put(KEY, LOCAL)
    assert found(store) == NEW


def test_a_full_disk_leaves_the_old_object() -> None:
    disk = prepared(OLD, None)
    disk.capacity_bytes = disk.used_bytes + 100
    store = DirectoryStore(disk, ROOT)
    with pytest.raises(ColdUnavailable, match="No space left"):
        store.put(KEY, LOCAL)
    assert found(store) == OLD


def test_a_local_file_with_a_read_error_is_not_stored() -> None:
    disk = prepared(None, None)
    store = DirectoryStore(disk, ROOT)
    disk.fail("pread", LOCAL, nth=2)
    with pytest.raises(ColdUnavailable, match="local file cannot be read"):
        store.put(KEY, LOCAL)
    assert found(store) is None


@pytest.mark.parametrize("op", ["open", "pread", "size"])
def test_a_read_error_is_not_a_missing_object(op: str) -> None:
    disk = prepared(OLD, None)
    store = DirectoryStore(disk, ROOT)
    disk.fail(op, "*.data")
    with pytest.raises(ColdUnavailable, match="Input/output error"):
        store.get(KEY)


@pytest.mark.parametrize("op", ["unlink", "sync_dir"])
def test_a_failed_delete_is_reported_and_can_be_repeated(op: str) -> None:
    disk = prepared(OLD, b"neighbour")
    store = DirectoryStore(disk, ROOT)
    disk.fail(op, f"{ROOT}/{FOLDER}" + ("/seg-1.data" if op == "unlink" else ""))
    with pytest.raises(ColdUnavailable, match="Input/output error"):
        store.delete(KEY)
    store.delete(KEY)
    assert found(DirectoryStore(disk.power_cut(Loss.DROP), ROOT)) is None


def test_an_unmounted_store_is_unavailable_and_reports_no_object_as_missing() -> None:
    disk = SimDisk()
    disk.write_file(LOCAL, NEW)
    store = DirectoryStore(disk, ROOT)
    disk.rmdir(ROOT)
    for request in (
        lambda: store.get(KEY),
        lambda: store.get_range(KEY, 0, 1),
        lambda: store.size(KEY),
        lambda: store.delete(KEY),
        lambda: store.list(""),
        lambda: store.put(KEY, LOCAL),
        lambda: store.put_bytes(KEY, NEW),
    ):
        with pytest.raises(ColdUnavailable, match="is gone"):
            request()
    assert not disk.exists(ROOT)


def test_the_last_delete_removes_the_empty_folder() -> None:
    disk = prepared(OLD, b"neighbour")
    store = DirectoryStore(disk, ROOT)
    store.delete(KEY)
    assert disk.is_dir(f"{ROOT}/{FOLDER}")
    store.delete(NEIGHBOUR)
    assert not disk.exists(f"{ROOT}/{FOLDER}")


def test_a_delete_waits_for_a_put_in_its_folder() -> None:
    disk = prepared(OLD, None)
    store = DirectoryStore(disk, ROOT)
    gate = disk.hold("open", "*.idx.tmp")
    put = threading.Thread(target=store.put_bytes, args=(NEIGHBOUR, b"neighbour"))
    put.start()
    gate.wait_held()
    delete = threading.Thread(target=store.delete, args=(KEY,))
    delete.start()
    gate.open()
    put.join()
    delete.join()
    assert found(store, NEIGHBOUR) == b"neighbour"
    assert found(store) is None


def test_strangers_in_the_directory_are_not_listed() -> None:
    disk = prepared(OLD, None)
    disk.write_file(f"{ROOT}/{FOLDER}/seg-2.data.tmp", b"unfinished")
    disk.write_file(f"{ROOT}/{FOLDER}/a name with spaces", b"1")
    disk.write_file(f"{ROOT}/lost+found/x", b"1")
    assert DirectoryStore(disk, ROOT).list("") == [KEY]


def test_a_root_that_cannot_be_created_fails_the_opening() -> None:
    disk = SimDisk()
    disk.fail("mkdir", "*cold", errno=errno.EACCES)
    with pytest.raises(OpenError, match=r"/mnt/cold cannot be made: Permission denied"):
        DirectoryStore(disk, ROOT)
