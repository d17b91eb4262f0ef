"""Builds the compiled kernel from the present sources, with every warning an error, for the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = ROOT / "kernel/src"
WARNINGS: Final = ("-Wall", "-Wextra", "-Werror")
_NAME: Final = "kernel._compiled"


def can_build() -> bool:
    """Whether there are a compiler and the headers of this Python."""
    return shutil.which("cc") is not None and Path(_headers(), "Python.h").exists()


def _headers() -> str:
    return sysconfig.get_paths()["include"]


def build(folder: Path, *options: str, sources_in: Path = SOURCES) -> Path:
    """The shared library, in that folder. Raises CalledProcessError with the compiler's output."""
    library = folder / "_compiled.so"
    sources = [str(path) for path in sorted(sources_in.glob("*.c"))]
    command = ["cc", "-std=c11", "-O2", *WARNINGS, "-fPIC", "-shared", f"-I{_headers()}", *options, *sources, "-o"]
    subprocess.run([*command, str(library)], check=True, env={**os.environ, "LC_ALL": "C"})
    return library


def load(library: Path) -> ModuleType:
    """The module in that library."""
    spec = spec_from_file_location(_NAME, library, loader=ExtensionFileLoader(_NAME, str(library)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
