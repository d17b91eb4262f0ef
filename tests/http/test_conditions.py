"""If-Match, If-None-Match and If-Range, without a server."""

from __future__ import annotations

import pytest

from broker.api.ranges import has_it, range_counts
from broker.content.errors import PreconditionFailed

TAG = b'"1.1.0"'


@pytest.mark.parametrize(
    "value", [b'"1.1.0"', b"*", b' "1.1.0" ', b'"a", "1.1.0"', b'"a","1.1.0","b"', b'W/"a", "1.1.0"']
)
def test_if_match_accepts_any_tag_of_a_list(value: bytes) -> None:
    assert not has_it({b"if-match": value}, TAG)


@pytest.mark.parametrize("value", [b'"1.1.1"', b"", b"1.1.0", b'W/"1.1.0"', b'"1.1.0', b'"1.1.0.0"', b'"a, 1.1.0"'])
def test_any_other_tag_is_refused(value: bytes) -> None:
    with pytest.raises(PreconditionFailed) as refusal:
        has_it({b"if-match": value}, TAG)
    assert refusal.value.detail == {"etag": '"1.1.0"'}


@pytest.mark.parametrize("value", [b'"1.1.0"', b"*", b'"a", "1.1.0"', b'W/"1.1.0"'])
def test_if_none_match_with_the_current_tag_is_not_sent_again(value: bytes) -> None:
    assert has_it({b"if-none-match": value}, TAG)


@pytest.mark.parametrize("value", [b'"1.1.1"', b"", b"1.1.0", b'"a"'])
def test_if_none_match_with_another_tag_is_sent(value: bytes) -> None:
    assert not has_it({b"if-none-match": value}, TAG)


def test_if_match_is_checked_first() -> None:
    with pytest.raises(PreconditionFailed):
        has_it({b"if-match": b'"other"', b"if-none-match": TAG}, TAG)


def test_a_request_without_conditions_is_sent() -> None:
    assert not has_it({}, TAG)


@pytest.mark.parametrize(
    ("headers", "counts"),
    [
        ({}, True),
        ({b"if-range": TAG}, True),
        ({b"if-range": b'"1.1.1"'}, False),
        ({b"if-range": b'W/"1.1.0"'}, False),
        ({b"if-range": b"Sun, 06 Nov 1994 08:49:37 GMT"}, False),
    ],
)
def test_if_range_with_another_tag_ignores_the_range(headers: dict[bytes, bytes], counts: bool) -> None:
    assert range_counts(headers, TAG) is counts
