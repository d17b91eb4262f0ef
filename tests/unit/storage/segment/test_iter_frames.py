"""Frames of a .data file, read a piece at a time."""

from __future__ import annotations

from itertools import islice

import pytest

from storage.format import FrameType, from_wal, segment_frame, wal_frame
from storage.segments import SegmentCorrupt, check, iter_frames


class Bytes:
    """A file with these bytes."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def size(self) -> int:
        return len(self.content)

    def pread(self, size: int, offset: int) -> bytes:
        return self.content[offset : offset + size]

    def close(self) -> None:
        """Does nothing."""


def frame(seq: int, size: int) -> bytes:
    made = wal_frame.encode(FrameType.APPEND, 0, 7, seq, 1, b"n", b"t", b"x" * size)
    return from_wal(made, 0, len(made))


SIZES = [10, 900, 3000, 1, 1, 200, 5000]
FRAMES = [frame(seq, size) for seq, size in enumerate(SIZES, 1)]
DATA = b"".join(FRAMES)


@pytest.fixture(params=[46, 60, 1000, 4096, 1 << 20])
def _chunk(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(check, "_CHUNK_BYTES", request.param)


@pytest.mark.usefixtures("_chunk")
def test_frames_are_complete_with_any_piece_size() -> None:
    found = [*iter_frames("p", Bytes(DATA), 0, len(DATA))]
    assert [(each.seq, each.node, each.tag, len(each.data)) for each in found] == [
        (seq, b"n", b"t", size) for seq, size in enumerate(SIZES, 1)
    ]
    begin = len(FRAMES[0])
    inside = iter_frames("p", Bytes(DATA), begin, begin + len(FRAMES[1]) + len(FRAMES[2]))
    assert [each.seq for each in inside] == [2, 3]


@pytest.mark.usefixtures("_chunk")
@pytest.mark.parametrize("number", range(len(FRAMES)))
def test_frames_before_a_damaged_frame_are_returned_before_the_error(number: int) -> None:
    at = sum(map(len, FRAMES[:number]))
    damaged = bytearray(DATA)
    damaged[at + segment_frame.HEADER_SIZE] ^= 1
    frames = iter_frames("p", Bytes(bytes(damaged)), 0, len(DATA))
    assert [each.seq for each in islice(frames, number)] == [*range(1, number + 1)]
    with pytest.raises(SegmentCorrupt) as error:
        next(frames)
    assert (error.value.offset, error.value.what) == (at, "checksum mismatch")


@pytest.mark.usefixtures("_chunk")
@pytest.mark.parametrize("stop", [len(DATA) - 1, len(DATA) - len(FRAMES[-1]) + 20, len(DATA) + 1])
@pytest.mark.parametrize("cut", [0, 1, 30, 5000])
def test_a_truncated_frame_is_reported_at_its_offset(stop: int, cut: int) -> None:
    content = DATA[: len(DATA) - cut]
    whole, at = 0, 0
    while whole < len(FRAMES) and at + len(FRAMES[whole]) <= min(stop, len(content)):
        at += len(FRAMES[whole])
        whole += 1
    frames = iter_frames("p", Bytes(content), 0, stop)
    assert len([*islice(frames, whole)]) == whole
    with pytest.raises(SegmentCorrupt) as error:
        next(frames)
    assert error.value.offset == at
