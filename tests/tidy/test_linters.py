"""ruff, pyright and mypy are clean: the same commands as `make lint`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT

# pyright reads every dependency; a busy machine takes minutes.
pytestmark = pytest.mark.timeout(600)


def run(*command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a tool of this environment as a module, with both outputs in stdout."""
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def assert_clean(result: subprocess.CompletedProcess[str]) -> None:
    assert result.returncode == 0, result.stdout


def test_ruff_reports_no_problem() -> None:
    assert_clean(run("ruff", "check", "--no-cache", "."))


def test_the_sources_are_formatted() -> None:
    assert_clean(run("ruff", "format", "--no-cache", "--check", "--diff", "."))


def test_pyright_finds_nothing() -> None:
    assert_clean(run("pyright", "--pythonpath", sys.executable))


def test_mypy_finds_nothing_in_the_client(tmp_path: Path) -> None:
    # It has no types of its own for the rest. Seconds, beside the minutes of pyright.
    options = ("--strict", "--python-executable", sys.executable, "--cache-dir", str(tmp_path))
    assert_clean(run("mypy", *options, "-p", "topics_client", cwd=ROOT / "clients/python"))


def test_pyright_would_find_a_wrong_type(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("number: int = 'text'\n")
    result = run("pyright", "wrong.py", cwd=tmp_path)
    assert result.returncode == 1
    assert "reportAssignmentType" in result.stdout
