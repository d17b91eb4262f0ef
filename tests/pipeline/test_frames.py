"""Frames by columns: the same result as the codec of single frames, and every flipped bit is detected."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.batches import Row, Shape, from_frames, from_rows
from pipeline.frames import FrameDamaged, decode
from pipeline.values import value_shape
from storage.format.checksum import checksum
from storage.format.meta import with_meta
from storage.format.segment_frame import APPEND, DELETED, HEADER, HEADER_SIZE, LIVE
from storage.log.encode import BINARY
from tests.support.bodies import binary_body

TOPIC = 7
VALUES = [
    b'{"a":1,"b":"x"}',
    b'{"b":{"data":1,"meta":2}}',
    b'{"a":"x"}',
    b"[1]",
    b'"text"',
    b"5",
    b"null",
    b'{"a" : 2 }',
]


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
def test_frames_of_any_size_are_decoded(wanted: list[tuple[int, int, int, bool]], cut: int) -> None:
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


def test_every_flipped_bit_is_detected() -> None:
    data = frame(1, b"no", b"ta") + frame(2)
    for at in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            try:
                frames, used, _ = decode(bytes(changed), TOPIC, 0, 3)
            except FrameDamaged:
                continue
            # A longer length may reach beyond the end of the data: then that frame is incomplete, and is not returned.
            assert used < len(data), (at, bit)
            assert all(seq in (1, 2) for seq in frames.seqs.tolist())


@pytest.mark.parametrize(
    ("data", "topic", "after", "end", "what"),
    [
        (frame(1), 8, 0, 9, "another log"),
        (frame(1), TOPIC, 1, 9, "is wrong here"),
        (frame(9), TOPIC, 0, 9, "is wrong here"),
        (frame(2) + frame(1), TOPIC, 0, 9, "is wrong here"),
        (b"\0" * 64, TOPIC, 0, 9, "frame_len is 0"),
    ],
)
def test_frames_of_another_log_or_position_are_refused(
    data: bytes, topic: int, after: int, end: int, what: str
) -> None:
    with pytest.raises(FrameDamaged, match=what):
        decode(data, topic, after, end)


def test_dead_letter_of_raw_bytes_has_its_meta() -> None:
    bodies = [binary_body(b"\xff"), with_meta(binary_body(b"\xfe"), b'{"a":"b"}')]
    data = b"".join(frame(seq, data=body, flags=BINARY) for seq, body in enumerate(bodies, 1))
    frames, _, _ = decode(data, TOPIC, 0, 3)
    rows = from_frames(frames, "t", 0, Shape()).to_pylist()
    assert [row["value"] for row in rows] == [b"\xff", b"\xfe"]
    assert [row["meta"] for row in rows] == [None, '{"a":"b"}']


_DATA = [
    b"1",
    b"-2.5",
    b'"x"',
    b"[1]",
    b"null",
    b' {"a":true} ',
    b'{"meta":2,"h":[1]}',
    rb'"\",\"meta\":"',
    b'{"z":1,"ct":2}',
]
_BODIES: list[tuple[bytes, int]] = [
    *((b'{"data":' + data + b"}", 0) for data in _DATA),
    (b'{"data":2,"meta":{"a":"b"}}', 0),
    (b'{"data":2,"meta":"x"}', 0),
    (b'{"data":"x","deliver_at":1700000000000}', 0),
    (b'{"data":null,"ct":17}', 0),
    (b'{"data":3,"meta":{"q":"r"},"ct":5,"h":[["a","aGVsbG8="],["b",null]]}', 0),
    (binary_body(b""), BINARY),
    (binary_body(b'\xff{"data":1,"meta":2}'), BINARY),
    (with_meta(binary_body(b"raw"), b'{"c":1}'), BINARY),
    (msgspec.msgpack.encode({"v": None, "k": b"\xffkey", "h": [("n", b"v"), ("m", None)]}), BINARY),
]
_kinds = st.lists(st.tuples(st.sampled_from(_BODIES), st.sampled_from([b"", b"t", b"tag"]), st.booleans()), max_size=90)


@given(_kinds)
def test_columns_match_the_individual_frames(chosen: list[tuple[tuple[bytes, int], bytes, bool]]) -> None:
    written = [
        frame(seq, "nö".encode() * node, tag, body, flags=flags)
        for seq, ((body, flags), tag, node) in enumerate(chosen, 1)
    ]
    found, _, _ = decode(b"".join(written), TOPIC, 0, len(chosen) + 1)
    # Rows with their stored bodies are decoded one by one.
    rows = [
        Row(seq, 1000 + seq, tag or None, "nö".encode() if node else None, b"", None, body)
        for seq, ((body, _), tag, node) in enumerate(chosen, 1)
    ]
    assert not len(from_frames(found.within(0, 0), "t", 3, Shape()))
    for shape in (Shape(), Shape(headers=True)):
        batch = from_frames(found, "t", 3, shape)
        batch.validate(full=True)
        assert batch.to_pylist() == from_rows(rows, "t", 3, shape).to_pylist()


def test_frames_of_equal_size_are_verified_like_others() -> None:
    few = [frame(seq, data=b'{"data":"%s"}' % (b"x" * (seq % 3))) for seq in range(1, 700)]
    many = [frame(seq, data=b'{"data":"%s"}' % (b"x" * seq)) for seq in range(1, 700)]
    for written in (few, many):
        data = bytearray(b"".join(written))
        assert len(decode(bytes(data), TOPIC, 0, 700)[0]) == 699
        at = sum(map(len, written[:500]))
        data[at + HEADER_SIZE + 9] ^= 1
        with pytest.raises(FrameDamaged) as error:
            decode(bytes(data), TOPIC, 0, 700)
        assert (error.value.offset, error.value.what) == (at, "checksum mismatch")
        data[at + HEADER_SIZE + 9] ^= 1
        data[at : at + 4] = bytes((3, 0, 0, 0))
        with pytest.raises(FrameDamaged, match="frame_len") as error:
            decode(bytes(data), TOPIC, 0, 700)
        assert error.value.offset == at


@pytest.mark.parametrize("sizes", [[7] * 40, [7, 9, 300, 1] * 10])
def test_wrong_length_is_reported_for_its_frame(sizes: list[int]) -> None:
    written = [frame(seq, data=b'{"data":"%s"}' % (b"x" * size)) for seq, size in enumerate(sizes, 1)]
    data = b"".join(written)
    for number in (0, 1, 17, 30):
        at = sum(map(len, written[:number]))
        for bit in range(11):
            damaged = bytearray(data)
            damaged[at + bit // 8] ^= 1 << bit % 8
            try:
                _, used, _ = decode(bytes(damaged), TOPIC, 0, 100)
            except FrameDamaged as error:
                used = error.offset
            assert used == at  # refused, or the rest, which is refused at the end of the file


def test_too_short_body_is_an_error() -> None:
    found, _, _ = decode(frame(1) + frame(2, data=b'{"dat'), TOPIC, 0, 3)
    with pytest.raises(ValueError, match="truncated"):
        from_frames(found, "t", 0, Shape())


@given(st.lists(st.tuples(st.sampled_from(["", "meta", "binary", "created"]), st.sampled_from(VALUES)), max_size=6))
def test_requested_columns_are_the_same_for_bodies_of_every_kind(rows: list[tuple[str, bytes]]) -> None:
    data = b""
    for seq, (kind, value) in enumerate(rows, 1):
        body = b'{"data":' + value + {"meta": b',"meta":{"m":1}', "created": b',"ct":7'}.get(kind, b"") + b"}"
        raw = kind == "binary"
        data += frame(seq, b"node", b"tag", binary_body(value) if raw else body, flags=BINARY if raw else 0)
    frames, _, _ = decode(data, TOPIC, 0, len(rows) + 1)
    typed = value_shape("a int, b string", [])
    whole = from_frames(frames, "t", 0, Shape(values=typed))
    bad = whole.column("_corrupt_record").to_pylist()
    for columns in (("seq", "a"), ("b", "node", "_corrupt_record"), ("value", "b"), ("timestamp", "a", "b")):
        found = from_frames(frames, "t", 0, Shape(values=typed.only(columns), columns=columns))
        assert found.schema.names == list(columns)
        for name in columns:
            # A misfit in a column that is not requested does not matter.
            pairs = zip(found.column(name).to_pylist(), whole.column(name).to_pylist(), bad, strict=True)
            assert all(one == other for one, other, text in pairs if text is None)
