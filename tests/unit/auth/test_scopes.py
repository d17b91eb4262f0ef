"""Scopes and prefixes: valid and invalid ones, and lists reduced to prefixes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.auth.scopes import (
    ADMIN,
    DELETE,
    EVERYTHING,
    READ,
    READ_WRITE,
    WRITE,
    Grant,
    narrowed,
    parse_prefixes,
    parse_scopes,
)

names = st.text(alphabet="abc.", min_size=1, max_size=5)


@pytest.mark.parametrize(
    ("text", "scopes"),
    [
        ("", EVERYTHING),
        ("read", READ),
        ("write", WRITE),
        ("delete", DELETE),
        ("admin", ADMIN),
        ("r", READ),
        ("w", WRITE),
        ("d", DELETE),
        ("a", ADMIN),
        ("rw", READ_WRITE),
        ("read+write", READ_WRITE),
        ("r+w+d+a", EVERYTHING),
        ("rw+delete", READ_WRITE | DELETE),
        ("r+read", READ),
    ],
)
def test_scopes_are_words_joined_by_plus(text: str, scopes: frozenset[object]) -> None:
    assert parse_scopes(text) == scopes


@pytest.mark.parametrize("text", ["reed", "READ", "wr", "+", "r+", "+r", "r++w", " r", "r,w", "*", "all", "read|write"])
def test_other_scopes_are_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="scopes") as refusal:
        parse_scopes(f"sEcReT{text}")
    assert "sEcReT" not in str(refusal.value)
    with pytest.raises(ValueError, match="scopes"):
        parse_scopes(text)


@pytest.mark.parametrize("text", ["|", "a|", "|a", "a||b", "a b", "a/b", ".a", "a*", "ä", "a|%", "x" * 256])
def test_prefixes_outside_the_characters_of_names_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="prefixes"):
        parse_prefixes(text)


def test_a_prefix_within_another_is_dropped() -> None:
    assert parse_prefixes("orders|a|orders.eu|ab|b") == ("a", "b", "orders")
    assert parse_prefixes("") == ()


def test_a_scope_does_not_stand_for_another() -> None:
    for scope in EVERYTHING:
        grant = Grant(frozenset({scope}))
        assert [other for other in EVERYTHING if grant.allows(frozenset({other}))] == [scope]
    assert not Grant(READ).allows(READ_WRITE)
    assert Grant(READ_WRITE).allows(READ)


def test_a_prefix_covers_all_names_that_begin_with_the_prefix() -> None:
    grant = Grant(READ, ("orders", "x"))
    assert grant.allows(READ, "orders")
    assert grant.allows(READ, "orders.eu")
    assert grant.allows(READ, "x")
    assert not grant.allows(READ, "order")
    assert not grant.allows(READ, "Orders")
    assert not grant.allows(READ, "")
    assert not grant.allows(WRITE, "orders")
    assert Grant(READ).allows(READ, "anything")


@given(st.lists(names, max_size=5), names | st.just(""), st.lists(names))
def test_a_list_cut_down_has_every_allowed_name_once_and_in_order(
    prefixes: list[str], prefix: str, there: list[str]
) -> None:
    grant = Grant(READ, parse_prefixes("|".join(each for each in prefixes if each[0] != ".")))
    listed = [name for each in narrowed(grant.prefixes, prefix) for name in sorted(set(there)) if name.startswith(each)]
    assert listed == sorted({name for name in there if name.startswith(prefix) and grant.covers(name)})
