"""Frames by columns: what the codec of single frames says, and no flipped bit goes unseen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.batches import Shape, from_frames
from pipeline.frames import FrameDamaged, decode, whole_frames
from storage.encode import BINARY
from storage.format.binary import binary_body
from storage.format.checksum import checksum
from storage.format.meta import with_meta
from storage.format.segment_frame import APPEND, DELETED, HEADER, HEADER_SIZE, LIVE

TOPIC = 7


def frame(
    seq: int, node: bytes = b"", tag: bytes = b"", data: bytes = b'{"data":1}', *, deleted: bool = False, flags: int = 0
) -> bytes:
    flags |= (1 if tag else 0) | (2 if node else 0)
    length = 42 + len(node) + len(tag) + len(data)
    head = HEADER.pack(length, flags, TOPIC, seq, 1000 + seq, len(node), len(tag), len(data))
    assert len(head) == HEADER_SIZE
    body = head + node + tag + data
    return body + checksum(APPEND + body[4:]).to_bytes(8, "little") + bytes((DELETED if deleted else LIVE,))


sizes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 40), st.booleans()), max_size=40)


@given(sizes, st.integers(0, 60))
def test_frames_of_any_sizes_are_found_as_they_were_written(wanted: list[tuple[int, int, int, bool]], cut: int) -> None:
    written = [
        frame(seq, b"n" * node, b"t" * tag, b"d" * data, deleted=deleted)
        for seq, (node, tag, data, deleted) in enumerate(wanted, 1)
    ]
    data = b"".join(written)
    half = data[: max(0, len(data) - cut)]
    whole = 0
    while whole < len(written) and sum(map(len, written[: whole + 1])) <= len(half):
        whole += 1
    frames, used, last = decode(half, TOPIC, 0, len(wanted) + 1)
    assert used == sum(map(len, written[:whole]))
    assert last == whole
    assert frames.seqs.tolist() == [seq for seq, each in enumerate(wanted[:whole], 1) if not each[3]]
    assert [half[a:b] for a, b in zip(frames.bodies, frames.ends, strict=True)] == [
        b"d" * each[2] for each in wanted[:whole] if not each[3]
    ]


def test_runs_of_one_size_are_hopped_over_at_once() -> None:
    data = frame(1, data=b"xx") + b"".join(frame(seq) for seq in range(2, 30)) + frame(30, data=b"xxx")
    starts, used = whole_frames(data)
    assert (len(starts), used) == (30, len(data))


def test_every_flipped_bit_is_noticed() -> None:
    data = frame(1, b"no", b"ta") + frame(2)
    for at in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            try:
                frames, used, _ = decode(bytes(changed), TOPIC, 0, 3)
            except FrameDamaged:
                continue
            # A longer length may reach behind the end of what is there: then that frame is not whole, nor given.
            assert used < len(data), (at, bit)
            assert all(seq in (1, 2) for seq in frames.seqs.tolist())


@pytest.mark.parametrize(
    ("data", "topic", "after", "end", "what"),
    [
        (frame(1), 8, 0, 9, "another log"),
        (frame(1), TOPIC, 1, 9, "does not belong"),
        (frame(9), TOPIC, 0, 9, "does not belong"),
        (frame(2) + frame(1), TOPIC, 0, 9, "does not belong"),
        (b"\0" * 64, TOPIC, 0, 9, "frame_len is 0"),
    ],
)
def test_what_is_not_of_this_place_is_refused(data: bytes, topic: int, after: int, end: int, what: str) -> None:
    with pytest.raises(FrameDamaged, match=what):
        decode(data, topic, after, end)


def test_of_a_dead_letter_of_raw_bytes_there_is_the_meta_too() -> None:
    bodies = [binary_body(b"\xff"), with_meta(binary_body(b"\xfe"), b'{"a":"b"}')]
    data = b"".join(frame(seq, data=body, flags=BINARY) for seq, body in enumerate(bodies, 1))
    frames, _, _ = decode(data, TOPIC, 0, 3)
    rows = from_frames(frames, "t", 0, Shape()).to_pylist()
    assert [row["value"] for row in rows] == [b"\xff", b"\xfe"]
    assert [row["meta"] for row in rows] == [None, '{"a":"b"}']
