"""The bytes of format version 1 in data directories: this program reads them, and writes the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from storage import Engine, NewRecord, Options, ReadQuery
from storage.format import control, snapshot_header
from storage.inspect.directory import DataDirectory
from storage.inspect.verify import verify
from storage.platform.posix import PosixFileSystem
from tests.golden.directory import RECORDS, directory_files
from tests.golden.make_golden import FOLDER, FRAMES, SNAPSHOT_BODY, directory_paths, files
from tests.support import wal_frames
from tests.support.spec_decoder import read_data_dir
from tests.support.spec_frames import decode_frame
from tests.support.spec_meta import unseal_snapshot


def _golden(name: str) -> bytes:
    return (FOLDER / f"frame-{name}.bin").read_bytes()


@pytest.mark.parametrize("name", sorted(FRAMES))
def test_a_golden_frame_is_written_the_same(name: str) -> None:
    assert FRAMES[name].encoded() == _golden(name)


@pytest.mark.parametrize("name", sorted(FRAMES))
def test_a_golden_frame_is_read(name: str) -> None:
    expected = FRAMES[name]
    frame = wal_frames.decode(_golden(name))
    assert frame[:1] + frame[2:7] == (
        expected.type,
        expected.topic_id,
        expected.seq,
        expected.ts,
        expected.node,
        expected.tag,
    )
    assert frame.flags == expected.flags | bool(expected.tag) | bool(expected.node) << 1
    if expected.control is None:
        assert frame.data == expected.data
    else:
        assert control.decode_control(frame.type, frame.data) == expected.control


@pytest.mark.parametrize("name", sorted(FRAMES))
def test_a_golden_frame_matches_the_specification(name: str) -> None:
    point = FRAMES[name].control
    at = point.at if isinstance(point, control.SyncPoint) else 0  # a SyncPoint contains its own offset
    frame = decode_frame(bytes(at) + _golden(name), at, name)
    assert frame.size == len(_golden(name))


def test_every_control_type_has_a_golden_frame() -> None:
    assert {frame.type for frame in FRAMES.values()} >= set(control.CONTROL)


def test_the_golden_snapshot_is_written_the_same() -> None:
    assert snapshot_header.seal(SNAPSHOT_BODY) == (FOLDER / "snapshot-header.bin").read_bytes()


def test_the_golden_snapshot_is_read() -> None:
    content = (FOLDER / "snapshot-header.bin").read_bytes()
    assert snapshot_header.unseal(content) == SNAPSHOT_BODY
    assert unseal_snapshot(content)["next_topic_id"] == 8


def test_every_golden_file_has_values() -> None:
    assert {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*") if path.is_file()} == set(files())


@pytest.mark.parametrize("name", sorted(directory_files()))
def test_the_golden_directory_is_written_the_same(name: str) -> None:
    assert directory_files()[name] == directory_paths()[name].read_bytes()


@pytest.fixture
def golden_directory(tmp_path: Path) -> Path:
    """A copy of the golden data directory."""
    for name, path in directory_paths().items():
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, tmp_path / "data" / name)
    return tmp_path / "data"


async def test_the_golden_directory_is_opened(golden_directory: Path) -> None:
    async with Engine.open(golden_directory, Options(wal_file_bytes=1 << 16, wal_reserve_bytes=1 << 12)) as engine:
        for topic, expected in RECORDS.items():
            result = await engine.read(topic, ReadQuery())
            assert {each.seq: (each.node, each.tag, each.body) for each in result.records} == expected
        again = await engine.append("orders", [NewRecord(data=msgspec.Raw(b"0"))], idempotency_key="order-3")
        assert (again.deduped, again.first_seq) == (True, 3)


def test_the_golden_directory_matches_the_specification(golden_directory: Path) -> None:
    decoded = read_data_dir(golden_directory)
    assert {name: set(log.records) for name, log in decoded.topics.items()} == {
        name: set(records) for name, records in RECORDS.items()
    }
    assert decoded.remarks == []


def test_verify_reports_no_problem_in_the_golden_directory(golden_directory: Path) -> None:
    assert not verify(DataDirectory(PosixFileSystem(), str(golden_directory)), lambda _: None).wrong
