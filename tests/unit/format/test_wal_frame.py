"""storage.format.wal_frame against itself and against the independent decoder."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.format import wal_frame
from storage.format.wal_frame import FrameError, FrameType
from tests.golden.make_golden import FRAMES
from tests.support import wal_frames
from tests.support.spec_frames import decode_frame
from tests.unit.format.mutations import one_byte_changes, truncations

u64 = st.integers(0, (1 << 64) - 1)
some_bytes = st.binary(max_size=40)
frames = st.fixed_dictionaries(
    {
        "type": st.integers(0, 255),
        "flags": st.integers(0, 63).map(lambda bits: bits << 2),
        "topic_id": u64,
        "seq": u64,
        "ts": u64,
        "node": some_bytes,
        "tag": some_bytes,
        "data": st.binary(max_size=200),
    }
)


@given(frames)
def test_frames_round_trip(values: dict[str, object]) -> None:
    encoded = wal_frame.encode(**values)  # type: ignore[arg-type]
    frame = wal_frames.decode(encoded)
    expected_flags = values["flags"] | bool(values["tag"]) | bool(values["node"]) << 1  # type: ignore[operator]
    assert frame._asdict() == {**values, "flags": expected_flags, "size": len(encoded)}


@given(frames, st.binary(max_size=60), st.binary(max_size=60))
def test_a_frame_is_decoded_at_any_offset(values: dict[str, object], before: bytes, behind: bytes) -> None:
    encoded = wal_frame.encode(**values)  # type: ignore[arg-type]
    frame = wal_frames.decode(before + encoded + behind, len(before))
    assert frame == wal_frames.decode(encoded)


texts = st.text(max_size=10).map(str.encode)


@given(st.integers(1, 1 << 63), st.integers(1, 1 << 63), u64, texts, texts, st.sampled_from([0, 4, 8, 12, 0x60]))
def test_the_independent_decoder_reads_the_same(
    topic_id: int, seq: int, ts: int, node: bytes, tag: bytes, flags: int
) -> None:
    data = b'{"data":{"k": [1.0, null]},"meta":"m"}'
    frame = decode_frame(wal_frame.encode(FrameType.APPEND, flags, topic_id, seq, ts, node, tag, data), 0)
    assert (frame.topic_id, frame.seq, frame.ts) == (topic_id, seq, ts)
    assert (frame.node, frame.tag, frame.data) == (node, tag, data)
    assert frame.flags & ~3 == flags


@pytest.mark.parametrize("name", sorted(FRAMES))
def test_every_changed_byte_is_detected(name: str) -> None:
    original = FRAMES[name].encoded()
    for offset, changed in one_byte_changes(original):
        try:
            frame = wal_frames.decode(changed)
        except FrameError:
            continue
        pytest.fail(f"changing byte {offset} gave a valid frame: {frame}")


@given(frames, st.data())
def test_a_changed_byte_in_any_frame_is_noticed(values: dict[str, object], data: st.DataObject) -> None:
    changed = bytearray(wal_frame.encode(**values))  # type: ignore[arg-type]
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(FrameError):
        wal_frames.decode(bytes(changed))


@pytest.mark.parametrize("name", ["append-bare", "append-node-tag-meta", "batch-with-key"])
def test_every_truncation_is_refused(name: str) -> None:
    for cut in truncations(FRAMES[name].encoded()):
        with pytest.raises(FrameError):
            wal_frames.decode(cut)


def test_moving_a_boundary_between_node_and_tag_is_noticed() -> None:
    encoded = bytearray(wal_frame.encode(FrameType.APPEND, 0, 1, 1, 1, b"ab", b"cd", b"{}"))
    struct.pack_into("<HH", encoded, 30, 1, 3)  # the sum, and so frame_len, stays right
    with pytest.raises(FrameError):
        wal_frames.decode(bytes(encoded))


@pytest.mark.parametrize("size", [0, 3, 46, 4096])
def test_zeros_are_no_frame(size: int) -> None:
    with pytest.raises(FrameError):
        wal_frames.decode(bytes(size))


def test_an_offset_at_or_past_the_end_is_no_frame() -> None:
    encoded = FRAMES["append-bare"].encoded()
    for offset in (len(encoded), len(encoded) + 1):
        with pytest.raises(FrameError):
            wal_frames.decode(encoded, offset)


def test_an_overlong_length_is_refused_without_an_allocation() -> None:
    data_len = (1 << 32) - 100
    header = struct.pack("<IBBQQQHHI", 42 + data_len, 1, 0, 1, 1, 1, 0, 0, data_len) + bytes(64)
    tracemalloc.start()
    try:
        with pytest.raises(FrameError):
            wal_frames.decode(header)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_the_flags_for_node_and_tag_follow_the_arguments() -> None:
    def flags(node: bytes, tag: bytes) -> int:
        return wal_frames.decode(wal_frame.encode(FrameType.APPEND, 0, 1, 1, 1, node, tag)).flags

    assert [flags(b"", b""), flags(b"", b"t"), flags(b"n", b""), flags(b"n", b"t")] == [0, 1, 2, 3]


def test_type_numbers_are_pinned_and_begin_with_1() -> None:
    assert [int(type_) for type_ in FrameType] == list(range(1, 19))
