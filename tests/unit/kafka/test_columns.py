"""Decoding many records at once gives the same result as one by one."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.kafka.mapping import columns_of, to_kafka, to_stored
from storage.records.frame_records import chain_records
from storage.records.values import StoredRecord
from tests.support.bodies import binary_body

NOW = 1_700_000_000_000
of_rest = st.sampled_from(
    [
        b'{"data":{"a":1}}',
        b'{"data":2}',
        b'{"data":{"x":1,"ct":1700000000000}}',
        b'{"data":"\\",\\"meta\\":"}',
        b'{"data":{"a":1,"meta":2}}',
        b'{"data":1,"meta":{"a":"b"}}',
        b'{"data":1,"deliver_at":1700000000000}',
        binary_body(b""),
        binary_body(b"\xff\x00"),
        binary_body(b"x" * 300),
    ]
).map(lambda body: (b"", body))


def from_kafka(values: Any) -> Any:
    stored = to_stored(*map(list, zip(*[values], strict=True)))
    return (stored.tags or [b""])[0], stored.bodies[0]


of_kafka = st.tuples(
    st.none() | st.binary(max_size=3),
    st.none() | st.binary(max_size=5) | st.sampled_from([b"1", b'{"a":1}', b' "x"', b'{"a":1,"ct":1700000000000}']),
    st.lists(st.tuples(st.text(max_size=2), st.none() | st.binary(max_size=2)), max_size=1),
    st.sampled_from([NOW, NOW + 1, 5, -1, 1 << 50]),
).map(from_kafka)
one_kind = st.one_of(of_rest, of_kafka)


@given(
    st.lists(
        st.lists(st.tuples(one_kind, st.sampled_from([b"", b"n"])), min_size=1, max_size=3).flatmap(
            lambda few: st.integers(1, 3).map(lambda times: few * times)
        ),
        min_size=1,
        max_size=4,
    )
)
def test_conversion_by_columns_equals_conversion_of_each_record(parts: Any) -> None:
    seq = 0
    sequences: list[list[StoredRecord]] = []
    for part in parts:
        sequences.append([])
        for (tag, body), node in part:
            seq += 2
            sequences[-1].append(StoredRecord(seq, NOW + seq, node, tag, body))
    records = chain_records([*sequences])
    seqs, (keys, values, headers, stamps) = columns_of(records)
    expected = [to_kafka(each.body, each.tag, each.node, each.ts) for each in records]
    assert [*seqs] == [each.seq for each in records]
    empty: list[Any] = [None] * len(expected)
    found = zip(keys or empty, values, headers or empty, stamps, strict=True)
    assert [(key, value, [*(some or ())], stamp) for key, value, some, stamp in found] == [
        (key, value, [*some], stamp) for key, value, some, stamp in expected
    ]
