"""Configured keys, and finding the key of a request."""

from __future__ import annotations

import hashlib
import hmac
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.auth import keys
from broker.auth.keys import Keyring, parse, parse_file
from broker.auth.scopes import ADMIN, EVERYTHING, READ, READ_WRITE

key_texts = st.text(st.characters(min_codepoint=33, max_codepoint=126, blacklist_characters=",:"), min_size=1)


def test_an_entry_has_a_key_scopes_and_prefixes() -> None:
    found = parse("one,two:r,three:rw:orders|audit, four::x ,five:a:a:b|c:d:e")
    assert [key.number for key in found] == [1, 2, 3, 4, 5]
    assert [key.grant.scopes for key in found] == [EVERYTHING, READ, READ_WRITE, EVERYTHING, ADMIN]
    # Split at the first two colons: names have colons, too.
    assert [key.grant.prefixes for key in found] == [(), (), ("audit", "orders"), ("x",), ("a:b", "c:d:e")]
    assert found[3].digest == hashlib.sha256(b"four").digest()


def test_entries_of_a_file_may_be_on_separate_lines() -> None:
    found = parse_file("one:r\n\ntwo,three\r\n  four:w \n")
    assert [key.digest for key in found] == [keys.digest_of(text) for text in (b"one", b"two", b"three", b"four")]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", 1),
        (" ", 1),
        (",", 1),
        ("one,", 2),
        ("one,,two", 2),
        (":r", 1),
        ("one,:r:x", 2),
        ("one two", 1),
        ("ön", 1),
        ("one\x00", 1),
        ("x" * 513, 1),
        ("one,two,sEcReT:reed", 3),
        ("sEcReT:r:a||b", 1),
        ("sEcReT:r:a b", 1),
        ("one:sEcReT", 1),
        ("one:r:sEcReT!", 1),
    ],
)
def test_a_malformed_entry_is_named_by_its_number_and_never_quoted(text: str, number: int) -> None:
    for read in (parse, parse_file) if text.strip(", ") and ",," not in text else (parse,):
        with pytest.raises(ValueError, match=rf"^entry {number} [^\n]+[^.]$") as refusal:
            read(text)
        assert "sEcReT" not in repr(refusal.value)
        assert refusal.value.__suppress_context__ or refusal.value.__context__ is None


def test_a_file_without_keys_is_refused() -> None:
    with pytest.raises(ValueError, match="it contains no key"):
        parse_file(" \n\n")


def test_the_same_key_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^entries 1 and 3 are the same key$"):
        parse("one:r,two,one:rw")
    with pytest.raises(ValueError, match=r"^entries 2 and 3 are the same key$"):
        keys.merged(parse("one,two"), parse("two:r"))


def test_keys_of_several_places_are_numbered_through() -> None:
    assert [key.number for key in keys.merged(parse("one,two"), parse_file("three"))] == [1, 2, 3]


def test_only_the_exact_text_of_a_key_is_found() -> None:
    ring = Keyring(parse("one:r,two:w,three"))
    for _ in range(2):  # the second time it is known already
        assert [ring.find(text) for text in (b"one", b"two", b"three")] == list(ring)
        for wrong in (b"", b"on", b"one ", b"onee", b"One", b"one:r", b"\xff", keys.digest_of(b"one")):
            assert ring.find(wrong) is None


def test_all_keys_are_compared_for_a_wrong_key(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    everything = [key.digest for key in parse("one,two,three")]
    for presented in (b"one", b"three", b"nothing"):
        compared.clear()
        Keyring(parse("one,two,three")).find(presented)
        assert compared == everything


def test_wrong_keys_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Keyring(parse("one"))
    for guess in range(1000):
        assert ring.find(b"%d" % guess) is None
    calls = itertools.count()
    monkeypatch.setattr(hmac, "compare_digest", lambda one, other: bool(next(calls)) and one == other)
    ring.find(b"7")
    assert next(calls) == 1


def test_key_text_is_not_kept() -> None:
    [key] = parse("sEcReT:r:orders")
    assert "sEcReT" not in "".join(repr(getattr(key, name)) for name in key.__slots__)


@given(st.lists(key_texts, min_size=1, unique=True, max_size=5), st.binary(max_size=40))
def test_only_configured_keys_are_found(texts: list[str], other: bytes) -> None:
    ring = Keyring(parse(",".join(texts)))
    for number, text in enumerate(texts, 1):
        found = ring.find(text.encode())
        assert found is not None
        assert found.number == number
    if other not in [text.encode() for text in texts]:
        assert ring.find(other) is None


@given(st.text())
def test_any_configuration_is_parsed_or_refused(text: str) -> None:
    for read in (parse, parse_file):
        try:
            found = read(text)
        except ValueError as refusal:
            said = str(refusal)
            known = said.startswith(("entry ", "entries ", "it contains no key"))
        else:
            known = len(found) > 0
        assert known
