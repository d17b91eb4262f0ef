"""storage.format.segment_frame against itself, the log's frames and the independent decoder."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernel
from storage.format import segment_frame, wal_frame
from storage.format.segment_frame import FrameError
from storage.format.wal_frame import FrameType
from tests.golden.segments import wal_frames
from tests.support.spec_segment import decode_data
from tests.support.wal_frames import decode as decode_of_log
from tests.unit.format.mutations import one_byte_changes, truncations

u64 = st.integers(0, (1 << 64) - 1)
some_bytes = st.binary(max_size=20)
records = st.tuples(
    st.integers(0, 63).map(lambda bits: bits << 2), u64, u64, u64, some_bytes, some_bytes, st.binary(max_size=90)
)


Record = tuple[int, int, int, int, bytes, bytes, bytes]


def in_log(record: Record) -> bytes:
    return wal_frame.encode(FrameType.APPEND, *record)


def is_live(data: bytes, length: int, topic_id: int, seq: int) -> bool:
    """Whether the complete frame of this very record is there, checked as in a read."""
    stop = min(length, len(data))
    frames, _, reason = kernel.scan(data, kernel.Kind.SEGMENT, stop=stop, topic_id=topic_id, first_seq=seq)
    return not reason and frames.sizes.tolist() == [length] and frames.delete_bytes == b"\0"


def in_segment(frame: bytes) -> bytes:
    return segment_frame.from_wal(frame, 0, len(frame))


@given(records, some_bytes, some_bytes)
def test_a_frame_of_the_log_is_read_the_same_in_a_segment(record: Record, before: bytes, behind: bytes) -> None:
    frame = in_log(record)
    moved = segment_frame.from_wal(before + frame + behind, len(before), len(frame))
    assert len(moved) == len(frame)
    found = segment_frame.decode(before + moved + behind, len(before))
    there = decode_of_log(frame)
    assert found == (*there[1:8], False, len(frame))
    assert segment_frame.verify(moved, 0, len(moved))


@given(records)
def test_the_independent_decoder_reads_the_same(record: Record) -> None:
    moved = in_segment(in_log(record))
    (found,) = decode_data(moved)
    assert found.offset == 0
    ours = segment_frame.decode(memoryview(moved))
    assert ours == (
        found.flags,
        found.topic_id,
        found.seq,
        found.ts,
        found.node,
        found.tag,
        found.data,
        found.deleted,
        found.size,
    )


def test_a_deleted_frame_is_marked_and_valid() -> None:
    frame = in_segment(wal_frame.encode(FrameType.APPEND, 0, 1, 1, 1))
    deleted = frame[:-1] + b"\xd5"
    assert (segment_frame.decode(frame).deleted, segment_frame.decode(deleted).deleted) == (False, True)
    assert segment_frame.verify(deleted, 0, len(deleted))


@pytest.mark.parametrize("seq", sorted(wal_frames()))
def test_every_changed_byte_is_detected(seq: int) -> None:
    original = in_segment(wal_frames()[seq])
    id, seq = segment_frame.decode(original)[1:3]
    assert is_live(original, len(original), id, seq)
    for offset, changed in one_byte_changes(original):
        assert not is_live(changed, len(changed), id, seq), f"byte {offset} was changed"
        if offset == len(original) - 1 and changed[-1] == segment_frame.DELETED:
            continue  # the one change that means something
        assert not segment_frame.verify(changed, 0, len(changed)), f"byte {offset} was changed"
        with pytest.raises(FrameError):
            segment_frame.decode(changed)


def test_every_truncation_is_refused() -> None:
    original = in_segment(wal_frames()[43])
    for cut in truncations(original):
        assert not segment_frame.verify(cut, 0, len(original))
        assert not segment_frame.verify(cut, 0, len(cut))
        for length in (len(original), len(cut)):
            assert not is_live(cut, length, *segment_frame.decode(original)[1:3])
        with pytest.raises(FrameError):
            segment_frame.decode(cut)


def test_a_valid_frame_with_another_length_than_in_the_index_is_refused() -> None:
    frame = in_segment(wal_frame.encode(FrameType.APPEND, 0, 1, 1, 1, data=b"{}" + bytes(30)))
    for length in range(len(frame)):
        assert not segment_frame.verify(frame * 2, 0, length)
        assert not is_live(frame * 2, length, 1, 1)


def test_moving_a_boundary_between_node_and_tag_is_noticed() -> None:
    changed = bytearray(in_segment(wal_frame.encode(FrameType.APPEND, 0, 1, 1, 1, b"ab", b"cd", b"{}")))
    struct.pack_into("<HH", changed, 29, 1, 3)  # the sum, and so frame_len, stays right
    with pytest.raises(FrameError, match="checksum"):
        segment_frame.decode(bytes(changed))


@pytest.mark.parametrize("size", [0, 3, 45, 46, 4096])
def test_zeros_are_no_frame(size: int) -> None:
    assert not segment_frame.verify(bytes(size), 0, size)
    with pytest.raises(FrameError):
        segment_frame.decode(bytes(size))


def test_the_error_names_the_damage() -> None:
    frame = in_segment(wal_frames()[42])
    for changed, words in (
        (frame[:45], "ends beyond"),
        (b"\xff" + frame[1:], "does not fit the lengths"),
        (frame[:-1], "ends beyond"),
        (frame[:-3] + b"??" + frame[-1:], "checksum"),
        (frame[:-1] + b"\x12", "delete byte"),
    ):
        with pytest.raises(FrameError, match=words):
            segment_frame.decode(changed)


def test_index_flags_are_derived_from_node_tag_and_deletion() -> None:
    assert [segment_frame.idx_flags(flags) for flags in (0, 1, 2, 3, 0xFC, 0xFF)] == [0, 1, 2, 3, 0, 3]
    assert segment_frame.idx_flags(0xFF, True) == 7
