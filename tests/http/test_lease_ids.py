"""Lease ids as clients see them, and the numbers that they encode."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.api.routes.claims import tokens, tokens_of_json
from storage.errors import InvalidRequest

TOKENS = st.integers(1, 2**64 - 1)
#: Texts that look almost like one, and that a check of all at once could accept.
PARTS = st.sampled_from(["", ",", "lease_", "lease_0123456789abcdef", "0123456789abcdef", "lease_0", "\n", "é", "A"])


def shown(token: int) -> str:
    return f"lease_{token:016x}" if token else ""


@given(st.lists(TOKENS | st.just(0), min_size=1, max_size=30))
def test_issued_lease_ids_are_parsed(given_out: list[int]) -> None:
    assert tokens([shown(token) for token in given_out]) == given_out


@pytest.mark.parametrize("given", [None, []])
def test_absent_lease_ids_are_parsed_as_none(given: list[str] | None) -> None:
    assert tokens(given) is None


@given(st.lists(st.lists(PARTS, max_size=3).map("".join), min_size=1, max_size=4))
def test_an_invalid_lease_id_is_refused_by_its_index(texts: list[str]) -> None:
    """Wherever the invalid id is."""
    sound = [text == "" or (len(text) == 22 and text == "lease_0123456789abcdef") for text in texts]
    if all(sound):
        assert tokens(texts) == [int(text[6:], 16) if text else 0 for text in texts]
        return
    with pytest.raises(InvalidRequest) as caught:
        tokens(texts)
    assert caught.value.detail["field"] == f"lease_ids[{sound.index(False)}]"


def told(call: Callable[[], Sequence[int] | None]) -> object:
    """The tokens, or the error."""
    try:
        found = call()
    except InvalidRequest as error:
        return error.detail
    return None if found is None else [*found]


# -- as they stand in a body ------------------------------------------------------------------------------------------

SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n\t", ":")])


@given(st.lists(TOKENS | st.just(0), max_size=30), SEPARATORS)
def test_lease_ids_in_json_are_parsed_with_any_separators(given_out: list[int], separators: tuple[str, str]) -> None:
    texts = [shown(token) for token in given_out]
    found = tokens_of_json(json.dumps(texts, separators=separators).encode())
    assert (None if found is None else [*found]) == tokens(texts)


@given(st.lists(st.lists(PARTS, max_size=3).map("".join), max_size=4), SEPARATORS)
def test_an_invalid_lease_id_in_json_is_refused_by_its_index(texts: list[str], separators: tuple[str, str]) -> None:
    body = json.dumps(texts, separators=separators).encode()
    assert told(lambda: tokens_of_json(body)) == told(lambda: tokens(texts))


@pytest.mark.parametrize("body", [b"null", b"[]", b" [ ] "])
def test_null_lease_ids_are_no_lease_ids(body: bytes) -> None:
    assert tokens_of_json(body) is None


@pytest.mark.parametrize("body", [b'"lease_0123456789abcdef"', b"{}", b"[1]", b'["lease_0123456789abcdef",null]', b"7"])
def test_lease_ids_must_be_an_array_of_strings(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        tokens_of_json(body)
