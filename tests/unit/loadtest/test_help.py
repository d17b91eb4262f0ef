"""Every load test has a help text with its purpose and options."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "loadtest"
COMMANDS = sorted(path.stem for path in FOLDER.glob("*.py") if "argparse.ArgumentParser(" in path.read_text())
PARTS = [("flames", "graph"), ("flames", "table")]


@pytest.mark.parametrize("command", [*((name,) for name in COMMANDS), *PARTS], ids="-".join)
def test_help_is_given(command: tuple[str, ...]) -> None:
    name, *more = command
    said = subprocess.run(
        [sys.executable, "-m", f"loadtest.{name}", *more, "--help"], cwd=FOLDER.parent, capture_output=True, text=True
    )
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith("usage: ")
