"""How JSON lines become batches."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics_client.commands.lines import BadLine, batches, read_lines


def grouped(lines: Iterable[bytes | None], max_records: int = 2, **limits: int) -> list[list[bytes]]:
    return [batch.records for batch in batches(lines, max_records, **limits)]


def test_lines_are_grouped_in_order() -> None:
    assert grouped([b"1\n", b"2\n", b"3\n"]) == [[b"1", b"2"], [b"3"]]


def test_a_batch_is_closed_before_a_line_exceeds_max_bytes() -> None:
    assert grouped([b'"aaaa"', b'"bbbb"', b'"cccc"'], 9, max_bytes=12) == [[b'"aaaa"', b'"bbbb"'], [b'"cccc"']]


def test_a_record_too_big_for_any_batch_goes_alone() -> None:
    assert grouped([b"1", b'"bbbbbbbb"', b"3"], 9, max_bytes=5) == [[b"1"], [b'"bbbbbbbb"'], [b"3"]]


def test_empty_lines_carriage_returns_and_a_byte_order_mark_are_no_records() -> None:
    assert grouped([b"\xef\xbb\xbf1\r\n", b"\n", b"  \n", b"2\r\n"]) == [[b"1", b"2"]]


def test_line_numbers_count_empty_lines() -> None:
    (batch,) = batches([b"1\n", b"\n", b"3\n"], 5)
    assert batch.numbers == [1, 3]


def test_an_invalid_line_is_named_and_the_batch_with_the_line_is_not_returned() -> None:
    given: list[list[bytes]] = []
    with pytest.raises(BadLine, match=r"Line 5 is not valid JSON: trailing comma in array \(byte 3\)") as caught:
        given.extend(batch.records for batch in batches([b"1", b"2", b"", b"3", b"[4,]"], 2))
    assert caught.value.number == 5
    assert given == [[b"1", b"2"]]


@pytest.mark.parametrize("line", [b"{", b"nan", b'"\xff"', b"1 2", b"\x0c1", b"\xef\xbb\xbf1"])
def test_a_line_that_is_not_json_is_refused(line: bytes) -> None:
    with pytest.raises(BadLine, match="Line 2"):
        grouped([b"1", line])


def test_a_pause_of_the_source_closes_a_batch() -> None:
    assert grouped([b"1", None, None, b"2", None], 9) == [[b"1"], [b"2"]]


@given(st.lists(st.integers(0, 10**6)), st.integers(1, 7))
def test_the_same_lines_make_the_same_batches_again(values: list[int], max_records: int) -> None:
    lines = [b"%d\n" % value for value in values]
    first = grouped(lines, max_records, max_bytes=20)
    assert first == grouped(lines, max_records, max_bytes=20)
    assert [record for batch in first for record in batch] == [line.strip() for line in lines]


def test_a_pipe_gives_complete_lines_and_none_when_idle() -> None:
    reading, writing = os.pipe()
    go_on = threading.Event()

    def write() -> None:
        with os.fdopen(writing, "wb", buffering=0) as pipe:
            pipe.write(b"1\n2")
            go_on.wait()
            pipe.write(b"2\n3")

    writer = threading.Thread(target=write)
    writer.start()
    got: list[bytes | None] = []
    with os.fdopen(reading, "rb") as pipe:
        for line in read_lines(pipe, linger_s=0.001):
            got.append(line)
            if line is None:
                go_on.set()
    writer.join()
    assert [line for line in got if line is not None] == [b"1\n", b"22\n", b"3"]
    assert None in got


@given(st.lists(st.binary(max_size=5).map(lambda raw: raw.replace(b"\n", b""))))
def test_the_lines_of_a_file_are_yielded_unchanged(lines: list[bytes]) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(b"".join(line + b"\n" for line in lines))
    with os.fdopen(reading, "rb") as pipe:
        assert list(read_lines(pipe, linger_s=None)) == [line + b"\n" for line in lines]
