"""Lease ids as clients see them, and the numbers behind them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.http.lease_ids import tokens
from storage.errors import InvalidRequest

TOKENS = st.integers(1, 2**64 - 1)
#: What looks nearly like one, and what a look at all of them at once might take for one.
PARTS = st.sampled_from(["", ",", "lease_", "lease_0123456789abcdef", "0123456789abcdef", "lease_0", "\n", "é", "A"])


def shown(token: int) -> str:
    return f"lease_{token:016x}" if token else ""


@given(st.lists(TOKENS | st.just(0), min_size=1, max_size=30))
def test_what_was_given_out_is_understood(given_out: list[int]) -> None:
    assert tokens([shown(token) for token in given_out]) == given_out


@pytest.mark.parametrize("given", [None, []])
def test_none_at_all_are_none(given: list[str] | None) -> None:
    assert tokens(given) is None


@given(st.lists(st.lists(PARTS, max_size=3).map("".join), min_size=1, max_size=4))
def test_each_is_judged_by_itself(texts: list[str]) -> None:
    """However well they go together."""
    sound = [text == "" or (len(text) == 22 and text == "lease_0123456789abcdef") for text in texts]
    if all(sound):
        assert tokens(texts) == [int(text[6:], 16) if text else 0 for text in texts]
        return
    with pytest.raises(InvalidRequest) as caught:
        tokens(texts)
    assert caught.value.detail["field"] == f"lease_ids[{sound.index(False)}]"
