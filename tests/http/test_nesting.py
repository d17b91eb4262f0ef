"""The quick look at nesting never disagrees with counting brackets one by one."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.http.strict_json import MAX_NESTING, check
from storage.errors import InvalidRequest

LEAVES = st.sampled_from([b"0", b'""', b'"]}"', b'"[{"', b'"\\"["', b"[]", b"{}", b'{"a":[]}', b"[[[[]]]]"])


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """A value nested about as deep as the bound, with leaves of all kinds beside each level."""
    levels = draw(st.integers(MAX_NESTING - 6, MAX_NESTING + 6))
    text = draw(LEAVES)
    for _ in range(levels):
        beside = draw(LEAVES) if draw(st.integers(0, 9)) == 0 else b""
        if draw(st.booleans()):
            text = b"[" + (beside + b"," if beside else b"") + text + b"]"
        else:
            text = b'{"a":' + text + (b',"b":' + beside if beside else b"") + b"}"
    filler = b",".join([draw(LEAVES)] * draw(st.sampled_from([1, 300])))
    return b"[" + filler + b"," + text + b"]"


def depth(text: bytes) -> int:
    """By the book: strings aside, one character at a time."""
    deepest = level = 0
    in_string = escaped = False
    for character in text.decode():
        if in_string:
            in_string = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            in_string = True
        elif character in "[{":
            level += 1
            deepest = max(deepest, level)
        elif character in "]}":
            level -= 1
    return deepest


@given(documents())
@settings(max_examples=60, deadline=None)
def test_a_document_is_refused_exactly_when_it_is_too_deep(text: bytes) -> None:
    try:
        asyncio.run(check(text))
    except InvalidRequest as refusal:
        assert depth(text) > MAX_NESTING
        byte = refusal.detail["byte"]
        assert text[byte : byte + 1] in (b"[", b"{")
        assert depth(text[: byte + 1]) == MAX_NESTING + 1
        assert depth(text[:byte]) == MAX_NESTING
    else:
        assert depth(text) <= MAX_NESTING
