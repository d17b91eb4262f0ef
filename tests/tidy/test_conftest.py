"""Long tests are left out, not skipped, unless long mode is on; a disk without room for a run is said at once."""

from __future__ import annotations

import pytest

from tests.conftest import is_soak
from tests.tidy.tree import ROOT

pytest_plugins = ["pytester"]
MODULE = """
import pytest

def test_short(soak_mode):
    print(f"long mode: {soak_mode}")

@pytest.mark.soak
def test_long():
    pass
"""


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"TOPICS_TEST_SOAK": "1"}, True),
        ({"TOPICS_TEST_SOAK": "0"}, False),
        ({"TOPICS_TEST_SOAK": ""}, False),
    ],
)
def test_the_variable_turns_long_mode_on(environment: dict[str, str], expected: bool) -> None:
    assert is_soak(environment) is expected


@pytest.mark.parametrize(
    ("options", "outcome", "says"),
    [([], {"passed": 1, "deselected": 1}, "long mode: False"), (["--long"], {"passed": 2}, "long mode: True")],
)
def test_long_tests_are_left_out_by_default(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, options: list[str], outcome: dict[str, int], says: str
) -> None:
    monkeypatch.delenv("TOPICS_TEST_SOAK", raising=False)
    a_project(pytester, (ROOT / "tests/conftest.py").read_text())
    result = pytester.runpytest_subprocess("-s", *options)
    result.assert_outcomes(**outcome)
    assert says in result.stdout.str()
    assert "GiB free" in result.stdout.str()


def test_a_disk_without_room_for_a_run_is_said_before_any_test_runs(pytester: pytest.Pytester) -> None:
    conftest = (ROOT / "tests/conftest.py").read_text()
    assert "ROOM_NEEDED = 2 << 30" in conftest
    a_project(pytester, conftest.replace("ROOM_NEEDED = 2 << 30", "ROOM_NEEDED = 1 << 60"))
    result = pytester.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "MiB free, the tests need up to" in result.stdout.str() + result.stderr.str()
    assert "passed" not in result.stdout.str()


def a_project(pytester: pytest.Pytester, conftest: str) -> None:
    pytester.makeconftest(conftest)
    pytester.makepyprojecttoml(
        '[tool.pytest.ini_options]\nmarkers = ["long: x"]\nasyncio_default_fixture_loop_scope = "function"'
    )
    pytester.makepyfile(MODULE)
