"""Records and jobs as JSON: exactly the parts of a stored body that readers may see."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernel
from kernel import Header, RowShape
from tests.kernel.samples import Sample, batches, headers, log_of, texts

pytestmark = pytest.mark.usefixtures("twin")

WHOLE = RowShape.META | RowShape.DATA
HEADER = Header(7, 100, 1_700_000_000_000, b"", 4)


def shown(sample: Sample) -> bytes:
    """The members of its object that readers see."""
    data = b'{"$base64":"%b"}' % b64encode(sample.data) if sample.kind & 1 else sample.data
    return b'"data":%b%b}' % (data, b"" if sample.meta is None else b',"meta":' + sample.meta)


def labels(node: bytes, tag: bytes) -> bytes:
    text = b',"$node":' + msgspec.json.encode(node.decode()) if node else b""
    return text + (b',"$tag":' + msgspec.json.encode(tag.decode()) if tag else b"")


@given(batches, headers)
def test_rows_have_data_and_meta_as_appended(batch: list[Sample], header: Header) -> None:
    log = log_of(batch, header)
    expected = [
        b'{"$seq":%d,"$ts":%d%b,%b'
        % (header.first_seq + number, header.ts, labels(each.node or header.node, each.tag or b""), shown(each))
        for number, each in enumerate(batch)
    ]
    columns = kernel.scan(log).columns
    assert kernel.render_rows(log, columns, WHOLE | RowShape.TAGS) == b",".join(expected)
    data, _ = kernel.to_segment(log, columns)
    segment = kernel.scan(data, kernel.Kind.SEGMENT).columns
    assert kernel.render_rows(data, segment, WHOLE | RowShape.TAGS) == b",".join(expected)


@given(batches, headers, st.integers(0, 15))
def test_each_shape_renders_exactly_its_fields(batch: list[Sample], header: Header, shape: int) -> None:
    log = log_of(batch, header)
    rows = json.loads(b"[" + kernel.render_rows(log, kernel.scan(log).columns, shape) + b"]", parse_constant=None)
    for number, (row, sample) in enumerate(zip(rows, batch, strict=True)):
        whole = json.loads(b"{" + shown(sample))
        wanted: dict[str, Any] = {"$seq": header.first_seq + number, "$ts": header.ts}
        if node := sample.node or header.node:
            wanted["$node"] = node.decode()
        if sample.tag and shape & RowShape.TAGS:
            wanted["$tag"] = sample.tag.decode()
        if shape & RowShape.STORED and sample.body != b"{" + shown(sample):
            wanted["$stored"] = b64encode(sample.body).decode()
        wanted |= {"data": whole["data"]} if shape & RowShape.DATA else {}
        wanted |= {"meta": whole["meta"]} if shape & RowShape.META and "meta" in whole else {}
        assert row == wanted


@given(batches, headers, st.data())
def test_jobs_are_rendered_with_their_leases(batch: list[Sample], header: Header, choice: st.DataObject) -> None:
    count = len(batch)
    numbers = st.lists(st.integers(0, (1 << 64) - 1), min_size=count, max_size=count)
    ids, deadlines, deliveries = choice.draw(numbers), choice.draw(numbers), choice.draw(numbers)
    log = log_of(batch, header)
    columns = kernel.scan(log).columns
    expected = [
        b'{"$seq":%d,"lease_id":"lease_%016x","deadline":%d,"$ts":%d%b,"deliveries":%d,%b'
        % (
            header.first_seq + number,
            ids[number],
            deadlines[number],
            header.ts,
            labels(each.node or header.node, each.tag or b""),
            deliveries[number],
            shown(each),
        )
        for number, each in enumerate(batch)
    ]
    assert kernel.render_job_rows(log, columns, ids, deadlines, deliveries) == b",".join(expected)
    assert kernel.render_jobs(_records(log, columns), ids, deadlines, deliveries) == b",".join(expected)
    alike = kernel.render_job_rows(log, columns, ids, 5, 1)
    assert alike == kernel.render_job_rows(log, columns, ids, [5] * count, [1] * count)


def _records(log: bytes, columns: kernel.Columns) -> list[tuple[int, int, bytes, bytes, bytes]]:
    parts = kernel.parts(log, columns)
    return [*zip(columns.seqs, columns.stamps, *parts, strict=True)]


@given(batches, headers, st.integers(0, 15))
def test_records_are_rendered_like_their_frames(batch: list[Sample], header: Header, shape: int) -> None:
    log = log_of(batch, header)
    columns = kernel.scan(log).columns
    assert kernel.render_records(_records(log, columns), shape) == kernel.render_rows(log, columns, shape)


def show(body: bytes, shape: int = WHOLE) -> Any:
    """The row of a record with this body."""
    row = json.loads(kernel.render_records([(1, 2, b"", b"", body)], shape))
    return {key: value for key, value in row.items() if key not in ("$seq", "$ts")}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"data":1,"ct":5}', {"data": 1}),
        (b'{"data":1,"ct":-5}', {"data": 1}),
        (b'{"data":1,"deliver_at":5}', {"data": 1}),
        (b'{"data":1,"meta":{"a":2},"deliver_at":5}', {"data": 1, "meta": {"a": 2}}),
        (b'{"data":"x","ct":5,"h":[["a","eA=="]]}', {"data": "x"}),
        (b'{"data":{"h":1,"ct":2},"meta":3,"ct":5,"h":[["a",null]]}', {"data": {"h": 1, "ct": 2}, "meta": 3}),
        (b'{"data":[1,{"a":0,"h":[2]}]}', {"data": [1, {"a": 0, "h": [2]}]}),
        (b'{"data":{"a":1,"ct":5}}', {"data": {"a": 1, "ct": 5}}),
        (b'{"data": [1] }', {"data": [1]}),
        (b'{"data":"a,\\"h\\":b"}', {"data": 'a,"h":b'}),
        (b"\x80", {"data": {"$base64": ""}}),
        (msgspec.msgpack.encode({"v": b"x"}), {"data": {"$base64": "eA=="}}),
        (msgspec.msgpack.encode({"v": None, "k": b"a"}), {"data": {"$base64": ""}}),
        (
            msgspec.msgpack.encode({"k": [1, {"a": 2.5}, None, -1, 1 << 40], "v": b"x", "meta": '{"a":1}'}),
            {"data": {"$base64": "eA=="}, "meta": {"a": 1}},
        ),
    ],
)
def test_internal_fields_are_not_rendered(body: bytes, expected: dict[str, Any]) -> None:
    assert show(body) == expected
    assert show(body, RowShape.DATA) == {"data": expected["data"]}
    assert show(body, RowShape.META) == ({"meta": expected["meta"]} if "meta" in expected else {})


def test_a_map_may_hold_long_lists_and_maps() -> None:
    many = {"k": [*range(20), {f"{number}": [None] * 70_000 for number in range(20)}], "v": b"x"}
    body = msgspec.msgpack.encode(many)
    assert show(body) == {"data": {"$base64": "eA=="}}
    for size in (5, 40, 400, len(body) - 3):
        with pytest.raises(ValueError, match="record"):
            kernel.render_records([(1, 2, b"", b"", body[:size])], WHOLE)


@pytest.mark.parametrize(
    "record", [(1, 2, b"", b""), (1, 2, "n", b"", b'{"data":1}'), ("1", 2, b"", b"", b'{"data":1}')]
)
def test_an_invalid_record_tuple_is_refused(record: Any) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError)):
        kernel.render_records([record], WHOLE)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x81",
        b"\xc1",
        b"\x81\xa1v\xc4\x05abc",
        b'{"meta":1}',
        b'{"data":',
        b'{"data":1',
        b"[1]",
        b"\xdf\xff\xff\xff\xff",
    ],
)
def test_an_invalid_body_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="record"):
        kernel.render_records([(1, 2, b"", b"", body)], RowShape.DATA)


@given(st.binary(max_size=12))
def test_labels_are_quoted_as_by_msgspec(text: bytes) -> None:
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        with pytest.raises(ValueError, match=r"UTF-8|utf-8"):
            kernel.render_records([(1, 2, text, b"", b'{"data":1}')], WHOLE)
        return
    row = kernel.render_records([(1, 2, text, b"", b'{"data":1}')], WHOLE)
    assert row == b'{"$seq":1,"$ts":2%b,"data":1}' % (b',"$node":' + msgspec.json.encode(decoded) if text else b"")


@given(texts)
def test_labels_are_rendered_unchanged(text: str) -> None:
    row = json.loads(kernel.render_records([(1, 2, b"", text.encode(), b'{"data":1}')], WHOLE | RowShape.TAGS))
    assert row.get("$tag", "") == text


def test_columns_of_jobs_must_be_as_long_as_the_records() -> None:
    log = log_of([Sample(b"1")], HEADER)
    columns = kernel.scan(log).columns
    for ids, deadlines, deliveries in (([], 1, 1), ([1], [], 1), ([1], 1, [1, 2])):
        with pytest.raises(ValueError, match=r"lease_ids|deadlines|deliveries|lease ids"):
            kernel.render_job_rows(log, columns, ids, deadlines, deliveries)


def test_large_answers_are_the_same_rows() -> None:
    batch = [Sample(b'"%d-%b"' % (number, b"y" * 900)) for number in range(300)]
    log = log_of(batch, HEADER)
    rows = json.loads(b"[" + kernel.render_rows(log, kernel.scan(log).columns) + b"]")
    assert [row["$seq"] for row in rows] == [*range(100, 400)]
