"""Three readers of one damaged directory agree: the engine's start, `verify`, and the independent decoder.

Each was written separately from the same specification. If one accepts what another refuses, one of them is wrong.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from storage import Engine, Options
from storage.errors import DataError
from storage.format import control
from storage.inspect.directory import DataDirectory
from storage.inspect.verify import verify
from storage.platform.posix import PosixFileSystem
from tests.support.spec_decoder import SpecViolation, read_data_dir
from tests.unit.format.hand_written import append, batch, controlled, create, data_dir, sync_point, wal_file

SMALL = Options(wal_file_bytes=1 << 16, wal_reserve_bytes=1 << 12)


def _files() -> list[bytes]:
    """Three files with everything in them: batches, a deletion, SyncPoints, synced and unsynced records."""
    first = create() + append(1) + append(2) + batch(append(3), append(4), append(5), first_seq=3)
    first += sync_point(len(first)) + append(6) + append(7)
    second = append(8) + controlled(control.Delete(bound_head=8, before_seq=3)) + append(9)
    second += sync_point(len(second), file=2)
    third = append(10) + batch(append(11), append(12), first_seq=11)
    third += sync_point(len(third), file=3) + append(13)
    synced = len(third)
    third += append(14) + batch(append(15), append(16), first_seq=15)
    third += sync_point(len(third), file=3, offset=synced) + append(17)
    return [first, second, third + bytes(300)]


FILES = _files()


def _flip(content: bytes, at: int, amount: int) -> bytes:
    return content[:at] + bytes([content[at] ^ (amount % 255 + 1)]) + content[at + 1 :]


def _zero(content: bytes, at: int, amount: int) -> bytes:
    size = min(amount, len(content) - at)
    return content[:at] + bytes(size) + content[at + size :]


def _cut(content: bytes, at: int, amount: int) -> bytes:
    return content[:at]


def _junk(content: bytes, at: int, amount: int) -> bytes:
    return content + bytes((at + step * 37) % 256 for step in range(amount))


def _repeat(content: bytes, at: int, amount: int) -> bytes:
    """Stale bytes: a piece from elsewhere in the file is repeated here."""
    return content[:at] + content[at // 2 : at // 2 + amount] + content[at + amount :]


damages = st.sampled_from([_flip, _zero, _cut, _junk, _repeat])
places = st.integers(0, 1 << 16)


def verdicts(root: Path) -> dict[str, bool]:
    """Whether each reader refuses the directory. The engine comes last: it repairs directories that it accepts."""
    found = {"verify": verify(DataDirectory(PosixFileSystem(), str(root)), lambda _: None).wrong}
    try:
        read_data_dir(root)
        found["decoder"] = False
    except SpecViolation:
        found["decoder"] = True
    found["engine"] = asyncio.run(_engine_refuses(root))
    return found


async def _engine_refuses(root: Path) -> bool:
    engine = Engine(root, SMALL)
    try:
        await engine.start()
    except DataError:
        return True
    await engine.close()
    return False


@given(st.integers(0, 2), damages, places, st.integers(1, 300))
@example(file=0, damage=_flip, place=0, amount=1)
@example(file=2, damage=_cut, place=0, amount=1)
def test_three_readers_agree_on_a_single_damage(
    file: int, damage: Callable[[bytes, int, int], bytes], place: int, amount: int
) -> None:
    files = list(FILES)
    files[file] = damage(files[file], place % len(files[file]), amount)
    with tempfile.TemporaryDirectory() as folder:
        found = verdicts(data_dir(Path(folder) / "data", *files))
    assert len(set(found.values())) == 1, found


@given(st.lists(st.tuples(st.integers(0, 2), damages, places, st.integers(1, 300)), min_size=2, max_size=3))
def test_three_readers_agree_on_several_damages(
    several: list[tuple[int, Callable[[bytes, int, int], bytes], int, int]],
) -> None:
    files = list(FILES)
    for file, damage, place, amount in several:
        if files[file]:
            files[file] = damage(files[file], place % len(files[file]), amount)
    with tempfile.TemporaryDirectory() as folder:
        found = verdicts(data_dir(Path(folder) / "data", *files))
    assert len(set(found.values())) == 1, found


@given(st.sets(st.integers(1, 3), min_size=1))
def test_three_readers_agree_on_missing_files(missing: set[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = data_dir(Path(folder) / "data", *FILES)
        for number in missing:
            wal_file(root, number).unlink()
        found = verdicts(root)
    assert len(set(found.values())) == 1, found


def test_three_readers_agree_on_an_undamaged_directory(tmp_path: Path) -> None:
    assert set(verdicts(data_dir(tmp_path / "data", *FILES)).values()) == {False}
