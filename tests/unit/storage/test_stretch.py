"""Records that are created when a reader looks at them behave like a list of records."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import kernel
from storage.format import segment_frame, wal_frame
from storage.format.record import payload_size
from storage.format.wal_frame import FrameType
from storage.records.frame_records import ChainedRecords, FrameRecords, chain_records, data_of
from storage.records.values import StoredRecord
from tests.support.bodies import binary_body

TOPIC_ID, FIRST, TS = 7, 250, 1_700_000_000_000
BODIES = {
    "raw bytes": [binary_body(b"%04d" % number) for number in range(300)],
    "raw bytes of many sizes": [binary_body(bytes(number % 40)) for number in range(300)],
    "no bytes": [binary_body(b"")] * 20,
    "JSON": [b'{"data":"%04d"}' % number for number in range(300)],
    "JSON of many sizes": [b'{"data":%d}' % number for number in range(300)],
    "JSON with meta": [b'{"data":1,"meta":%d}' % (number % 10) for number in range(20)],
    # As long as raw bytes would be, and almost like them.
    "one that is JSON": [*[binary_body(b"1")] * 10, b'{"data":7}', *[binary_body(b"2")] * 10],
    "another form of them": [*[binary_body(b"1")] * 10, b"\x81\xd9\x01v\xc4\x04four", *[binary_body(b"2")] * 3],
}


def stretch_of(bodies: Sequence[bytes], where: str, around: int = 3) -> tuple[FrameRecords, list[StoredRecord]]:
    labels = [(b"", b""), (b"n", b""), (b"", b"tag"), (b"node", b"t")] if where.endswith("labels") else [(b"", b"")]
    records = [
        StoredRecord(FIRST + index, TS + index, *labels[index % len(labels)], body) for index, body in enumerate(bodies)
    ]
    frames = [wal_frame.encode(FrameType.APPEND, 0, TOPIC_ID, *record) for record in records]
    kind = kernel.Kind.LOG
    if where.startswith("segment"):
        frames, kind = [segment_frame.from_wal(frame, 0, len(frame)) for frame in frames], kernel.Kind.SEGMENT
    data = bytes(around) + b"".join(frames) + bytes(around)
    found = kernel.scan(data, kind, around, len(data) - around, topic_id=TOPIC_ID, first_seq=FIRST)
    assert found.reason == ""
    return FrameRecords(data, found.columns), records


everywhere = pytest.mark.parametrize("where", ["log", "segment", "log with labels", "segment with labels"])
everything = pytest.mark.parametrize("kind", list(BODIES))


@everywhere
@everything
def test_lazy_records_behave_as_a_list_of_records(kind: str, where: str) -> None:
    found, records = stretch_of(BODIES[kind], where)
    count = len(records)
    assert len(found) == count
    assert [*found] == records
    assert found == records
    assert records == found
    assert [found[index] for index in range(count)] == records
    assert [found[-index] for index in range(1, count + 1)] == records[::-1]
    for index in (slice(2, 5), slice(None, None, -3), slice(-4, None), slice(5, 2)):
        assert [*found[index]] == records[index]
    for index in (count, -count - 1):
        with pytest.raises(IndexError):
            found[index]
    assert records[3] in found
    assert found != records[1:]
    assert found.bodies() == BODIES[kind]
    assert found.tags() == [record.tag for record in records]
    assert [*found.seqs] == [record.seq for record in records]
    assert [*found.payloads()] == [payload_size(record.body, 0, len(record.body)) for record in records]
    assert found.is_bare() == (not any(record.node or record.tag for record in records))


@everywhere
@everything
def test_data_of_lazy_records_equals_data_of_single_records(kind: str, where: str) -> None:
    found, records = stretch_of(BODIES[kind], where)
    assert found.data() == data_of(found) == data_of(records) == [record.data for record in records]
    for count in (1, 2, len(records)):
        assert found.between(0, count).data() == [record.data for record in records[:count]]


@everywhere
@everything
def test_a_prefix_of_lazy_records_is_limited_by_records_and_bytes(kind: str, where: str) -> None:
    found, records = stretch_of(BODIES[kind], where)
    for count in (1, 7, len(records), len(records) + 1):
        assert found.between(0, count) == records[:count]
    sizes = [len(record.body) for record in records]
    assert found.bytes_of() == sum(sizes)
    assert found.between(0, 3).bytes_of() == sum(sizes[:3])
    for max_bytes in (0, sizes[0] - 1, sizes[0], sum(sizes[:5]), sum(sizes[:5]) + 1, sum(sizes), sum(sizes) + 1):
        fitting = found.fitting(max_bytes)
        assert sum(sizes[:fitting]) <= max_bytes
        assert fitting == len(sizes) or sum(sizes[: fitting + 1]) > max_bytes


@everywhere
@everything
def test_a_few_lazy_records_do_not_hold_the_bytes_of_the_rest(kind: str, where: str) -> None:
    found, records = stretch_of(BODIES[kind], where, around=5000)
    few = found.between(0, 5)
    alone = few.own()
    assert alone == few == records[:5]
    assert alone.data() == few.data()
    assert len(alone.buffer) < 5 * 200
    thinned = FrameRecords(found.buffer, found.columns.take([0, 2, 3]))
    assert thinned.own() == [records[0], records[2], records[3]]
    assert thinned.bytes_of() == sum(len(records[index].body) for index in (0, 2, 3))
    close, _ = stretch_of(BODIES[kind], where)
    assert close.own() is close


def test_chained_lazy_records_form_a_single_sequence() -> None:
    (first, before), (second, _) = stretch_of(BODIES["JSON"], "log"), stretch_of(BODIES["raw bytes"], "segment")
    odd = [StoredRecord(9, TS, b"n", b"t", b'{"data":"odd"}')]
    parts: list[Sequence[StoredRecord]] = [first, odd, second]
    whole, expected = chain_records(parts), [*first, *odd, *second]
    assert isinstance(whole, ChainedRecords)
    assert len(whole) == len(expected)
    assert [*whole] == expected
    assert whole == expected
    assert [whole[index] for index in range(-len(expected), len(expected))] == expected * 2
    assert whole[290:310] == expected[290:310]
    with pytest.raises(IndexError):
        whole[len(expected)]
    assert data_of(whole) == [record.data for record in expected]
    assert chain_records([first]) is first
    assert chain_records([]) == []
    assert first == before
