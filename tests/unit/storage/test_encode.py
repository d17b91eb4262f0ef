"""A write as bytes, compared with a second computation of the format by hand."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import xxhash

from kernel import Header
from storage.format import control
from storage.format.wal_frame import FrameFlag
from storage.log.encode import DURABLE, EncodedUnit, Surroundings, encode_controls, hash_of, measured
from storage.log.encode import encoded as encoded_records
from storage.log.submission import AppendStep
from storage.options import Options
from storage.records.record_columns import RecordColumns
from storage.records.values import NewRecord
from tests.support import wal_frames
from tests.support.units import assemble
from tests.unit.storage.machine import record

HEAD = Header(7, 41, 1_700_000_000_000, b"", DURABLE)


def encoded(batch: list[NewRecord], head: Header = HEAD, **more: Any) -> EncodedUnit:
    made = RecordColumns(batch)  # whatever the limits would say
    appends, run = encoded_records(made, head, made.payloads, more=bool(more.get("after")))
    return assemble(appends, run, head, **more)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("after", [(), (control.HeadWatermark(reserved=9),)])
def test_a_batch_encoded_at_once_is_that_made_of_its_parts(count: int, after: tuple[control.Control, ...]) -> None:
    fields: dict[str, Any] = {"before": [control.HeadWatermark(reserved=5)], "after": after, "key": "k"}
    columns = RecordColumns([record(number) for number in range(count)])
    around = Surroundings(HEAD, count, **fields)
    payload, run = encoded_records(columns, HEAD, columns.payloads, more=bool(after), around=around)
    assert EncodedUnit(around.unit(run), payload, around.frames) == encoded([*map(record, range(count))], **fields)


def test_a_single_plain_record_is_encoded_without_a_batch_frame() -> None:
    unit = encoded([record(5)])
    body = struct.pack("<BBQQQHHI", 1, 4, 7, 41, 1_700_000_000_000, 0, 0, 10) + b'{"data":5}'
    expected = struct.pack("<I", len(body) + 8) + body + struct.pack("<Q", xxhash.xxh3_64_intdigest(body))
    assert unit.payload == expected
    assert (unit.frames, unit.unit.batch) == (1, None)


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        (record({"a": 1}), b'{"data":{"a":1}}'),
        (record(1, meta=[2]), b'{"data":1,"meta":[2]}'),
        (record(1, deliver_at=99), b'{"data":1,"deliver_at":99}'),
        (record(1, meta=2, deliver_at=0), b'{"data":1,"meta":2,"deliver_at":0}'),
        (record(1, delay_ms=5), b'{"data":1,"deliver_at":1700000000005}'),
        (record(1, delay_ms=0), b'{"data":1,"deliver_at":1700000000000}'),
    ],
)
def test_the_stored_object_has_the_documented_fields(sent: NewRecord, stored: bytes) -> None:
    assert wal_frames.decode(encoded([sent]).payload).data == stored


def test_a_key_makes_a_batch_of_a_single_record() -> None:
    unit = encoded([record(5)], key="k", hash=b"h" * 16)
    first = wal_frames.decode(unit.payload)
    batch = control.decode_control(first.type, first.data)
    assert batch == control.Batch(
        frames=1, body_bytes=len(unit.payload) - first.size, first_seq=41, key="k", hash=b"h" * 16
    )
    assert first.flags & FrameFlag.MORE
    second = wal_frames.decode(unit.payload, first.size)
    assert (second.type, second.seq, second.flags & FrameFlag.MORE) == (1, 41, 0)
    (step,) = unit.unit.steps
    assert isinstance(step, AppendStep)
    assert step.offset == first.size


def test_creating_controls_precede_the_records_and_evicting_controls_follow() -> None:
    before = [control.TopicDelete(name="before"), control.HeadWatermark(reserved=5)]
    after = [control.EvictWatermark(floors={"cap": 3})]
    unit = encoded([record(), record()], before=before, after=after)
    types, at = list[int](), 0
    while at < len(unit.payload):
        frame = wal_frames.decode(unit.payload, at)
        types.append(frame.type)
        assert bool(frame.flags & FrameFlag.MORE) == (at + frame.size < len(unit.payload))
        at += frame.size
    assert types == [12, 3, 11, 1, 1, 7]
    assert unit.frames == 6


@pytest.mark.parametrize("durable", [False, True])
def test_the_durable_flag_follows_the_durability_class(durable: bool) -> None:
    frame = wal_frames.decode(encoded([record()], HEAD._replace(flags=DURABLE if durable else 0)).payload)
    assert bool(frame.flags & FrameFlag.DURABLE) == durable


def test_control_frames_can_be_written_without_records() -> None:
    one = encode_controls([control.HeadWatermark(reserved=5)], 7, 99)
    frame = wal_frames.decode(one.payload)
    assert (one.frames, frame.type, frame.topic_id, frame.seq, frame.ts, frame.size) == (
        1,
        11,
        7,
        0,
        99,
        len(one.payload),
    )
    two = encode_controls([control.HeadWatermark(reserved=5), control.TopicDelete(name="t")], 7, 99)
    assert (two.frames, wal_frames.decode(two.payload).type) == (3, 12)
    assert two.unit.batch is not None
    assert (two.unit.batch.frames, two.unit.batch.first_seq) == (2, None)


def hashed(batch: list[NewRecord], node: str | None) -> bytes:
    made, payloads, _ = measured(batch, Options(), lambda: HEAD.ts)
    assert hash_of(batch, payloads, node) == hash_of(made, payloads, node)
    return hash_of(made, payloads, node)


def by_hand(*fields: bytes) -> bytes:
    return xxhash.xxh3_128_digest(b"".join(struct.pack("<I", len(field)) + field for field in fields))


def test_the_hash_is_over_length_prefixed_node_tag_data_and_meta() -> None:
    assert hashed([record(5)], None) == by_hand(b"", b"", b"5", b"")
    assert hashed([record(5, tag="t", node="n", meta=1)], "other") == by_hand(b"n", b"t", b"5", b"1")
    assert hashed([record(5), record(6, tag="ä")], "n") == by_hand(b"n", b"", b"5", b"", b"n", "ä".encode(), b"6", b"")


def test_delays_do_not_count_as_payload() -> None:
    assert hashed([record(5, delay_ms=9)], None) == hashed([record(5)], None)
