"""docs/guides/embedding.md works as shown: its programs are run, and their output is compared."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from storage.options import Options
from tests.support.broker_process import PATIENCE_S, ROOT, environment

PAGE = (ROOT / "docs/guides/embedding.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def run(directory: Path, *command: str) -> str:
    process = subprocess.run(
        [sys.executable, "-W", "error", *command],
        cwd=directory,
        env=environment(directory),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")
    return process.stdout


def test_the_programs_on_the_page_run_in_order(tmp_path: Path) -> None:
    programs = [text for kind, text in BLOCKS if kind == "python"]
    assert len(programs) == 3
    printed = [run(tmp_path, "-c", f"path = 'data'\n{program}") for program in programs]
    assert printed == ["", "7 {'id': 2}\n", ""]


def test_the_example_prints_the_output_on_the_page(tmp_path: Path) -> None:
    (session,) = [text for kind, text in BLOCKS if kind == "console"]
    runs = session.split("$ python examples/embedded.py shop\n")[1:]
    assert len(runs) == 2
    for shown in runs:
        assert run(tmp_path, str(ROOT / "examples/embedded.py"), "shop") == shown


@pytest.mark.parametrize("row", re.findall(r"^\| `(\w+)` \| ([\d,]+)(?: (MiB)| = none)? \|", PAGE, re.MULTILINE))
def test_the_limits_on_the_page_are_the_defaults_of_the_options(row: tuple[str, str, str]) -> None:
    name, number, unit = row
    assert getattr(Options(), name) == int(number.replace(",", "")) * (1 << 20 if unit else 1)
