"""Identifiers are made of the field's words, and the rule notices one that is not."""

from __future__ import annotations

import pytest

from tests.tidy.rules_words import ALLOWED, unused_allowances, word_problems, words_of
from tests.tidy.tree import Source, python_files


def test_no_identifier_has_a_banned_word() -> None:
    assert [problem for source in python_files() for problem in word_problems(source)] == []


def test_every_allowance_is_needed_and_has_a_reason() -> None:
    assert unused_allowances(python_files()) == []
    assert all(ALLOWED.values())


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("storage/queues/queues.py", "class Desk:\n    pass"),
        ("storage/queues/dealer.py", "pass"),
        ("storage/log/writer.py", "def append_now() -> None: ..."),
        ("storage/log/writer.py", "def f(hand_over: int) -> None: ..."),
        ("broker/wiring.py", "together = 1"),
        ("clients/python/topics_client/calls.py", "self.applied_place = 1"),
    ],
)
def test_a_banned_word_is_reported(path: str, text: str) -> None:
    assert len(word_problems(Source(path, text))) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("storage/log/writer.py", "def now_ms() -> int: ...\nnow = 1"),
        ("storage/log/writer.py", "replaced = handle = landing = 1"),
        ("tests/unit/test_x.py", "together = 1"),
        ("storage/log/writer.py", "print(together)"),
    ],
)
def test_other_words_are_accepted(path: str, text: str) -> None:
    assert word_problems(Source(path, text)) == []


def test_a_name_is_cut_at_underscores_and_capitals() -> None:
    assert words_of("_tryAppend_HTTPRequest2") == ["try", "append", "http", "request", "2"]
