"""Positions as ids of events."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.live import cursor
from broker.live.cursor import Position

U64 = st.integers(0, 2**64 - 1)


def encoded(value: object) -> bytes:
    return urlsafe_b64encode(json.dumps(value).encode())


@given(st.dictionaries(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._:#-]{0,40}", fullmatch=True), st.tuples(U64, U64)))
def test_cursor_round_trips(positions: dict[str, tuple[int, int]]) -> None:
    expected = {name: Position(*each) for name, each in positions.items()}
    entries = [cursor.entry(json.dumps(name).encode(), each) for name, each in expected.items()]
    id = cursor.encode(entries)
    assert cursor.decode(id) == expected
    assert id.isascii()
    assert not set(b"\n=+/") & set(id)


def test_the_id_is_the_map_in_base64url() -> None:
    id = cursor.encode([cursor.entry(b'"a"', Position(3, 7)), cursor.entry(b'"b"', Position(1, 0))])
    assert id == urlsafe_b64encode(b'{"a":{"epoch":3,"seq":7},"b":{"epoch":1,"seq":0}}').rstrip(b"=")


def test_an_id_with_padding_is_accepted() -> None:
    assert cursor.decode(encoded({"a": {"epoch": 1, "seq": 22}})) == {"a": Position(1, 22)}


@pytest.mark.parametrize(
    "id", [b"", b"!", b"e30", b"abc", encoded([1]), encoded("x"), encoded(None), b"\xff", b"eyJ", b"e" * 300_000]
)
def test_invalid_cursor_is_ignored(id: bytes) -> None:
    assert cursor.decode(id) == {}


@pytest.mark.parametrize(
    "entry",
    [None, 5, "5", [], {}, {"seq": 5}, {"epoch": 1}, {"epoch": "1", "seq": 5}, {"epoch": 1, "seq": -1},
     {"epoch": 1, "seq": 2**64}, {"epoch": 1, "seq": 1.5}],
)  # fmt: skip
def test_a_malformed_entry_is_ignored_and_the_others_count(entry: object) -> None:
    good = {"epoch": 1, "seq": 5}
    assert cursor.decode(encoded({"bad": entry, "good": good})) == {"good": Position(1, 5)}
