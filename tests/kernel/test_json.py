"""Nesting and UTF-8 of text that should be JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernel
from tests.kernel.samples import values

pytestmark = pytest.mark.usefixtures("twin")


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


@given(values)
def test_depth_of_sound_text(text: bytes) -> None:
    assert kernel.check_json(text) == (depth_of(json.loads(text)), -1, -1)


@given(st.binary(max_size=60))
def test_the_first_invalid_utf8_byte_is_the_byte_that_python_names(text: bytes) -> None:
    try:
        text.decode()
        expected = -1
    except UnicodeDecodeError as error:
        expected = error.start
    assert kernel.check_json(text).invalid_at == expected


@pytest.mark.parametrize("first", range(0x80, 0x100))
def test_every_pair_of_bytes_is_judged_as_python_does(first: int) -> None:
    for second in range(0x100):
        for rest in (b"", b"\x80", b"\x80\x80", b"a"):
            text = b'"' + bytes((first, second)) + rest
            try:
                text.decode()
                expected = -1
            except UnicodeDecodeError as error:
                expected = error.start
            assert kernel.check_json(text).invalid_at == expected


@pytest.mark.parametrize("opening", [b"[", b"{", b'{"a":['])
def test_the_byte_beyond_the_depth_limit_is_named(opening: bytes) -> None:
    per = sum(opening.count(bracket) for bracket in (b"[", b"{"))
    for depth in (1, 5, 256):
        text = opening * (depth // per + 1)
        brackets = [at for at, byte in enumerate(text) if byte in b"[{"]
        found = kernel.check_json(text, depth)
        expected = brackets[depth] if len(brackets) > depth else -1
        assert (found.depth, found.deep_at) == (len(brackets), expected)


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        (b"", 0),
        (b'"[[[["', 0),
        (b'"\\"[[["', 0),
        (b'"\\\\"[', 1),
        (b'["a]","[",{"}":"{"}]', 2),
        (b'"' + b"x" * 100 + b'[\\\\"[[', 2),
        (b'"unterminated [[[', 0),
        (b'"at the end \\', 0),
        (b"]]]][", 1),
        ('["\U0001f600[[\\\u00e9["]'.encode(), 1),
    ],
)
def test_brackets_in_strings_do_not_count(text: bytes, depth: int) -> None:
    assert kernel.check_json(text).depth == depth


def test_large_text_has_the_same_result() -> None:
    text = b"[" + b",".join(b'"%d [{ \\" "' % number for number in range(20_000)) + b"]"
    assert kernel.check_json(text) == (1, -1, -1)
    assert kernel.check_json(text + b"\xff") == (1, -1, len(text))
