"""Values that can be appended, and values that are rejected before sending."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics_client.encoding import encode_records, json_text, why_not_json
from topics_client.errors import InvalidRequest
from topics_client.values import NewRecord, Record

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(st.lists(json_values, min_size=1, max_size=5))
def test_json_values_are_encoded_unchanged(values: list[Any]) -> None:
    assert [json.loads(text) for text in encode_records(values)] == [{"data": value} for value in values]


def test_bytes_are_json_already_and_kept() -> None:
    assert encode_records([b' {"a": 1e400}', b"1.10"]) == [b'{"data": {"a": 1e400}}', b'{"data":1.10}']


def test_a_string_is_a_value_not_json_text() -> None:
    assert encode_records(["1"]) == [b'{"data":"1"}']


def test_a_record_can_carry_tag_node_meta_and_times() -> None:
    record = NewRecord(data=1, tag="t", node="n", meta=b'{"k" :1}', delay_ms=5)
    assert encode_records([record]) == [b'{"data":1,"meta":{"k" :1},"tag":"t","node":"n","delay_ms":5}']


def test_a_record_returned_by_read_can_be_appended() -> None:
    read = Record(seq=9, ts=9, node="n", tag="t", data_raw=b"1e400", meta_raw=b"{}")
    assert encode_records([read]) == [b'{"data":1e400,"meta":{},"tag":"t","node":"n"}']


def test_values_that_msgspec_encodes_are_accepted() -> None:
    assert encode_records([datetime(2013, 1, 1, tzinfo=UTC)]) == [b'{"data":"2013-01-01T00:00:00Z"}']


@pytest.mark.parametrize("value", [math.nan, math.inf, [-math.inf], object(), "\ud800", {("a", "b"): 1}, {1, object()}])
def test_a_value_without_a_json_form_is_refused_with_its_field(value: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"records\[1\]\.data") as caught:
        encode_records([0, value])
    assert caught.value.detail == {"field": "records[1].data"}


@dataclass
class Measured:
    """A value that both encoders take, and write differently if it is not a number."""

    value: float


class Name(str):
    """Text of a program's own type."""


@pytest.mark.parametrize(
    "value",
    [
        Measured(math.nan),
        {"deep": [{"value": math.inf}]},
        msgspec.Raw(b'1},{"data":2'),
        {"data": msgspec.Raw(b"[")},
        msgspec.Raw(b""),
    ],
)
def test_what_one_encoder_would_let_through_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^records\[0\]\.data "):
        encode_records([value])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": None, "b": 1e16}, b'{"a":null,"b":1e+16}'),
        ("null", b'"null"'),
        (Measured(0.5), b'{"value":0.5}'),
        (Name("x"), b'"x"'),
        ({Name("x"): Name("y")}, b'{"x":"y"}'),
        ({1: 2, False: 3, None: 4}, b'{"1":2,"false":3,"null":4}'),
        (2**80, b"1208925819614629174706176"),
        ((1, {2}), b"[1,[2]]"),
    ],
)
def test_values_of_either_encoder(value: Any, text: bytes) -> None:
    assert encode_records([value]) == [b'{"data":%b}' % text]


@pytest.mark.parametrize("one", ["text", b"1", {"a": 1}, NewRecord(data=1)])
def test_one_record_in_place_of_a_list_is_refused(one: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"\[record\]"):
        encode_records(one)


def test_a_circular_value_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InvalidRequest):
        json_text(value, "data")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"  ",
        b"{",
        b"[1,]",
        b"NaN",
        b"01",
        b'"a\nb"',
        b'"\\ud800"',
        b'"\xff"',
        b"1 2",
        b'1},{"data":2',
        b"'a'",
        b"[" * 100_000,
    ],
)
def test_bytes_that_are_not_one_json_value_are_refused(raw: bytes) -> None:
    assert why_not_json(raw)
    with pytest.raises(InvalidRequest, match="not valid JSON"):
        encode_records([raw])


@given(json_values)
def test_valid_json_is_accepted(value: Any) -> None:
    assert why_not_json(json.dumps(value).encode()) is None
