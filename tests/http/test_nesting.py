"""The fast check of nesting agrees with counting brackets one by one."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.content.strict_json import MAX_NESTING, check
from storage.errors import InvalidRequest

PLAIN = [b"0", b'""', b'"\\""', b"[]", b"{}", b'{"a":[]}', b"[[[[]]]]"]
WITH_BRACKETS_IN_TEXT = [*PLAIN, b'"]}"', b'"[{"', b'"\\"["']


def document(seed: int, leaves: list[bytes]) -> bytes:
    """A value nested about as deeply as the limit, with values of all kinds on some levels."""
    dice = random.Random(seed)
    text = dice.choice(leaves)
    for _ in range(MAX_NESTING + dice.randint(-6, 6)):
        beside = b"," + dice.choice(leaves) if dice.random() < 0.1 else b""
        text = b"[%b%b]" % (text, beside) if dice.random() < 0.5 else b'{"a":%b%b}' % (text, beside and b',"b":0')
    filler = b",".join([dice.choice(leaves)] * dice.choice([1, 300]))
    return b"[%b,%b]" % (filler, text)


def depth(text: bytes) -> int:
    """The reference: one character at a time, strings left out."""
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


@given(st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_a_document_is_refused_only_if_nested_too_deeply(seed: int) -> None:
    text = document(seed, PLAIN)
    assert (refused_at(text) is not None) == (depth(text) > MAX_NESTING)


@given(st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_a_refusal_names_the_byte_of_the_first_bracket_over_the_limit(seed: int) -> None:
    text = document(seed, WITH_BRACKETS_IN_TEXT)
    byte = refused_at(text)
    if byte is not None:
        assert text[byte : byte + 1] in (b"[", b"{")
        assert depth(text[:byte]) == MAX_NESTING
        assert depth(text[: byte + 1]) == MAX_NESTING + 1


def refused_at(text: bytes) -> int | None:
    try:
        asyncio.run(check(text))
    except InvalidRequest as refusal:
        return refusal.detail["byte"]
    return None
