"""Settings of a measured broker, as they are given on the command line."""

from __future__ import annotations

import argparse

import pytest

from loadtest.own_broker import add_set


def parsed(*words: str) -> dict[str, str]:
    parser = argparse.ArgumentParser()
    add_set(parser)
    return dict(parser.parse_args([each for word in words for each in ("--set", word)]).set)


def test_a_set_option_is_a_name_and_a_value_that_may_contain_an_equals_sign() -> None:
    assert parsed() == {}
    assert parsed("A=1", "B=x=y", "C=") == {"A": "1", "B": "x=y", "C": ""}


@pytest.mark.parametrize("word", ["A", "", "=1"])
def test_a_malformed_set_option_is_refused_with_a_message(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(word)
    assert f"{word!r} is not NAME=VALUE" in capsys.readouterr().err
