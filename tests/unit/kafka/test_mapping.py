"""A Kafka client gets its records back byte for byte. Records from HTTP are mapped by the table."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.kafka.mapping import MAX_META_BYTES, NO_TIME, all_json, is_json, to_kafka, to_stored
from storage.format.binary import as_json
from storage.format.record import payload_sizes, split_body
from storage.records.values import StoredBodies
from tests.support.bodies import binary_body
from tests.support.shown import shown

TIMES = st.integers(0, 1 << 45)
a_json_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
).map(lambda value: json.dumps(value, ensure_ascii=False).encode())
# Data with text that looks like the other keys of a stored object.
lookalikes = st.sampled_from(
    [
        b'{"a":1,"ct":5}',
        b'"x,\\"ct\\":7"',
        b'{"a":{"b":2,"meta":{"x":"y"}}}',
        b'{"a":1,"h":[["a","Yg=="]]}',
        b'[{"a":1,"deliver_at":9}]',
        b' {"a" : 1}\n',
        b'\t"text" ',
        b"5",
        b" 5",
        b"-0.5e3",
    ]
)
a_value = st.none() | st.binary(max_size=30) | a_json_value | lookalikes
a_key = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode) | st.just(b"k" * 257)
some_headers = st.lists(
    st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=8) | st.text(max_size=5).map(str.encode)), max_size=3
)
a_record = st.tuples(a_key, a_value, some_headers, TIMES)


def stored_of(*records: Any) -> StoredBodies:
    keys, values, headers, stamps = map(list, zip(*records, strict=True))
    return to_stored(keys, values, headers if any(headers) else None, stamps)


def back(stored: StoredBodies, node: bytes = b"", ts: int = 77) -> list[Any]:
    tags = stored.tags or [b""] * len(stored)
    found = [to_kafka(body, tag, node, ts) for body, tag in zip(stored.bodies, tags, strict=True)]
    return [(key, value, [*headers], stamp) for key, value, headers, stamp in found]


def check_whole(stored: StoredBodies) -> None:
    """Check that the log accepts these bodies."""
    assert stored.payloads == payload_sizes(stored.bodies)
    for body, binary in zip(stored.bodies, stored.binary or bytes(len(stored)), strict=True):
        assert (body[:1] != b"{") == bool(binary)
        json.loads(as_json(body) if binary else body)


@given(st.lists(a_record, min_size=1, max_size=12))
def test_produced_records_round_trip(records: list[Any]) -> None:
    stored = stored_of(*records)
    check_whole(stored)
    assert back(stored) == records


@given(st.lists(st.tuples(a_value, TIMES), min_size=1, max_size=12))
def test_values_alone_are_given_back(pairs: list[Any]) -> None:
    records = [(None, value, [], stamp) for value, stamp in pairs]
    stored = stored_of(*records)
    check_whole(stored)
    assert back(stored) == records


@given(st.lists(st.tuples(a_json_value, TIMES), min_size=1, max_size=30))
def test_a_batch_by_columns_is_the_same_as_record_by_record(pairs: list[Any]) -> None:
    records = [(b"key", value, [], stamp) for value, stamp in pairs]
    together = stored_of(*records)
    assert together.bodies == [stored_of(each).bodies[0] for each in records]
    with_one_odd = stored_of(*records, (b"\xff", b"\xff", [("a", None)], 1))
    assert together.bodies == with_one_odd.bodies[:-1]


def test_a_json_value_becomes_data_and_its_key_the_tag() -> None:
    stored = stored_of((b"eu", b'{"id":1}', [], 1700))
    assert (stored.bodies, stored.tags, stored.binary) == ([b'{"data":{"id":1},"ct":1700}'], [b"eu"], None)


def test_text_headers_are_meta_for_http_readers() -> None:
    stored = stored_of((None, b"1", [("a", b"x"), ("raw", b"\xff"), ("none", None), ("a", b"y")], 5))
    body = split_body(stored.bodies[0])
    assert msgspec.json.decode(body.meta) == {"a": "y"}
    assert back(stored)[0][2] == [("a", b"x"), ("raw", b"\xff"), ("none", None), ("a", b"y")]


def test_headers_too_large_for_a_meta_are_headers_only() -> None:
    stored = stored_of((None, b"1", [("a", b"x" * MAX_META_BYTES)], 5))
    assert not split_body(stored.bodies[0]).meta
    assert back(stored)[0][2] == [("a", b"x" * MAX_META_BYTES)]


@pytest.mark.parametrize(
    "value", [None, b"", b"\xff\x00", b"hello", b"{", b"1 2", b"NaN", b'"\xff"', b"[" * 300 + b"]" * 300]
)
def test_other_values_are_stored_as_raw_bytes(value: bytes | None) -> None:
    stored = stored_of((b"key", value, [], 5))
    assert stored.binary == b"\1"
    assert stored.tags == [b"key"]
    assert back(stored) == [(b"key", value, [], 5)]


@pytest.mark.parametrize("key", [b"", b"\xff", b"k" * 257])
def test_a_key_outside_the_limits_of_tags_is_stored_as_raw_bytes(key: bytes) -> None:
    stored = stored_of((key, b"1", [], 5))
    assert (stored.binary, stored.tags) == (b"\1", None)
    assert back(stored) == [(key, b"1", [], 5)]


def test_no_create_time_is_the_time_of_the_commit() -> None:
    for value in (b"1", b"raw"):
        assert back(stored_of((None, value, [], NO_TIME)), ts=99) == [(None, value, [], 99)]


def test_records_of_other_apis_become_kafka_records() -> None:
    assert to_kafka(b'{"data":{"a":1}}', b"", b"", 9) == (None, b'{"a":1}', (), 9)
    assert to_kafka(b'{"data":1,"deliver_at":5}', b"t", b"", 9) == (b"t", b"1", [], 9)
    meta = b'{"data":1,"meta":{"a":"x","n":1,"node":"from meta"}}'
    assert to_kafka(meta, b"t", b"n1", 9) == (b"t", b"1", [("a", b"x"), ("node", b"n1")], 9)
    assert to_kafka(b'{"data":1}', b"", b"n1", 9) == (None, b"1", [("node", b"n1")], 9)
    assert to_kafka(binary_body(b"\xff"), b"t", b"n1", 9) == (b"t", b"\xff", [("node", b"n1")], 9)
    assert to_kafka(b'{"data":1,"meta":[1]}', b"", b"", 9) == (None, b"1", [], 9)


def test_values_that_are_json_only_when_concatenated_are_not_json() -> None:
    for values in (
        [b"[1", b"2]"],
        [b"1,2", b"3"],
        [b'"a', b'b"'],
        [b"[1", b"2],3"],
        [b"1,22", b"333", b"4"],
        [b"1 ", b"2"],
    ):
        assert not all_json(values)
    assert all_json([b"[1,2]", b"3", b'"x"'])


@given(st.lists(a_value.filter(bool), min_size=1, max_size=5))
def test_the_batch_check_of_json_accepts_only_batches_of_valid_values(values: list[bytes]) -> None:
    if all_json(values):
        assert all(map(is_json, values))


@pytest.mark.parametrize("text", [b'"\\ud800"', b"01", b"[1,]", b'{"a":1,}', b"\xef\xbb\xbf1", b"1\x00", b"", b" "])
def test_invalid_json_text_is_not_json(text: bytes) -> None:
    assert not is_json(text)


def test_kafka_fields_are_hidden_from_http_readers() -> None:
    assert shown(stored_of((None, b'{"a":1}', [], 5)).bodies[0]) == b'{"data":{"a":1}}'
    with_headers = stored_of((None, b'{"a":1}', [("x", b"y")], 5)).bodies[0]
    assert shown(with_headers) == b'{"data":{"a":1},"meta":{"x":"y"}}'
    assert shown(b'{"data":{"a":1,"ct":5}}') == b'{"data":{"a":1,"ct":5}}'
    assert shown(stored_of((None, None, [], 5)).bodies[0]) == b'{"data":{"$base64":""}}'
