"""Bodies of raw bytes: encoding, decoding, and that raw bytes and JSON are never confused."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.format.binary import MARK, OVERHEAD, as_json, binary_value, is_binary
from storage.format.record import PLAIN_OVERHEAD, delivered_at, payload_size, split_body
from tests.support.bodies import binary_body

some_bytes = st.binary(max_size=80)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(some_bytes)
def test_bytes_are_decoded_unchanged(value: bytes) -> None:
    assert binary_value(binary_body(value)) == value


@given(some_bytes)
def test_any_messagepack_decoder_reads_a_binary_body(value: bytes) -> None:
    assert msgspec.msgpack.decode(binary_body(value)) == {"v": value}


def test_the_bytes_of_a_body_are_pinned() -> None:
    assert binary_body(b"\x00\xff") == b"\x81\xd9\x01v\xc6\x00\x00\x00\x02\x00\xff"


def test_counting_by_columns_need_not_tell_the_two_apart() -> None:
    assert OVERHEAD == PLAIN_OVERHEAD


@pytest.mark.parametrize("value", [b"", b'{"id":1,"meta":2}', b',"deliver_at":123}', b"\x00" * 300])
def test_payload_size_of_a_binary_body_is_the_length_of_the_bytes(value: bytes) -> None:
    body = binary_body(value)
    around = b'{"data":1}' + body + b'{"data":1,"meta":2}'
    assert payload_size(around, 10, 10 + len(body)) == len(value)
    assert delivered_at(around, 10, 10 + len(body)) == 0


def test_other_maps_are_read_too() -> None:
    other = b"\x82\xa1k\xc0\xa1v\xc4\x02\x00\xff"
    assert is_binary(other)
    assert binary_value(other) == b"\x00\xff"
    assert payload_size(other, 0, len(other)) == len(other) - PLAIN_OVERHEAD
    assert binary_value(b"\x81\xa1v\xc0") == b""


def test_a_body_cut_short_is_none() -> None:
    with pytest.raises(msgspec.DecodeError):
        binary_value(binary_body(b"abc")[:-1])


@given(some_bytes)
def test_json_readers_see_base64(value: bytes) -> None:
    shown = json.loads(as_json(binary_body(value)))
    assert base64.b64decode(shown["data"]["$base64"]) == value
    assert json.loads(bytes(split_body(binary_body(value)).data)) == shown["data"]


@given(json_values)
def test_no_json_is_taken_for_raw_bytes(value: Any) -> None:
    body = b'{"data":%b}' % json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    assert not is_binary(body)
    assert MARK not in body
    assert as_json(body) == body
