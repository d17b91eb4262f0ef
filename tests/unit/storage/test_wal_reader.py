"""One file as a stream of frames. It ends at the first invalid bytes, and says why. Lengths are not trusted."""

from __future__ import annotations

import errno
import struct

import pytest

import kernel
from storage.format import control, wal_frame
from storage.log.reader import FrameStream, find_sync_point
from tests.support.sim_disk import SimDisk, SimFile

FRAME = wal_frame.encode(1, 0, 7, 1, 9, b"node", b"tag", b"d" * 50)
SIZE = len(FRAME)


def file_of(data: bytes, disk: SimDisk | None = None) -> SimFile:
    file = (disk or SimDisk()).open("/f", create=True)
    if data:
        file.pwritev([data], 0)
    return file


def ended(data: bytes, chunk_bytes: int = 64, start: int = 0) -> tuple[int, int, str]:
    """(frames, end, reason)"""
    stream = FrameStream(file_of(data), start, chunk_bytes)
    count = sum(len(chunk.frames) for chunk in stream.chunks())
    return count, stream.end, stream.reason


@pytest.mark.parametrize("chunk_bytes", [1, 3, 45, 46, SIZE - 1, SIZE, SIZE + 1, 2 * SIZE, 4096])
def test_frames_across_chunks_are_joined(chunk_bytes: int) -> None:
    assert ended(FRAME * 5, chunk_bytes) == (5, 5 * SIZE, "")


def test_an_empty_file_ends_at_once() -> None:
    assert ended(b"") == (0, 0, "")


def test_a_stream_can_begin_in_the_middle() -> None:
    assert ended(FRAME * 3, start=SIZE) == (2, 3 * SIZE, "")


@pytest.mark.parametrize("chunk_bytes", [1, 50, 4096])
@pytest.mark.parametrize("zeros", [1, 3, 4, 45, 46, 5000])
def test_zeros_are_no_frame(chunk_bytes: int, zeros: int) -> None:
    assert ended(FRAME + bytes(zeros), chunk_bytes) == (1, SIZE, "zero")


def test_a_changed_byte_ends_the_stream_before_its_frame() -> None:
    for at in range(SIZE):
        changed = bytearray(FRAME * 3)
        changed[SIZE + at] ^= 0x10
        count, end, reason = ended(bytes(changed))
        assert (count, end) == (1, SIZE)
        assert reason in ("length", "checksum", "overrun")


@pytest.mark.parametrize("cut", [1, 20, 45, 46, SIZE - 1])
def test_a_truncated_frame_overruns_the_file(cut: int) -> None:
    count, end, reason = ended(FRAME + FRAME[:cut])
    assert (count, end, reason) == (1, SIZE, "overrun")


def test_a_huge_length_is_not_read_or_allocated() -> None:
    data_len = 0xFFFF_FF00
    header = struct.pack("<IBBQQQHHI", 42 + data_len, 1, 0, 7, 1, 9, 0, 0, data_len)
    disk = SimDisk()
    stream = FrameStream(file_of(FRAME + header + b"x" * 20, disk), 0, 4096)
    assert [len(chunk.frames) for chunk in stream.chunks()] == [1]
    assert (stream.end, stream.reason) == (SIZE, "overrun")
    assert max(int(call.args[1]) for call in disk.calls if call.op == "pread") <= 4096


def test_a_frame_larger_than_a_chunk_is_read_whole() -> None:
    large = wal_frame.encode(1, 0, 7, 2, 9, data=b"d" * 10_000)
    assert ended(FRAME + large + FRAME, 64) == (3, 2 * SIZE + len(large), "")


def test_a_disk_error_is_not_the_end_of_the_log() -> None:
    disk = SimDisk()
    file = file_of(FRAME * 3, disk)
    disk.fail("pread", errno=errno.EIO, nth=2)
    with pytest.raises(OSError, match="Input/output error"):
        list(FrameStream(file, 0, 64).chunks())


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", (0, 0, "")),
        (FRAME, (1, SIZE, "")),
        (FRAME + b"\1", (1, SIZE, "short")),
        (FRAME + FRAME[:-1], (1, SIZE, "short")),
        (FRAME + bytes(46), (1, SIZE, "zero")),
        (FRAME + b"\xff" * 46, (1, SIZE, "length")),
        (FRAME + FRAME[:-1] + b"\0", (1, SIZE, "checksum")),
    ],
)
def test_parsing_returns_the_end_and_the_reason(data: bytes, found: tuple[int, int, str]) -> None:
    frames, end, reason = kernel.scan(data)
    assert (len(frames), end, reason) == found


def test_a_scanned_frame_is_cut_into_its_parts() -> None:
    data = b"....." + FRAME
    frames, _, _ = kernel.scan(data, start=5)
    assert frames.sizes.tolist() == [SIZE]
    assert kernel.parts(data, frames) == ([b"node"], [b"tag"], [b"d" * 50])


# -- SyncPoints --------------------------------------------------------------------------------------------------


def point_at(at: int, file: int = 3) -> bytes:
    value = control.SyncPoint(file=file, at=at, offset=at)
    return wal_frame.encode(wal_frame.FrameType.SYNC_POINT, 0, 0, 0, 77, data=control.encode_control(value))


@pytest.mark.parametrize("at", [0, 1, 7, 100, 255, 256, 257, 1000])
def test_a_sync_point_behind_garbage_is_found_at_any_offset(at: int) -> None:
    data = b"\xab" * at + point_at(at) + b"\xcd" * 99
    found = find_sync_point(file_of(data), 3, 0)
    assert found == control.SyncPoint(file=3, at=at, offset=at)


def test_the_last_of_several_sync_points_counts() -> None:
    data = point_at(0)
    data += b"\xab" * 50 + point_at(len(data) + 50)
    found = find_sync_point(file_of(data), 3, 0)
    assert found is not None
    assert found.at > 0
    assert find_sync_point(file_of(data), 3, found.at + 1) is None


@pytest.mark.parametrize(
    "data",
    [
        point_at(0, file=4),
        b"x" + point_at(0),
        point_at(1),
        point_at(0)[:-1],
        point_at(0)[:-1] + b"\0",
        b"",
        bytes(5000),
    ],
)
def test_stale_misplaced_or_damaged_points_do_not_count(data: bytes) -> None:
    assert find_sync_point(file_of(data), 3, 0) is None


def test_a_frame_that_resembles_a_sync_point_does_not_count() -> None:
    data = wal_frame.encode(wal_frame.FrameType.SYNC_POINT, 0, 0, 0, 77, data=b"\xc1")
    assert find_sync_point(file_of(data), 3, 0) is None
