"""An appended entry becomes the intended record, or is rejected with its number."""

from __future__ import annotations

import datetime
import math
from typing import Any

import msgspec
import pytest

from storage import BinaryRecord, NewRecord, PlainBinary, PlainRecords
from storage.embedded.entries import one_record, records_of
from storage.errors import InvalidRequest


def test_a_batch_of_bytes_is_not_copied() -> None:
    found = records_of([b"a", b"\xff"])
    assert type(found) is PlainBinary
    assert found == [b"a", b"\xff"]


def test_mutable_buffers_are_copied() -> None:
    changing = bytearray(b"abc")
    found = records_of([changing, memoryview(b"xyz")])
    changing[:] = b"zzz"
    assert [type(each) for each in found] == [BinaryRecord, BinaryRecord]
    assert [bytes(each.data) for each in found] == [b"abc", b"xyz"]  # pyright: ignore


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("é", '"é"'.encode()),
        (1, b"1"),
        (1.5, b"1.5"),
        (None, b"null"),
        (True, b"true"),
        ({"a": [1, None]}, b'{"a":[1,null]}'),
        ([1, [2]], b"[1,[2]]"),
        ([], b"[]"),
        (msgspec.Raw(b"1.10"), b"1.10"),
        (datetime.date(2024, 2, 29), b'"2024-02-29"'),
    ],
)
def test_other_values_become_json(value: Any, text: bytes) -> None:
    found = records_of([value])
    assert type(found) is PlainRecords
    assert [bytes(each) for each in found] == [text]
    mixed = records_of([b"", value])
    assert bytes(mixed[1].data) == text  # pyright: ignore


def test_raw_json_is_taken_unchanged() -> None:
    raw = [msgspec.Raw(b"1"), msgspec.Raw(b"2")]
    assert type(records_of(raw)) is PlainRecords
    plain = PlainRecords(raw)
    assert records_of(plain) is plain


def test_records_made_beforehand_are_kept() -> None:
    made = NewRecord(msgspec.Raw(b"1"), tag="x")
    assert records_of([made, b"y"])[0] is made
    assert one_record(made) == [made]
    assert one_record([made]) == [made]


@pytest.mark.parametrize(
    "value", [object(), {1, object()}, math.nan, {"a": [-math.inf, None]}, [math.inf], "\ud800", {(1, 2): 3}]
)
def test_a_value_without_a_json_form_is_named_by_number(value: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        records_of([1, value])
    assert refused.value.detail["field"] == "records[1]"


@pytest.mark.parametrize("entries", ["text", b"bytes", {"a": 1}])
def test_a_single_entry_is_refused_as_a_batch(entries: Any) -> None:
    with pytest.raises(InvalidRequest):
        records_of(entries)


@pytest.mark.parametrize("value", [[1, 2], ["a"], (b"a",)])
def test_a_list_is_refused_as_a_single_entry(value: Any) -> None:
    with pytest.raises(InvalidRequest):
        one_record(value)
