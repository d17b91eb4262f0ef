"""Each tier runs its own tests and leaves out the others. A disk without room for a run is reported at once."""

from __future__ import annotations

import os
import signal

import pytest

from tests.conftest import SLOW_FOLDERS, is_soak
from tests.tidy.tree import ROOT

pytest_plugins = ["pytester"]
MODULE = """
import pytest

def test_plain(soak_mode):
    print(f"soak mode: {soak_mode}")

@pytest.mark.slow
def test_slow():
    pass

@pytest.mark.soak
def test_soak():
    pass

@pytest.mark.parametrize("size", ["few", pytest.param("all", marks=pytest.mark.soak)])
def test_sizes(size):
    pass
"""
#: In a folder of slow tests.
IN_SLOW_FOLDER = """
import pytest

def test_of_the_folder():
    pass

@pytest.mark.fast
@pytest.mark.parametrize("size", ["few", pytest.param("some", marks=pytest.mark.slow)])
def test_marked_fast(size):
    pass
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with tests of each tier and the conftest of this project."""
    monkeypatch.delenv("TOPICS_TEST_SOAK", raising=False)
    pytester.makeconftest((ROOT / "tests/conftest.py").read_text())
    pytester.makepyprojecttoml(
        "[tool.pytest.ini_options]\n"
        'markers = ["fast: x", "slow: x", "soak: x", "io_uring: x"]\n'
        'addopts = "--strict-markers"\n'
        'asyncio_default_fixture_loop_scope = "function"'
    )
    pytester.makepyfile(test_module=MODULE)
    folder = pytester.path / SLOW_FOLDERS[0]
    folder.mkdir(parents=True)
    (folder / "test_in_slow_folder.py").write_text(IN_SLOW_FOLDER)
    return pytester


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"TOPICS_TEST_SOAK": "1"}, True),
        ({"TOPICS_TEST_SOAK": "0"}, False),
        ({"TOPICS_TEST_SOAK": ""}, False),
    ],
)
def test_the_variable_turns_the_soak_tier_on(environment: dict[str, str], expected: bool) -> None:
    assert is_soak(environment) is expected


@pytest.mark.parametrize(
    ("options", "tier", "ran"),
    [
        ([], "fast", ["test_marked_fast[few]", "test_plain", "test_sizes[few]"]),
        (["--tier", "slow"], "slow", ["test_marked_fast[some]", "test_of_the_folder", "test_slow"]),
        (
            ["--tier", "both"],
            "both",
            [
                "test_marked_fast[few]",
                "test_marked_fast[some]",
                "test_of_the_folder",
                "test_plain",
                "test_sizes[few]",
                "test_slow",
            ],
        ),
        (
            ["--tier", "soak"],
            "soak",
            [
                "test_marked_fast[few]",
                "test_marked_fast[some]",
                "test_of_the_folder",
                "test_plain",
                "test_sizes[all]",
                "test_sizes[few]",
                "test_slow",
                "test_soak",
            ],
        ),
    ],
)
def test_a_tier_runs_only_its_tests(project: pytest.Pytester, options: list[str], tier: str, ran: list[str]) -> None:
    result = project.runpytest_subprocess("-rpP", *options)
    passed = [line.rpartition("::")[2] for line in result.outlines if line.startswith("PASSED ")]
    assert sorted(passed) == ran
    result.stdout.fnmatch_lines([f"tier: {tier} (*", "temporary files: *GiB free"])
    if "test_plain" in ran:
        assert f"soak mode: {tier == 'soak'}" in result.stdout.str()


@pytest.mark.parametrize(("tier", "imported"), [("fast", "test_outside"), ("slow", "test_in_slow_folder")])
def test_files_without_a_test_of_the_tier_are_not_imported(project: pytest.Pytester, tier: str, imported: str) -> None:
    """A marker may come from a module that the file imports, by way of another one."""
    (project.path / "tests/sizes.py").write_text("import pytest\nSMALL = pytest.param(1, marks=pytest.mark.slow)")
    (project.path / "tests/more_sizes.py").write_text("from tests.sizes import SMALL\nSIZES = [SMALL]")
    names = {"outside": "tests", "in_slow_folder": SLOW_FOLDERS[0]}
    for name, folder in names.items():
        text = f"print('imported: test_{name}')\ndef test_{name}(): ..."
        (project.path / folder / f"test_{name}.py").write_text(text)
    sized = "@pytest.mark.parametrize('size', SIZES)\ndef test_size(size): ..."
    imports = "import pytest\nfrom tests.more_sizes import SIZES\n"
    (project.path / "tests/test_sized.py").write_text(imports + sized)
    result = project.runpytest_subprocess("-rpP", "-s", "--tier", tier, "tests")
    seen = [line for line in result.outlines if line.startswith("imported: ")]
    assert seen == [f"imported: {imported}"]
    passed = [line.rpartition("::")[2] for line in result.outlines if line.startswith("PASSED ")]
    assert sorted(passed) == sorted([imported, *(["test_size[1]"] if tier == "slow" else [])])
    result = project.runpytest_subprocess("-s", "--tier", "slow", "tests/test_outside.py")
    assert "imported: test_outside" in result.stdout.str()


def test_the_variable_chooses_the_soak_tier(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_TEST_SOAK", "1")
    project.runpytest_subprocess().assert_outcomes(passed=8)


def test_a_disk_without_room_for_a_run_is_reported_before_any_test_runs(project: pytest.Pytester) -> None:
    conftest = (ROOT / "tests/conftest.py").read_text()
    assert "ROOM_NEEDED = 2 << 30" in conftest
    project.makeconftest(conftest.replace("ROOM_NEEDED = 2 << 30", "ROOM_NEEDED = 1 << 60"))
    result = project.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "MiB free, the tests need up to" in result.stdout.str() + result.stderr.str()
    assert "passed" not in result.stdout.str()


def test_the_costs_of_files_are_shown_on_request(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))))
    for options in ([], ["-n", "2"]):
        result = project.runpytest_subprocess("-p", "tests.support.costs", *options)
        result.assert_outcomes(passed=3)
        assert "processor seconds" in result.stdout.str()
        result.stdout.fnmatch_lines_random(["* 2 tests *test_module.py", "* 1 tests *test_in_slow_folder.py"])


def test_interrupts_reach_programs_of_a_run_in_the_background(project: pytest.Pytester) -> None:
    """Such a run inherits that SIGINT is ignored, as its programs would from it."""
    project.makepyfile(
        test_interrupts="""
        import subprocess, sys

        def test_a_program_is_interrupted():
            text = "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('it went on')"
            done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
            assert "KeyboardInterrupt" in done.stderr
        """
    )
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        result = project.runpytest_subprocess("test_interrupts.py")
    finally:
        signal.signal(signal.SIGINT, before)
    result.assert_outcomes(passed=1)
