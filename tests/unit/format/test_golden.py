"""The bytes of format version 1, as they lie in data directories: read by this program, and written the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.format import control, snapshot_header, wal_frame
from tests.golden.make_golden import FOLDER, FRAMES, SNAPSHOT_BODY, files
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
    frame = wal_frame.decode(_golden(name))
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
def test_a_golden_frame_is_as_the_specification_says(name: str) -> None:
    point = FRAMES[name].control
    at = point.at if isinstance(point, control.SyncPoint) else 0  # a SyncPoint tells where it lies
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


def test_no_golden_file_is_without_its_values() -> None:
    assert {path.name for path in Path(FOLDER).iterdir() if path.is_file()} == set(files())
