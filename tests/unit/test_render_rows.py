"""Records rendered together give the same text as one by one. They are rendered one by one if some are left out."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernel
from broker.api.routes.claims import rendered_jobs
from broker.content import render
from storage.format import segment_frame, wal_frame
from storage.format.wal_frame import FrameType
from storage.queues.lease_queue import ClaimedBatch
from storage.records.frame_records import ChainedRecords, FrameRecords
from storage.records.values import StoredRecord
from tests.support.bodies import binary_body

TOPIC_ID, TS = 7, 1_700_000_000_000
ALL = render.Shape()
PLAIN = {
    "one size": [b'{"data":"%04d"}' % number for number in range(40)],
    "many sizes": [b'{"data":"%b"}' % (b"x" * (number % 13)) for number in range(40)],
    "words": [b'{"data":null}', b'{"data":true}', b'{"data":false}'] * 10,
    "with meta": [b'{"data":%d,"meta":{"k":"v"}}' % number for number in range(40)],
}
ONE_BY_ONE = {
    "raw bytes": [binary_body(b"%04d" % number) for number in range(40)],
    "raw bytes that end as objects do": [binary_body(b'"}') for _ in range(40)],
    "due at a time": [b'{"data":"x","deliver_at":17%011d}' % number for number in range(40)],
    "stamped": [b'{"data":"x","ct":17%011d}' % number for number in range(40)],
    "with headers": [b'{"data":"x","h":[["n","dmFsdWU="]]}' for _ in range(40)],
    "with meta and headers": [b'{"data":"x","meta":{"k":"v"},"ct":1,"h":[]}' for _ in range(40)],
    "numbers": [b'{"data":%d}' % number for number in range(40)],
    "lists": [b'{"data":[%d]}' % number for number in range(40)],
}


def stretch_of(bodies: Sequence[bytes], first_seq: int, stamps: Sequence[int], *, moved: bool) -> FrameRecords:
    """These records as a read finds them: in the log, or `moved` into a segment."""
    records = [StoredRecord(first_seq + at, stamps[at], b"", b"", body) for at, body in enumerate(bodies)]
    frames = [wal_frame.encode(FrameType.APPEND, 0, TOPIC_ID, *record) for record in records]
    if moved:
        frames = [segment_frame.from_wal(frame, 0, len(frame)) for frame in frames]
    data = b"".join(frames)
    return FrameRecords(data, kernel.scan(data, kernel.Kind.SEGMENT if moved else kernel.Kind.LOG).columns)


def same_times(count: int) -> list[int]:
    return [TS] * count


def as_sent(text: bytes) -> list[dict[str, object]]:
    return msgspec.json.decode(b"[" + text + b"]")


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("kind", [*PLAIN, *ONE_BY_ONE])
def test_records_in_frames_render_like_separate_records(kind: str, moved: bool) -> None:
    bodies = (PLAIN | ONE_BY_ONE)[kind]
    found = stretch_of(bodies, 990, same_times(len(bodies)), moved=moved)
    text = render.records(found, ALL)
    assert text == render.records([*found], ALL)
    assert [record["$seq"] for record in as_sent(text)] == [*range(990, 990 + len(bodies))]
    assert {key for record in as_sent(text) for key in record} <= {"$seq", "$ts", "data", "meta"}


@pytest.mark.parametrize("first_seq", [1, 9, 95, 999, 1000, 1001, 9_990, 999_999, 1 << 40, (1 << 63) - 5000])
def test_seqs_of_every_length_are_rendered_correctly(first_seq: int) -> None:
    count = 2100
    found = stretch_of([b'{"data":""}'] * count, first_seq, same_times(count), moved=False)
    assert [record["$seq"] for record in as_sent(render.records(found, ALL))] == [*found.seqs]


@given(st.data())
def test_rendering_a_batch_equals_rendering_each_record(data: st.DataObject) -> None:
    parts: list[Sequence[StoredRecord]] = []
    seq = data.draw(st.integers(1, 3000))
    for _ in range(data.draw(st.integers(1, 3))):
        values = data.draw(st.lists(st.text(max_size=5) | st.integers() | st.none(), min_size=1, max_size=30))
        bodies = [b'{"data":%b}' % msgspec.json.encode(value) for value in values]
        stamps = data.draw(st.lists(st.sampled_from([0, 7, TS, TS + 1]), min_size=len(bodies), max_size=len(bodies)))
        parts.append(stretch_of(bodies, seq, stamps, moved=data.draw(st.booleans())))
        seq += len(bodies)
    found = ChainedRecords([*parts, [StoredRecord(seq, TS, b"n", b"t", b'{"data":1}')]])
    assert render.records(found, ALL) == render.records([*found], ALL)
    without_tags = render.Shape(meta=False)
    assert render.records(found, without_tags) == render.records([*found], without_tags)


@pytest.mark.parametrize("kind", [*PLAIN, *ONE_BY_ONE])
@pytest.mark.parametrize("moved", [False, True])
def test_jobs_render_the_same_in_a_batch_and_separately(kind: str, moved: bool) -> None:
    bodies = (PLAIN | ONE_BY_ONE)[kind]
    stamps = [TS + at // 7 for at in range(len(bodies))]
    there = stretch_of(bodies, 980, stamps, moved=moved)
    parts = [there, stretch_of(bodies, 980 + len(bodies), stamps, moved=moved)]
    odd = StoredRecord(5000, TS, b"n", b"t", b'{"data":1}')
    for found in (there, ChainedRecords(parts), ChainedRecords([there, [odd]])):
        lease_ids = (*range((1 << 64) - len(found), 1 << 64),)
        together = ClaimedBatch(found, lease_ids, TS + 30_000)
        text = rendered_jobs(together)
        assert text == rendered_jobs([*together])
        one_by_one = b",".join([rendered_jobs([job]) for job in together])
        assert text == one_by_one
        assert [job["deadline"] for job in as_sent(text)] == [TS + 30_000] * len(found)
