"""What a process fetches of a base, in pieces, and what a start that fails leaves for the next."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from storage.bucket import Candidate, limits, sign
from storage.cells.local import AT_ONCE, CACHE
from storage.cells.owner import CellOwner, State, begin
from tests.support.memory_bucket import MemoryBucket
from tests.unit.storage.bucket.test_owner import FSYNC, SMALL, contents, record, taken, until

CELL = "cell-00"
PIECE = 512
#: Their segments have several pieces.
TEXTS = [f"{number:03d}" + "x" * 200 for number in range(70)]


class Store(MemoryBucket):
    """Notes the pieces of segments that were read, and may not have some of them."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[tuple[str, int, int]] = []
        self.whole: list[str] = []
        self.missing: set[tuple[str, int]] = set()
        self.open = threading.Event()
        self.open.set()
        #: Pieces of segments that are read now, and the most at a time.
        self.reading = self.most = 0

    def get(self, key: str) -> bytes | None:
        if "/segments/" in key:
            self.whole.append(key)
        return super().get(key)

    def get_range(self, key: str, offset: int, size: int) -> bytes | None:
        if "/segments/" not in key:
            return super().get_range(key, offset, size)
        with self.lock:
            self.reading += 1
            self.most = max(self.most, self.reading)
        self.open.wait()
        with self.lock:
            self.reading -= 1
            if (key, offset) in self.missing:
                return None
            self.pieces.append((key, offset, size))
        return super().get_range(key, offset, size)

    def segments(self) -> list[str]:
        return sorted(key for key in self.objects if "/segments/" in key)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(limits, "PIECE_BYTES", PIECE)
    made = Store()
    begin(made, CELL, Candidate("init", "00" * 16))
    return made


@pytest.fixture
async def owners(store: Store) -> AsyncIterator[list[CellOwner]]:
    made: list[CellOwner] = []
    yield made
    store.open.set()
    for each in made:
        await each.close()


async def filled(store: Store, folder: Path, owners: list[CellOwner]) -> CellOwner:
    """An owner whose newest base names three full segments."""
    owner = await taken(store, folder, owners)
    await owner.engine.put_topic("events", FSYNC)
    size = SMALL.segment_max_events
    for batch in (TEXTS[at : at + size] for at in range(0, len(TEXTS), size)):
        await owner.engine.append("events", [record(each) for each in batch])
    await owner.engine.segment_worker.flush_all()
    await owner.put_base()
    assert len(store.segments()) >= 3
    return owner


async def test_segments_are_fetched_in_pieces(store: Store, tmp_path: Path, owners: list[CellOwner]) -> None:
    await (await filled(store, tmp_path, owners)).abandon()
    second = await taken(store, tmp_path, owners)
    assert await contents(second) == TEXTS
    assert store.whole == []
    assert {key for key, _, _ in store.pieces} == {*store.segments()}
    assert max(size for _, _, size in store.pieces) == PIECE
    assert len(store.pieces) == len({*store.pieces}) > len(store.segments())
    assert store.most <= AT_ONCE


async def failed_start(store: Store, tmp_path: Path, owners: list[CellOwner]) -> str:
    """A start on machine "a" fetches two pieces of a segment, and finds no third one. The key of the segment."""
    await (await filled(store, tmp_path, owners)).abandon()
    lost = store.segments()[1]
    store.missing = {(lost, 2 * PIECE)}
    with pytest.raises(OSError, match=r"is missing or damaged"):
        await taken(store, tmp_path, owners, "a")
    return lost


async def test_a_start_goes_on_with_what_one_that_failed_has_fetched(
    store: Store, tmp_path: Path, owners: list[CellOwner]
) -> None:
    lost = await failed_start(store, tmp_path, owners)
    fetched = {*store.pieces}
    assert {offset for key, offset, _ in fetched if key == lost} == {0, PIECE}
    store.missing = set()
    store.pieces.clear()
    again = await taken(store, tmp_path, owners, "a")
    assert (lost, 2 * PIECE, PIECE) in store.pieces
    assert not fetched & {*store.pieces}
    assert await contents(again) == TEXTS
    assert not (tmp_path / "a" / CACHE).exists()


async def test_what_was_fetched_and_is_damaged_is_fetched_again(
    store: Store, tmp_path: Path, owners: list[CellOwner]
) -> None:
    await failed_start(store, tmp_path, owners)
    store.missing = set()
    cache = tmp_path / "a" / CACHE
    (cache / "of-no-base").write_bytes(b"x")
    for each in cache.iterdir():  # as after a crash of the machine
        each.write_bytes(bytes(each.stat().st_size))
    again = await taken(store, tmp_path, owners, "a")
    assert await contents(again) == TEXTS


async def test_an_object_that_is_damaged_in_the_bucket_is_not_used(
    store: Store, tmp_path: Path, owners: list[CellOwner]
) -> None:
    await (await filled(store, tmp_path, owners)).abandon()
    lost = store.segments()[1]
    sound = store.objects[lost]
    store.objects[lost] = bytes(len(sound))
    with pytest.raises(OSError, match=r"is missing or damaged"):
        await taken(store, tmp_path, owners, "a")
    store.objects[lost] = sound
    assert await contents(await taken(store, tmp_path, owners, "a")) == TEXTS


async def test_files_of_older_bases_do_not_stay_while_a_process_waits(
    store: Store, tmp_path: Path, owners: list[CellOwner]
) -> None:
    first = await filled(store, tmp_path, owners)
    waiting = CellOwner(store, CELL, str(tmp_path / "a"), Candidate("waits", "2f" * 16), options=SMALL, ttl_s=60.0)
    owners.append(waiting)
    starting = asyncio.create_task(waiting.start())
    cache = tmp_path / "a" / CACHE
    for number in range(3):
        await first.engine.append("events", [record(f"more {number}")])
        base = await first.put_base()
        files = {each.key.replace("/", "+") for each in base.manifest.objects}
        await until(lambda files=files: cache.exists() and {each.name for each in cache.iterdir()} == files)
    await waiting.close()
    await asyncio.gather(starting, return_exceptions=True)


async def test_a_new_owner_shows_signs_of_life_while_the_last_pieces_arrive(
    store: Store, tmp_path: Path, owners: list[CellOwner]
) -> None:
    first = await filled(store, tmp_path, owners)
    store.open.clear()
    nonce = "2f" * 16
    second = CellOwner(store, CELL, str(tmp_path / "a"), Candidate("second", nonce), options=SMALL, ttl_s=1.0)
    owners.append(second)
    starting = asyncio.create_task(second.start())
    await until(lambda: store.reading > 0)
    await first.abandon()
    await until(lambda: second.state is State.TAKING)
    shown: set[bytes] = set()

    def is_shown_again() -> bool:
        shown.add(store.objects[sign(nonce)])
        return len(shown) >= 3

    await until(is_shown_again)
    store.open.set()
    assert await starting
    assert await contents(second) == TEXTS
