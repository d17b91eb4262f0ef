"""Range headers alone: every valid one selects the same bytes as a slice."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.api.ranges import parse
from broker.content.errors import RangeNotSatisfiable

SIZES = st.integers(0, 40)
NUMBERS = st.one_of(st.integers(0, 60), st.just(10**30))


@given(size=SIZES, first=NUMBERS, last=st.one_of(st.none(), NUMBERS))
def test_a_range_is_a_slice(size: int, first: int, last: int | None) -> None:
    content = bytes(range(size))
    header = b"bytes=%d-%b" % (first, b"" if last is None else b"%d" % last)
    if last is not None and last < first:
        assert parse(header, size) is None
    elif first >= size:
        with pytest.raises(RangeNotSatisfiable):
            parse(header, size)
    else:
        found = parse(header, size)
        assert found is not None
        begin, end = found
        assert 0 <= begin < end <= size
        assert content[begin:end] == content[first : None if last is None else last + 1]


@given(size=SIZES, count=NUMBERS)
def test_a_suffix_is_the_end(size: int, count: int) -> None:
    content = bytes(range(size))
    if not size or not count:
        with pytest.raises(RangeNotSatisfiable):
            parse(b"bytes=-%d" % count, size)
        return
    found = parse(b"bytes=-%d" % count, size)
    assert found is not None
    assert content[found[0] : found[1]] == content[-count:]


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"",
        b"bytes",
        b"bytes=",
        b"bytes=-",
        b"bytes=a-b",
        b"bytes=1",
        b"bytes=+1-2",
        b"bytes=--1",
        b"bytes=1-2-3",
        b"bytes=0-1,3-4",
        b"bytes=0-1,",
        b"items=0-1",
        b"bytes 0-1",
        b"bytes=0x1-2",
        b"bytes=\xd9\xa3-",
        b"bytes=" + b"9" * 5000 + b"-",
    ],
)
def test_any_other_range_header_is_ignored(header: bytes | None) -> None:
    assert parse(header, 10) is None


@pytest.mark.parametrize("header", [b"Bytes=2-3", b"BYTES=2-3", b"bytes= 2-3", b"bytes=2 - 3 "])
def test_case_and_white_space_of_the_unit_are_ignored(header: bytes) -> None:
    assert parse(header, 10) == (2, 4)


@given(header=st.binary(max_size=30), size=SIZES)
def test_arbitrary_headers_are_parsed_or_ignored(header: bytes, size: int) -> None:
    for text in (header, b"bytes=" + header):
        found = None
        with suppress(RangeNotSatisfiable):
            found = parse(text, size)
        assert found is None or 0 <= found[0] < found[1] <= size
