"""The wheel: with a compiler it contains the compiled kernel for every later Python. Without one it still installs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.kernel.build import ROOT

#: Files that the build reads besides the packages.
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "pyspark_topics.py")
PACKAGES = ("broker", "kernel", "pipeline", "schemas", "storage", "topics_broker")
ASK = "from topics_broker import kernel; print(kernel.COMPILED, kernel.REASON, kernel.__file__)"

pytestmark = pytest.mark.slow


def copied(folder: Path) -> Path:
    """The project as in a fresh clone."""
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    return folder


def wheel(project: Path, folder: Path, **environment: str) -> Path:
    """Made by pip, with the installed setuptools."""
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", str(folder), "."]
    subprocess.run(command, check=True, cwd=project, env=os.environ | environment)
    [made] = folder.glob("*.whl")
    return made


def answer(made: Path, folder: Path) -> list[str]:
    """The kernel's description of itself, in an environment with this wheel and its dependencies from elsewhere."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin/python")
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", str(made)], check=True)
    [packages] = (folder / "lib").glob("python*/site-packages")
    (packages / "others.pth").write_text(os.path.dirname(pytest.__path__[0]))
    command = [python, "-I", "-c", ASK]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
    assert str(packages) in done.stdout
    return done.stdout.split()


def test_a_wheel_carries_the_compiled_kernel_for_the_stable_abi(cc: str, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    made = wheel(copied(tmp_path / "project"), tmp_path / "wheels")
    assert "-cp311-abi3-" in made.name
    assert answer(made, tmp_path / "venv")[0] == "True"


def test_without_a_compiler_the_twin_is_installed(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    made = wheel(copied(tmp_path / "project"), tmp_path / "wheels", CC="false")
    found = answer(made, tmp_path / "venv")
    assert found[0] == "False"
    assert "cannot be loaded" in " ".join(found)
