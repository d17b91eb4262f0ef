"""Tests marked long are left out, not skipped, unless long mode is on."""

from __future__ import annotations

import pytest

from tests.conftest import is_long
from tests.tidy.tree import ROOT

pytest_plugins = ["pytester"]
MODULE = """
import pytest

def test_short(long_mode):
    print(f"long mode: {long_mode}")

@pytest.mark.long
def test_long():
    pass
"""


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"TOPICS_TEST_LONG": "1"}, True),
        ({"TOPICS_TEST_LONG": "0"}, False),
        ({"TOPICS_TEST_LONG": ""}, False),
    ],
)
def test_the_variable_turns_long_mode_on(environment: dict[str, str], expected: bool) -> None:
    assert is_long(environment) is expected


@pytest.mark.parametrize(
    ("options", "outcome", "says"),
    [([], {"passed": 1, "deselected": 1}, "long mode: False"), (["--long"], {"passed": 2}, "long mode: True")],
)
def test_long_tests_are_left_out_by_default(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, options: list[str], outcome: dict[str, int], says: str
) -> None:
    monkeypatch.delenv("TOPICS_TEST_LONG", raising=False)
    pytester.makeconftest((ROOT / "tests/conftest.py").read_text())
    pytester.makepyprojecttoml(
        '[tool.pytest.ini_options]\nmarkers = ["long: x"]\nasyncio_default_fixture_loop_scope = "function"'
    )
    pytester.makepyfile(MODULE)
    result = pytester.runpytest_subprocess("-s", *options)
    result.assert_outcomes(**outcome)
    assert says in result.stdout.str()
