"""Kafka's record batches, compared with those of aiokafka."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

import kernel
from broker.kafka.mapping import to_kafka
from tests.kernel.samples import texts
from tests.support.bodies import binary_body

pytestmark = pytest.mark.usefixtures("twin")

HEADER_SIZE = 61
fields = st.one_of(st.none(), st.binary(max_size=200))
records = st.lists(
    st.tuples(
        fields,
        fields,
        st.lists(st.tuples(texts, fields), max_size=3),
        st.integers(-(1 << 40), 1 << 40),
    ),
    min_size=1,
    max_size=30,
)


def written(rows: list[Any]) -> bytes:
    keys, values, headers, stamps = zip(*rows, strict=True)
    return kernel.write_kafka(77, [*range(len(rows))], keys, values, headers, stamps, 3)


@given(records)
def test_batches_are_read_by_aiokafka(rows: list[Any]) -> None:
    batch = DefaultRecordBatch(written(rows))
    assert batch.validate_crc()
    found = [(record.offset, record.key, record.value, [*record.headers], record.timestamp) for record in batch]
    assert found == [(77 + number, key, value, own, ts) for number, (key, value, own, ts) in enumerate(rows)]
    assert batch.max_timestamp == max(row[3] for row in rows)


@given(records)
def test_written_records_are_read_back(rows: list[Any]) -> None:
    found = kernel.read_kafka(written(rows)[HEADER_SIZE:], len(rows))
    keys, values, headers, stamps = ([row[column] for row in rows] for column in range(4))
    assert found.keys == (keys if any(key is not None for key in keys) else None)
    assert found.values == values
    assert found.headers == (headers if any(headers) else None)
    assert [delta + stamps[0] for delta in found.time_deltas] == stamps
    assert found.offset_deltas.tolist() == [*range(len(rows))]


_values = st.one_of(st.binary(max_size=20), st.sampled_from([b"1", b'{"a":1,"ct":5}', b'"x"', b'{"meta":1,"meta":2}']))
_stamps = st.sampled_from([-1, 0, 5, -7, 1_700_000_000_000, 10**18 - 1, 10**18, (1 << 63) - 1])
_bodies = st.one_of(
    _values.map(binary_body),
    _values.map(lambda value: b'{"data":%b}' % value),
    st.builds(lambda value, stamp: b'{"data":%b,"ct":%d}' % (value, stamp), _values, _stamps),
    st.builds(
        lambda value, stamp: (
            b"\x82\xd9\x01v\xc6%b%b\xa2ct\xd3%b"
            % (len(value).to_bytes(4, "big"), value, stamp.to_bytes(8, "big", signed=True))
        ),
        _values,
        _stamps,
    ),
    st.binary(max_size=30),
    _values.map(lambda value: b'{"data":%b,"meta":{},"deliver_at":7}' % value),
)


@given(st.lists(st.tuples(_bodies, st.sampled_from([b"", b"n"]), st.integers(0, 30)), max_size=12))
def test_values_in_a_batch_are_the_values_of_each_body(rows: list[tuple[bytes, bytes, int]]) -> None:
    bodies = [body[: len(body) - cut // 10] if cut > 20 else body for body, _, cut in rows]
    nodes, stamps = [node for _, node, _ in rows], [cut for _, _, cut in rows]
    values, found, odd = kernel.kafka_values(bodies, nodes, stamps)
    assert [number for number, value in enumerate(values) if value is None] == odd
    for number, value in enumerate(values):
        if value is None:
            assert found[number] == stamps[number]
        else:
            mapped = to_kafka(bodies[number], b"", nodes[number], stamps[number])
            assert (value, (), found[number]) == (mapped[1], tuple(mapped[2]), mapped[3])


def test_values_in_common_forms_are_never_odd() -> None:
    plain = [binary_body(b"\xff"), b'{"data":{"a":1}}', b'{"data":1,"ct":1700000000000}']
    stamped = b"\x82\xd9\x01v\xc6\0\0\0\1x\xa2ct\xd3\0\0\0\0\0\0\0\5"
    found = kernel.kafka_values([*plain, stamped, plain[0]], [b"", b"", b"n", b"n", b"n"], [1, 2, 3, 4, 9])
    assert found.values == [b"\xff", b'{"a":1}', b"1", b"x", None]
    assert found.stamps.tolist() == [1, 2, 1_700_000_000_000, 5, 9]
    assert found.odd == [4]


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="column"):
        kernel.kafka_values([b""], [], [1])
    with pytest.raises(ValueError, match="stamps"):
        kernel.kafka_values([b""], [b""], [])


def test_keys_and_headers_may_be_left_out() -> None:
    batch = kernel.write_kafka(0, [0, 1], None, [b"a", None], None, [5, 5], -1)
    assert batch == kernel.write_kafka(0, [0, 1], [None, None], [b"a", None], [[], []], [5, 5], -1)


ROWS = [(b"k", b"v" * 70, [("n", b"x"), ("m", None)], 5), (None, b"", [], 9000), (b"", None, [("é", b"")], 1)]


def test_records_cut_short_are_refused() -> None:
    content = written(ROWS)[HEADER_SIZE:]
    for size in range(len(content)):
        with pytest.raises(ValueError, match=r"record|field|number|header|byte|column|bits"):
            kernel.read_kafka(content[:size], len(ROWS))


def test_changed_bytes_are_refused_or_read_within_the_buffer() -> None:
    content = bytearray(written(ROWS)[HEADER_SIZE:])
    for at in range(len(content)):
        for mask in (0x01, 0x80, 0xFF):
            content[at] ^= mask
            try:
                found = kernel.read_kafka(content, len(ROWS))
            except ValueError:
                found = None
            content[at] ^= mask
            assert found is None or len(found.values) == len(ROWS)


@pytest.mark.parametrize("count", [0, 2, 4, 1 << 31])
def test_another_number_of_records_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=r"record|field|number|header|byte|column|bits"):
        kernel.read_kafka(written(ROWS)[HEADER_SIZE:], count)


@pytest.mark.parametrize(
    "record",
    [
        b"\x0c" + b"\x80" * 12,
        b"\x1a\x00" + b"\xff" * 12,
        b"\x0c\x00\x00\x00\x01\x01\x01",
        b"\x0c\x00\x00\x00\xfe\xff\x0f",
        b"\x0e\x00\x00\x00\x01\x01\x02\x01",
        b"\x10\x00\x00\x00\x01\x01\x02\x02\xff",
        b"\x0e\x00\x00\x00\x01\x01\x00\x00",
    ],
)
def test_malformed_records_are_refused(record: bytes) -> None:
    with pytest.raises(ValueError, match=r"record|field|number|header|byte|column|bits"):
        kernel.read_kafka(record, 1)


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [(1, b"", []), (b"", "text", []), (b"", b"", [(b"name", b"")]), (b"", b"", [("name", "text")])],
)
def test_fields_of_other_types_are_refused(key: Any, value: Any, headers: Any) -> None:
    with pytest.raises((TypeError, AttributeError)):
        kernel.write_kafka(0, [0], [key], [value], [headers], [1], 0)


def test_headers_are_counted_before_they_are_decoded() -> None:
    rows = [(None, None, [("n", None)] * 3, 0)] * 2
    content = written(rows)[HEADER_SIZE:]
    assert kernel.read_kafka(content, 2, max_headers=6).headers is not None
    with pytest.raises(OverflowError):
        kernel.read_kafka(content, 2, max_headers=5)
    claimed = b"\x14\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f"
    with pytest.raises(OverflowError):
        kernel.read_kafka(claimed, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"values": []},
        {"offset_deltas": [0]},
        {"keys": [b"a"]},
        {"headers": [[]]},
        {"stamps": [1]},
        {"leader_epoch": 1 << 31},
    ],
)
def test_a_batch_with_columns_of_other_lengths_is_refused(change: dict[str, Any]) -> None:
    arguments = {
        "base_offset": 0,
        "offset_deltas": [0, 1],
        "keys": None,
        "values": [b"a", b"b"],
        "headers": None,
        "stamps": [1, 2],
        "leader_epoch": 0,
    }
    with pytest.raises(ValueError, match=r"record|field|number|header|byte|column|bits"):
        kernel.write_kafka(**(arguments | change))
