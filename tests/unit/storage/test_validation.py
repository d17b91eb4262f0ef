"""Limits of a write: each holds exactly, and the error names the field."""

from __future__ import annotations

import msgspec
import pytest

from storage import NewRecord, Options
from storage.errors import BatchTooLarge, InvalidRequest, RecordTooLarge
from storage.log.validation import (
    MAX_DELAY_MS,
    check_address,
    check_delays,
    check_plain,
    check_records,
    check_text,
    check_topic_name,
)
from storage.records.values import PlainRecords
from tests.unit.storage.machine import record, sized

NOW_MS = 1_700_000_000_000
SMALL = Options(
    max_batch_records=3, max_record_bytes=40, max_meta_bytes=20, max_meta_keys=2, max_tag_bytes=4, max_node_bytes=5
)


def meta_of(size: int) -> msgspec.Raw:
    return msgspec.Raw(b'"' + b"m" * (size - 2) + b'"')


@pytest.mark.parametrize("name", ["a", "_", "0", "A.b_c:d-e", "a" * 255, "_-", "a..b"])
def test_valid_topic_names_are_accepted(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".a", "-a", ":a", "a" * 256, "a b", "a/b", "ä", "a\n", "a>b", "a%b", "\x00"])
def test_invalid_topic_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_topic_name(name)
    assert caught.value.detail == {"field": "topic"}


@pytest.mark.parametrize("text", ["a", "abcd", "äö", "𝄞"])
def test_a_text_within_its_byte_limit_is_returned_as_utf8(text: str) -> None:
    assert check_text(text, "node", 4) == text.encode()


@pytest.mark.parametrize("text", ["", "abcde", "äöü", "\ud800"])
def test_an_empty_long_or_non_text_value_is_refused_with_its_field(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_text(text, "node", 4)
    assert caught.value.detail == {"field": "node"}
    assert caught.value.code == "invalid_request"


def test_sizes_are_the_sizes_of_data_and_meta_as_sent() -> None:
    assert list(check_records([record("é"), record([1, 2], meta={"k": 1})], Options())) == [8, 5 + 7]


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_records([], SMALL)
    assert caught.value.detail == {"field": "records"}


def test_a_batch_over_max_batch_records_is_refused() -> None:
    assert len(check_records([record()] * 3, SMALL)) == 3
    with pytest.raises(BatchTooLarge) as caught:
        check_records([record()] * 4, SMALL)
    assert caught.value.code == "batch_too_large"
    assert caught.value.detail["max"] == 3


@pytest.mark.parametrize("plain", [False, True])
def test_a_record_over_max_record_bytes_is_refused(plain: bool) -> None:
    def check(batch: list[NewRecord]) -> list[int]:
        return list(
            check_plain(PlainRecords([each.data for each in batch]), SMALL) if plain else check_records(batch, SMALL)
        )

    assert check([sized(40)]) == [40]
    with pytest.raises(RecordTooLarge) as caught:
        check([sized(2), sized(41)])
    assert caught.value.code == "record_too_large"
    assert caught.value.detail == {"field": "records[1]", "max": 40}


def test_data_and_meta_count_together() -> None:
    within = NewRecord(sized(30).data, meta_of(10))
    assert list(check_records([within], SMALL)) == [40]
    with pytest.raises(RecordTooLarge):
        check_records([NewRecord(sized(31).data, meta_of(10))], SMALL)


def test_a_meta_over_its_byte_limit_is_refused() -> None:
    check_records([NewRecord(sized(2).data, meta_of(20))], SMALL)
    with pytest.raises(InvalidRequest) as caught:
        check_records([record(), NewRecord(sized(2).data, meta_of(21))], SMALL)
    assert caught.value.detail == {"field": "records[1].meta"}


@pytest.mark.parametrize("meta", [b'{"a":1,"b":2}', b"[1,2,3,4]", b"{}", b'"{"', b'{"a":{"x":1,"y":2}}'])
def test_the_maximum_number_of_meta_keys_is_accepted(meta: bytes) -> None:
    check_records([NewRecord(sized(2).data, msgspec.Raw(meta))], SMALL)


@pytest.mark.parametrize("meta", [b'{"a":1,"b":2,"c":3}', b' {"a":1,"b":2,"c":3}', b'\n\t{"a":1,"b":2,"c":3}'])
def test_a_meta_with_too_many_keys_is_refused(meta: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_records([NewRecord(sized(2).data, msgspec.Raw(meta))], SMALL)
    assert caught.value.detail == {"field": "records[0].meta"}


@pytest.mark.parametrize(("field", "limit"), [("tag", 4), ("node", 5)])
def test_a_tag_or_node_over_its_byte_limit_is_refused(field: str, limit: int) -> None:
    check_records([record(0, **{field: "x" * limit})], SMALL)
    check_records([record(0, **{field: ""})], SMALL)  # as if it were not given
    for wrong in ("x" * (limit + 1), "é" * limit):
        with pytest.raises(InvalidRequest) as caught:
            check_records([record(), record(0, **{field: wrong})], SMALL)
        assert caught.value.detail == {"field": f"records[1].{field}"}


def test_the_documented_limits_are_the_defaults() -> None:
    defaults = Options()
    assert (defaults.max_batch_records, defaults.max_record_bytes) == (10_000, 1 << 20)
    assert (defaults.max_meta_bytes, defaults.max_meta_keys) == (16_384, 64)
    assert (defaults.max_tag_bytes, defaults.max_node_bytes, defaults.max_key_bytes) == (256, 128, 256)


@pytest.mark.parametrize(
    "more", [{"delay_ms": 0}, {"delay_ms": MAX_DELAY_MS}, {"deliver_at": 0}, {"deliver_at": NOW_MS + MAX_DELAY_MS}]
)
def test_delays_up_to_366_days_are_taken_and_named(more: dict[str, int]) -> None:
    used = check_delays([record(), record(0, **more), record(0, delay_ms=1)], NOW_MS)
    assert used == f"records[1].{next(iter(more))}"


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"delay_ms": -1}, "delay_ms"),
        ({"delay_ms": MAX_DELAY_MS + 1}, "delay_ms"),
        ({"deliver_at": -1}, "deliver_at"),
        ({"deliver_at": NOW_MS + MAX_DELAY_MS + 1}, "deliver_at"),
        ({"delay_ms": 1, "deliver_at": NOW_MS}, "delay_ms"),
    ],
)
def test_a_delay_out_of_range_is_refused_with_its_field(more: dict[str, int], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_delays([record(), record(0, **more)], NOW_MS)
    assert caught.value.detail == {"field": f"records[1].{field}"}


def test_records_without_delays_use_no_field() -> None:
    assert check_delays([record(), record()], NOW_MS) == ""


@pytest.mark.parametrize("good", ["orders", "orders/1", "_o:1/1023"])
def test_a_topic_name_with_or_without_a_partition_is_an_address(good: str) -> None:
    check_address(good)


@pytest.mark.parametrize(
    "bad", ["", "orders/", "orders/0", "orders/01", "orders/-1", "orders/x", "/1", "a/1/2", "a/99999"]
)
def test_an_invalid_address_is_refused(bad: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_address(bad)
    assert caught.value.detail == {"field": "topic"}
