"""A command of the Makefile installs what it needs and nothing else, and says so before it begins."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT

#: For each command, the extras that it installs.
EXTRAS = {
    "run": {"kafka"},
    "demo": {"kafka", "demo"},
    "bench": {"kafka", "load"},
    "test": {"kafka", "demo", "test"},
    "test-long": {"kafka", "demo", "test"},
}


def steps(make: str, word: str, environment: Path) -> list[str]:
    """The output of the command in a place where nothing is installed."""
    command = [make, "-n", word, f"VENV={environment}"]
    # A make that runs the tests passes its flags down, and this one would print which folder it enters.
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize(("word", "extras"), EXTRAS.items())
def test_a_command_installs_its_extras(make: str, tmp_path: Path, word: str, extras: set[str]) -> None:
    named = re.findall(r"-e '\.\[([a-z,]+)\]'", "\n".join(steps(make, word, tmp_path / "venv")))
    assert {extra for names in named for extra in names.split(",")} == extras


@pytest.mark.parametrize("word", EXTRAS)
def test_an_installation_is_announced(make: str, tmp_path: Path, word: str) -> None:
    found = steps(make, word, tmp_path / "venv")
    first = next(number for number, step in enumerate(found) if "-m pip" in step)
    assert re.search(r'^echo "Installing .* MB, once \.\.\."$', found[first - 1])


@pytest.mark.parametrize("word", ["test", "test-long"])
def test_make_announces_the_tests_before_it_runs_them(make: str, tmp_path: Path, word: str) -> None:
    *_, announced, command = steps(make, word, tmp_path / "venv")
    assert announced.startswith('echo "Running the ')
    assert "-m pytest" in command
    assert ("--tier slow" in command) is (word == "test-long")
