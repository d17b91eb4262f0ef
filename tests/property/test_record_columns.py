"""Records with tags, nodes and metas: encoded by columns or one by one, with the same bytes, sizes and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kernel import Header
from storage.errors import StorageError
from storage.format import wal_frame
from storage.log import encode
from storage.log.encode import DURABLE
from storage.log.validation import check_delays, check_records
from storage.options import Options
from storage.records.values import BinaryRecord, NewRecord
from tests.support.bodies import binary_body

NOW = 1_700_000_000_000
SMALL = Options(
    max_batch_records=30, max_record_bytes=40, max_tag_bytes=4, max_node_bytes=3, max_meta_bytes=25, max_meta_keys=2
)
raws = st.sampled_from([b"1", b"null", b'"text"', b'{"a":1,"meta":{}}', b'[":",":",":"]', b'"' + b"x" * 39 + b'"'])
metas = st.sampled_from([b"null", b"{}", b' {"a":1}', b'{"a":1,"b":2,"c":3}', b'{"a":":::"}', b'"' + b"m" * 26 + b'"'])


@st.composite
def writes(draw: st.DrawFn) -> list[NewRecord]:
    """Most fields are present in all records or in none, and valid."""
    texts = st.sampled_from(["a", "bb", "\u00e4"])
    rarely_wrong = texts | st.sampled_from(["", "aaaaa", "\ud800"]) if draw(st.integers(0, 3)) == 0 else texts
    given_fields: dict[str, st.SearchStrategy[Any]] = {}
    for field, values in (("tag", rarely_wrong), ("node", rarely_wrong), ("meta", metas.map(msgspec.Raw))):
        given_fields[field] = draw(st.sampled_from([st.none(), values, st.none() | values]))
    if draw(st.integers(0, 5)) == 0:
        given_fields["delay_ms"] = st.none() | st.integers(-1, 5)
    record = st.builds(NewRecord, raws.map(msgspec.Raw), **given_fields)
    if draw(st.integers(0, 7)) == 0:
        record |= st.builds(BinaryRecord, st.just(b"raw"))
    return draw(st.lists(record, min_size=draw(st.sampled_from([1, 17])), max_size=32))


heads = st.builds(
    Header,
    st.just(7),
    st.sampled_from([1, 250, 65_530]),
    st.just(NOW),
    st.sampled_from([b"", b"n"]),
    st.sampled_from([0, DURABLE]),
)


@given(writes(), heads, st.booleans())
def test_encoding_by_columns_equals_encoding_each_record(records: list[NewRecord], head: Header, more: bool) -> None:
    wanted = refusal(lambda: (check_records(records, SMALL), check_delays(records, NOW)))
    assert refusal(lambda: encode.measured(records, SMALL, lambda: NOW)) == wanted
    if wanted is not None:
        return
    sizes = check_records(records, SMALL)
    made, payloads, used = encode.measured(records, SMALL, lambda: NOW)
    assert (list(payloads), used) == (list(sizes), check_delays(records, NOW))
    node = head.node.decode() or None
    assert encode.hash_of(made, payloads, node) == encode.hash_of(records, payloads, node)
    frames, run = encode.encoded(made, head, payloads, more=more)
    last = len(records) - 1
    one_by_one = [_frame(each, head, index, more or index < last) for index, each in enumerate(records)]
    assert frames == b"".join(one_by_one)
    assert (run.first_seq, run.ts, [*run.sizes]) == (head.first_seq, head.ts, [*map(len, one_by_one)])
    assert run.tagged == [(each.tag.encode(), seq) for seq, each in enumerate(records, head.first_seq) if each.tag]
    late = [(seq, NOW + each.delay_ms) for seq, each in enumerate(records, head.first_seq) if each.delay_ms is not None]
    assert [*run.delayed] == late


def _frame(record: NewRecord, head: Header, index: int, more: bool) -> bytes:
    flags = (wal_frame.MORE if more else 0) | head.flags
    tag, node = (record.tag or "").encode(), record.node.encode() if record.node else head.node
    if isinstance(record, BinaryRecord):
        flags, body = flags | 16, binary_body(bytes(record.data))
    else:
        meta = b"" if record.meta is None else b',"meta":%b' % record.meta
        due = b"" if record.delay_ms is None else b',"deliver_at":%d' % (NOW + record.delay_ms)
        body = b'{"data":%b%b%b}' % (record.data, meta, due)
    return wal_frame.encode(1, flags, head.topic_id, head.first_seq + index, head.ts, node, tag, body)


def refusal(check: Callable[[], object]) -> tuple[Any, ...] | None:
    try:
        check()
    except StorageError as error:
        return type(error), error.message, error.detail
    return None
