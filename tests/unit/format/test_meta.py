"""A new meta for a stored body: no other byte of the body changes, for any body."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.format.binary import as_json, binary_value
from storage.format.meta import meta_of, with_meta
from storage.format.record import payload_size, split_body
from tests.support.bodies import binary_body

some_bytes = st.binary(max_size=40)
some_headers = st.none() | st.lists(st.tuples(st.text(max_size=4), st.none() | some_bytes), min_size=1, max_size=3)
texts = st.text(max_size=10).map(lambda text: json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"))
#: Data that looks like the fields after it, with spaces around it.
lookalikes = st.sampled_from([b"1", b' {"a" : 1}\n', b'{"a":1,"meta":2,"ct":3}', b'",\\"meta\\":"', b'[",\\"h\\":[]"]'])
datas = lookalikes | texts
metas = st.sampled_from([b"{}", b'{"a": 1, "ct":5}', b"7", b'"x"', '{"ü":"é"}'.encode()])


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    ct = draw(st.none() | st.integers(0, 1 << 45))
    headers = draw(some_headers)
    # Without headers the create time follows directly after data.
    meta = draw(st.none() | metas) if ct is None or headers else None
    parts = [b'{"data":', draw(datas), b"" if meta is None else b',"meta":' + meta]
    parts.append(b"" if ct is None else b',"ct":%d' % ct)
    parts.append(b"" if headers is None else b',"h":' + msgspec.json.encode(headers))
    return b"".join(parts) + draw(st.sampled_from([b"}", b',"later":{"x": [1]}}']))


@st.composite
def maps(draw: st.DrawFn) -> bytes:
    fields: dict[str, Any] = {}
    if draw(st.booleans()):
        fields["ct"] = draw(st.integers(1 << 33, 1 << 45))
    if (key := draw(st.none() | some_bytes)) is not None:
        fields["k"] = key
    if (headers := draw(some_headers)) is not None:
        fields["h"] = headers
    whole = bytearray(binary_body(draw(some_bytes)))
    whole[0] += len(fields)
    for name, value in fields.items():
        whole += msgspec.msgpack.encode(name) + msgspec.msgpack.encode(value)
    return bytes(whole)


def without_meta(body: bytes) -> Any:
    decode = msgspec.json.decode if body[:1] == b"{" else msgspec.msgpack.decode
    fields = decode(body)
    fields.pop("meta", None)
    if fields.get("h") == []:
        del fields["h"]
    return fields


@given(objects() | maps(), metas)
def test_with_meta_changes_only_the_meta(body: bytes, meta: bytes) -> None:
    changed = with_meta(body, meta)
    assert meta_of(changed) == meta
    assert bytes(split_body(changed).meta) == meta
    assert split_body(changed).data == split_body(body).data
    assert without_meta(changed) == without_meta(body)
    assert payload_size(changed, 0, len(changed)) > 0


@given(objects() | maps(), metas, metas)
def test_the_first_meta_again_is_the_first_body_again(body: bytes, one: bytes, two: bytes) -> None:
    first = meta_of(body)
    assert with_meta(with_meta(with_meta(body, one), two), first) == body


def test_spaces_around_data_stay() -> None:
    assert with_meta(b'{"data": 1\n,"ct":5,"h":[["a",null]]}', b"{}") == (
        b'{"data": 1\n,"meta":{},"ct":5,"h":[["a",null]]}'
    )


def test_a_body_with_meta_does_not_end_like_a_body_with_only_a_create_time() -> None:
    changed = with_meta(b'{"data":1,"ct":1700000000000}', b'{"a":"b"}')
    assert changed == b'{"data":1,"meta":{"a":"b"},"ct":1700000000000,"h":[]}'
    assert with_meta(changed, b"") == b'{"data":1,"ct":1700000000000}'


def test_the_bytes_of_raw_bytes_with_a_meta_are_pinned() -> None:
    body = with_meta(binary_body(b"\x00\xff"), b'{"a":1}')
    assert body == b'\x82\xd9\x01v\xc6\x00\x00\x00\x02\x00\xff\xa4meta\xa7{"a":1}'
    assert binary_value(body) == b"\x00\xff"
    assert as_json(body) == b'{"data":{"$base64":"AP8="},"meta":{"a":1}}'
    assert with_meta(body, b"") == binary_body(b"\x00\xff")


def test_adding_meta_to_a_map_of_15_keys_keeps_every_key() -> None:
    fields = {"v": b"x"} | {f"later{number}": number for number in range(14)}
    body = with_meta(msgspec.msgpack.encode(fields), b"{}")
    assert msgspec.msgpack.decode(body) == fields | {"meta": "{}"}


@pytest.mark.parametrize("body", [b"", b"{", b'{"data":1', binary_body(b"abc")[:-1]])
def test_a_malformed_body_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        meta_of(body)
    with pytest.raises(msgspec.DecodeError):
        with_meta(body, b"{}")
