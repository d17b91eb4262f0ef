"""Each test is in one tier, and CI runs the commands of two tiers. The rules notice violations."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import FAST, FIRST, SLOW, SLOW_FOLDERS
from tests.tidy.rules_tiers import tier_problems
from tests.tidy.tree import ROOT, Source, python_files

DOCUMENT = ROOT / "docs/testing.md"
SLOW_PATH = f"{SLOW_FOLDERS[0]}/test_x.py"
#: Replaces make: notes what it is asked for, and fails at what FAILING names.
MAKE = '#!/bin/sh\necho "$1" >> "$LOG"\necho "$2" >> "$LOG.arguments"\ncase " $FAILING " in *" $1 "*) exit 2;; esac\n'


def test_no_marker_repeats_the_tier_of_its_folder() -> None:
    assert [problem for source in python_files() for problem in tier_problems(source)] == []


@pytest.mark.parametrize(("path", "tier"), [(SLOW_PATH, SLOW), ("tests/unit/test_x.py", FAST)])
def test_a_marker_that_repeats_the_tier_of_its_folder_is_reported(path: str, tier: str) -> None:
    assert len(tier_problems(Source(path, f"@pytest.mark.{tier}\ndef test_x(): ..."))) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (SLOW_PATH, "@pytest.mark.fast\ndef test_x(): ..."),
        (SLOW_PATH, "@pytest.mark.fast\n@pytest.mark.parametrize('n', [1, pytest.param(2, marks=pytest.mark.slow)])"),
        ("tests/unit/test_x.py", "pytestmark = pytest.mark.slow"),
        ("tests/support/x.py", "marks=pytest.mark.fast"),
    ],
)
def test_a_marker_with_another_tier_is_accepted(path: str, text: str) -> None:
    assert tier_problems(Source(path, text)) == []


def test_every_slow_folder_has_tests_and_stands_in_the_document() -> None:
    text = DOCUMENT.read_text()
    for folder in SLOW_FOLDERS:
        assert list((ROOT / folder).rglob("test_*.py")), folder
        assert f"`{folder}`" in text, folder


def test_what_comes_first_is_there() -> None:
    assert [path for path in FIRST if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("failing", ["", "test", "test-long", "test test-long"])
def test_ci_runs_both_commands_and_fails_with_either(tmp_path: Path, failing: str) -> None:
    for name, text in {"make": MAKE, "python3": "#!/bin/sh\n", "apt-get": "#!/bin/sh\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    bash = shutil.which("bash")
    assert bash is not None
    log = tmp_path / "log"
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(log), "FAILING": failing}
    done = subprocess.run([bash, str(ROOT / ".ci/run")], env=environment, capture_output=True, text=True)
    assert log.read_text().split() == ["test", "test-long"]
    [arguments] = {*Path(f"{log}.arguments").read_text().splitlines()}
    assert re.fullmatch(r"ARGS=--randomly-seed=(\d+) --hypothesis-seed=\1", arguments)
    assert done.returncode == (2 if failing else 0), done.stderr
