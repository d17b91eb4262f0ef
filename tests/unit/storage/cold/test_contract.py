"""What every cold store does, whatever its kind."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from storage.segments.tiering.object_store import PART_BYTES
from storage.segments.tiering.store import MAX_KEY_CHARS, ColdMissing, ColdStore, ColdUnavailable, check_key
from tests.unit.storage.cold.conftest import Rig

TOPIC = "0123456789abcdef0123456789abcdef/topics/00000000000000aa"
KEY = f"{TOPIC}/seg-00000000000000000001.data"
OTHER = f"{TOPIC}/seg-00000000000000000001.idx"
LARGE = bytes(range(256)) * ((PART_BYTES * 2 + 4096) // 256)


@pytest.mark.parametrize("data", [b"", b"x", bytes(70_000), LARGE], ids=len)
def test_a_stored_file_is_read_back_whole(rig: Rig, data: bytes) -> None:
    rig.store.put(KEY, rig.local(data))
    assert rig.store.get(KEY) == data
    assert rig.store.size(KEY) == len(data)


@pytest.mark.parametrize("data", [b"", b"{}", LARGE], ids=len)
def test_stored_bytes_are_read_back_whole(rig: Rig, data: bytes) -> None:
    rig.store.put_bytes(KEY, data)
    assert rig.store.get(KEY) == data
    assert type(rig.store.get(KEY)) is bytes


def test_a_second_put_replaces_the_object(rig: Rig) -> None:
    rig.store.put_bytes(KEY, b"a longer one")
    rig.store.put_bytes(KEY, b"short")
    assert (rig.store.get(KEY), rig.store.size(KEY)) == (b"short", 5)


@pytest.mark.parametrize(
    ("offset", "size", "found"),
    [
        (0, 10, b"0123456789"),
        (3, 4, b"3456"),
        (8, 2, b"89"),
        (8, 100, b"89"),
        (9, 1, b"9"),
        (10, 1, b""),
        (500, 7, b""),
        (4, 0, b""),
    ],
)
def test_a_range_ends_at_the_end_of_the_object(rig: Rig, offset: int, size: int, found: bytes) -> None:
    rig.store.put_bytes(KEY, b"0123456789")
    assert rig.store.get_range(KEY, offset, size) == found
    assert type(rig.store.get_range(KEY, offset, size)) is bytes


def test_a_range_of_an_empty_object_is_empty(rig: Rig) -> None:
    rig.store.put_bytes(KEY, b"")
    assert rig.store.get_range(KEY, 0, 5) == b""


@pytest.mark.parametrize(("offset", "size"), [(-1, 5), (0, -1)])
def test_an_invalid_range_is_refused(rig: Rig, offset: int, size: int) -> None:
    with pytest.raises(ValueError, match="range"):
        rig.store.get_range(KEY, offset, size)


@pytest.mark.parametrize("key", [KEY, f"{TOPIC}x/topic.json", TOPIC], ids=["file", "folder", "a folder itself"])
def test_an_absent_object_is_reported_as_missing(rig: Rig, key: str) -> None:
    rig.store.put_bytes(OTHER, b"another")
    for request in (rig.store.get, rig.store.size, lambda key: rig.store.get_range(key, 0, 1)):
        with pytest.raises(ColdMissing) as caught:
            request(key)
        assert caught.value.key == key
        assert caught.value.outcome == "none"


def test_deleting_an_object_keeps_its_neighbour(rig: Rig) -> None:
    rig.store.put_bytes(KEY, b"1")
    rig.store.put_bytes(OTHER, b"2")
    rig.store.delete(KEY)
    with pytest.raises(ColdMissing):
        rig.store.get(KEY)
    assert rig.store.list("") == [OTHER]


def test_deleting_an_absent_object_succeeds(rig: Rig) -> None:
    rig.store.delete(KEY)
    rig.store.put_bytes(KEY, b"1")
    rig.store.delete(KEY)
    rig.store.delete(KEY)
    rig.store.put_bytes(KEY, b"again")
    assert rig.store.get(KEY) == b"again"


def test_a_list_has_exactly_the_keys_below_its_folder(rig: Rig) -> None:
    keys = ["a/topics/01/x.data", "a/topics/01/x.idx", "a/topics/010/y", "a/topics/02/z", "b/topics/01/x.data"]
    for key in reversed(keys):
        rig.store.put_bytes(key, b"1")
    assert rig.store.list("") == sorted(keys)
    assert rig.store.list("a") == sorted(keys[:4])
    assert rig.store.list("a/topics/01") == keys[:2]
    assert rig.store.list("a/topics/0") == []
    assert rig.store.list("c") == []


def test_a_list_goes_over_many_pages(rig: Rig) -> None:
    keys = [f"a/topics/{number:016x}/topic.json" for number in range(1100)]
    for key in keys:
        rig.store.put_bytes(key, b"")
    assert rig.store.list("a") == keys


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/a",
        "a/",
        "a//b",
        "..",
        "../a",
        "a/../b",
        "a/..",
        "./a",
        "a/./b",
        "a b",
        "a\\b",
        "a\n",
        "a\0",
        "ä",
        "a?b",
        "a/b.tmp",
        "a" * (MAX_KEY_CHARS + 1),
    ],
)
def test_an_invalid_key_is_refused_before_any_request(rig: Rig, key: str) -> None:
    local = rig.local(b"1")
    for request in (
        lambda: rig.store.put(key, local),
        lambda: rig.store.put_bytes(key, b"1"),
        lambda: rig.store.get(key),
        lambda: rig.store.get_range(key, 0, 0),
        lambda: rig.store.size(key),
        lambda: rig.store.delete(key),
        *([lambda: rig.store.list(key)] if key else []),
    ):
        with pytest.raises(ValueError, match="is not a key"):
            request()
    assert rig.store.list("") == []


@pytest.mark.parametrize("key", [KEY, "a", "a/.hidden", "a/...", "a" * MAX_KEY_CHARS])
def test_listed_keys_can_be_read(key: str) -> None:
    assert check_key(key) == key


def test_an_absent_local_file_is_named_as_the_cause(rig: Rig) -> None:
    with pytest.raises(ColdUnavailable, match="local file cannot be read"):
        rig.store.put(KEY, f"{rig.folder}/none")
    assert rig.store.list("") == []


def test_puts_of_many_threads_do_not_interfere(rig: Rig) -> None:
    keys = [f"a/topics/{number % 4:016x}/seg-{number}" for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: rig.store.put_bytes(key, key.encode()), keys))
        assert list(pool.map(rig.store.get, keys)) == [key.encode() for key in keys]
        list(pool.map(rig.store.delete, keys))
    assert rig.store.list("") == []


def test_concurrent_puts_of_a_key_leave_one_complete_object(rig: Rig) -> None:
    bodies = [bytes([number]) * 50_000 for number in range(6)]
    start = threading.Barrier(len(bodies))

    def put(body: bytes) -> None:
        start.wait()
        rig.store.put_bytes(KEY, body)

    with ThreadPoolExecutor(len(bodies)) as pool:
        list(pool.map(put, bodies))
    assert rig.store.get(KEY) in bodies


def test_a_store_describes_its_location(rig: Rig) -> None:
    store: ColdStore = rig.store
    assert store.describe().startswith(("/", "s3://tests/"))
