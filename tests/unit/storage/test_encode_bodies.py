"""Prepared bodies give the same frames as records one by one."""

from __future__ import annotations

from array import array

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel import Header
from storage.errors import BatchTooLarge, InvalidRequest, RecordTooLarge
from storage.format.record import payload_size
from storage.format.wal_frame import FrameFlag, FrameType, encode
from storage.log.encode import DURABLE, encode_stored
from storage.log.validation import check_stored
from storage.options import Options
from storage.records.values import StoredBodies
from tests.support.wal_frames import decode

TS = 1_700_000_000_000


def one_by_one(stored: StoredBodies, head: Header, *, more: bool) -> bytes:
    frames: list[bytes] = []
    last = len(stored) - 1
    for index, body in enumerate(stored.bodies):
        flags = FrameFlag.DURABLE if head.flags else FrameFlag(0)
        flags |= FrameFlag.MORE if more or index < last else FrameFlag(0)
        flags |= FrameFlag.BINARY if stored.binary is not None and stored.binary[index] else FrameFlag(0)
        tag = stored.tags[index] if stored.tags is not None else b""
        seq = head.first_seq + index
        frames.append(encode(FrameType.APPEND, int(flags), head.topic_id, seq, head.ts, head.node, tag, body))
    return b"".join(frames)


bodies = st.sampled_from(
    [b'{"data":1}', b'{"data":"abc","ct":1700000000000}', b"\x81\xd9\x01v\xc6\x00\x00\x00\x02\x00\xff"]
)
some_tags = st.text(max_size=5).map(str.encode)


@st.composite
def stored_bodies(draw: st.DrawFn) -> StoredBodies:
    made = draw(
        st.lists(bodies, min_size=1, max_size=40) | st.integers(1, 600).map(lambda count: [b'{"data":7}'] * count)
    )
    count = len(made)
    kinds = st.none() | st.just([b"k"] * count) | st.lists(some_tags, min_size=count, max_size=count)
    tags = draw(kinds)
    binary = bytes(body[0] != ord("{") for body in made)
    return StoredBodies(made, tags, binary if any(binary) or draw(st.booleans()) else None)


@given(
    stored_bodies(),
    st.builds(
        Header,
        st.just(7),
        st.sampled_from([1, 250, 65_530]),
        st.just(TS),
        st.sampled_from([b"", b"n"]),
        st.sampled_from([0, DURABLE]),
    ),
    st.booleans(),
)
def test_frames_of_stored_bodies_equal_frames_of_single_records(stored: StoredBodies, head: Header, more: bool) -> None:
    frames, run = encode_stored(stored, head, more=more)
    assert frames == one_by_one(stored, head, more=more)
    assert run.first_seq == head.first_seq
    assert run.ts == TS
    assert sum(run.sizes) == len(frames)
    tags = stored.tags or []
    assert run.tagged == [(tag, head.first_seq + index) for index, tag in enumerate(tags) if tag]
    assert list(run.payloads) == [payload_size(body, 0, len(body)) for body in stored.bodies]


def test_every_frame_of_stored_bodies_verifies_with_its_flags() -> None:
    stored = StoredBodies([b'{"data":1}', b"\x81\xa1v\xc4\x01\x00"], [b"a", b""], b"\x00\x01")
    data, run = encode_stored(stored, Header(7, 1, TS, b"", 0), more=False)
    first = decode(data)
    second = decode(data, first.size)
    assert (first.tag, first.data, first.flags & FrameFlag.BINARY) == (b"a", b'{"data":1}', 0)
    assert (second.tag, second.data, second.flags & FrameFlag.BINARY) == (b"", stored.bodies[1], FrameFlag.BINARY)
    assert [first.size, second.size] == list(run.sizes)


@pytest.mark.parametrize(
    "body",
    [
        b'{"data":"x"}',
        b'{"data":"x","ct":1700000000000}',
        b'{"data":{"a":1,"meta":2},"ct":1700000000000,"h":[["a","AA=="]]}',
        b'{"data":{"a":1,"deliver_at":2},"h":[["a",null]]}',
        b'{"data":"x","h":[]}',
        msgspec.msgpack.encode({"k": b"\x00", "v": b',"meta":', "h": [["a", b"b"]], "ct": 5}),
        b"\x81\xa1v\xc0",
    ],
)
def test_the_payload_size_of_a_record_is_the_same_when_written_and_read(body: bytes) -> None:
    assert list(StoredBodies([body]).payloads) == [payload_size(b"in front" + body, 8, 8 + len(body))]
    assert list(StoredBodies([body, b'{"data":1}']).payloads) == [payload_size(body, 0, len(body)), 1]


SMALL = Options(max_record_bytes=20, max_batch_records=3, max_tag_bytes=4)


@pytest.mark.parametrize(
    ("stored", "error", "field"),
    [
        (StoredBodies([]), InvalidRequest, "records"),
        (StoredBodies([b'{"data":1}'] * 4), BatchTooLarge, "records"),
        (StoredBodies([b'{"data":1}', b'{"data":"%b"}' % (b"x" * 19)]), RecordTooLarge, "records[1]"),
        (StoredBodies([b'{"data":1}'] * 2, [b"", b"abcde"]), InvalidRequest, "records[1].tag"),
        (StoredBodies([b'{"data":1}'] * 2, [b"\xc3", b"\xa9"]), InvalidRequest, "records[0].tag"),
    ],
)
def test_stored_bodies_over_a_limit_are_refused(stored: StoredBodies, error: type[Exception], field: str) -> None:
    with pytest.raises(error) as raised:
        check_stored(stored, SMALL)
    assert raised.value.detail["field"] == field  # type: ignore[attr-defined]


def test_stored_bodies_within_the_limits_are_accepted() -> None:
    check_stored(StoredBodies([b'{"data":"%b"}' % (b"x" * 18)] * 3, [b"", b"abcd", "ü".encode()]), SMALL)


def test_columns_of_different_lengths_raise_an_error() -> None:
    for stored in (
        StoredBodies([b'{"data":1}'] * 2, [b""]),
        StoredBodies([b'{"data":1}'] * 2, None, b"\x00"),
        StoredBodies([b'{"data":1}'] * 2, payloads=array("I", [1])),
    ):
        with pytest.raises(ValueError, match="different lengths"):
            check_stored(stored, Options())
